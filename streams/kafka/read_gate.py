"""Let readers into a partition's store while it is open, and wait until they left."""

import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

LEAVE_S: Final = 5.0
"""How long a store that closes waits for readers; they read in short steps."""


class GateShutError(Exception):
    """The store is closed to readers now."""


class ReadGate:
    """Count readers, so that a store is never closed under one.

    A reader that is left behind would hold RocksDB's lock through its
    iterator, and the partition could not be opened here again.

    Example:
        >>> gate = ReadGate()
        >>> gate.open()
        >>> with gate.reading():
        ...     gate.shut(0.01)
        False
        >>> gate.shut()
        True
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._readers = 0
        self._is_open = False

    def open(self) -> None:
        """Let readers in."""
        with self._changed:
            self._is_open = True

    def shut(self, timeout_s: float = LEAVE_S) -> bool:
        """Let nobody in any more; say whether all have left in time."""
        with self._changed:
            self._is_open = False
            return self._changed.wait_for(lambda: not self._readers, timeout_s)

    @contextmanager
    def reading(self) -> Generator[None]:
        """Be counted as a reader.

        Raises:
            GateShutError: it is shut.
        """
        with self._changed:
            if not self._is_open:
                raise GateShutError
            self._readers += 1
        try:
            yield
        finally:
            with self._changed:
                self._readers -= 1
                self._changed.notify_all()
