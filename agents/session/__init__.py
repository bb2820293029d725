"""The agent that folds turns into the state of their session."""
