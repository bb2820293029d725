"""Turns and states as bytes, and back."""
