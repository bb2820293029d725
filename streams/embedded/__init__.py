"""The whole pipeline in one process, without services."""
