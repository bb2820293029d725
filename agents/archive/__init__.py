"""What is kept of a session for law and audit once it is gone: no raw text."""
