"""The last records of sessions in frames: what the next frame is written against."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

TAIL_BYTES: Final = 4 << 10
"""Kept of one session. Measured on single turns of SGD: 4 KB against 16 KB as
dictionary costs 2.5 instead of 3.2 µs and gives equal frames (docs/bench.md)."""


class Tails:
    """Remember tails within a byte budget; a forgotten one costs bytes only.

    A frame written without one says so, and the next tail begins anew.

    Args:
        budget_bytes: For all of them together.
    """

    def __init__(self, budget_bytes: int = 16 << 20) -> None:
        self.budget_bytes = budget_bytes
        self._tails: OrderedDict[bytes, bytes] = OrderedDict()
        self._bytes = 0

    def of(self, key: bytes) -> bytes:
        """Return the tail of a session, empty where none is remembered."""
        return self._tails.get(key, b"")

    def extend(self, key: bytes, records: Sequence[bytes]) -> None:
        """Put a frame's records behind a session's tail."""
        before = self._tails.pop(key, b"")
        after = (before + b"".join(records))[-TAIL_BYTES:]
        self._tails[key] = after
        self._bytes += len(after) - len(before)
        while self._bytes > self.budget_bytes:
            _, oldest = self._tails.popitem(last=False)
            self._bytes -= len(oldest)

    def forget(self, key: bytes) -> None:
        """Drop a tail: its frames were sealed or erased."""
        self._bytes -= len(self._tails.pop(key, b""))
