"""What to do with one event: a pure step decides, a thin loop performs."""
