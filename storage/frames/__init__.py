"""Frames and segments: bytes in, bytes out, no file touched."""
