"""Who reads which session when: the second read of a cold one brings it back."""

import threading
from typing import Final

from turnstate.storage.access import Accesses, AccessHistory

READ_TWICE_MS: Final = 600_000
"""A cold session that is read twice within ten minutes comes back to warm."""

_KNOWN_MAX: Final = 100_000


class Reads:
    """Remember the reads of sessions; scans and replays are not told. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known = AccessHistory(_KNOWN_MAX)
        self._rising: set[bytes] = set()

    def accesses(self, key: bytes) -> Accesses:
        """Return when readers used a session."""
        with self._lock:
            return self._known.get(key)

    def note(self, key: bytes, now_ms: int, *, is_cold: bool) -> tuple[bool, bool]:
        """Note a read.

        Returns:
            Whether it is the first that is known, and whether the caller is to
            bring the session back and call `risen` then: one of a thousand
            readers is, so they cause one move, and one fetch for it.
        """
        with self._lock:
            before = self._known.get(key)
            self._known.touch(key, now_ms)
            is_soon = before.last_ms and now_ms - before.last_ms < READ_TWICE_MS
            rises = bool(is_cold and is_soon and key not in self._rising)
            if rises:
                self._rising.add(key)
            return not before.last_ms, rises

    def risen(self, key: bytes) -> None:
        """Note that a session was brought back, or could not be."""
        with self._lock:
            self._rising.discard(key)
