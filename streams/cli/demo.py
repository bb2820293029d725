"""The command `demo`."""
def demo() -> None:
    """Demo."""
