"""Copies of a store from which it can be restored: checkpoints and savepoints."""
