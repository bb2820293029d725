"""Encryption at rest: a data key a session, all of them under one master key."""
