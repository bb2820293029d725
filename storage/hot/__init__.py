"""The tier that answers first and may forget."""
