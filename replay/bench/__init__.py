"""Benches that need nothing but this package."""
