"""The tier that survives a restart."""
