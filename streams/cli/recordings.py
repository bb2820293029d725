"""Recordings."""
def export() -> None:
    """Export."""
def import_() -> None:
    """Import."""
def replay() -> None:
    """Replay."""
