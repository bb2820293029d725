"""Dialogue graphs that ship with the project, as data."""
