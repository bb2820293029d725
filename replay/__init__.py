"""Recordings in, states and reports out."""
