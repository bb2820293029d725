"""The command `bench`."""
def bench() -> None:
    """Bench."""
