"""The state of a dialogue: its fold, its definition, its digest, its phases."""
