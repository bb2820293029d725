"""The last records of sessions in frames: what the next frame is written against."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, NamedTuple

from turnstate.storage.frames.codec import dictionary_of
from turnstate.storage.frames.dictionary import NEWEST

TAIL_BYTES: Final = 4 << 10
"""Kept of one session. Measured on single turns of SGD: 4 KB against 16 KB as
dictionary costs 2.5 instead of 3.2 µs and gives equal frames (docs/bench.md)."""


class _Tail(NamedTuple):
    records: bytes
    is_whole: bool  # nothing since the seal is missing before it


class Tails:
    """Remember tails within a byte budget; a forgotten one costs bytes only.

    A reader takes a frame's dictionary from the end of the dictionary that
    ships with the format and the records since the last seal. So the first
    goes in front only where the tail is all of the second.

    Args:
        budget_bytes: For all of them together.
    """

    def __init__(self, budget_bytes: int = 16 << 20) -> None:
        self.budget_bytes = budget_bytes
        self._tails: OrderedDict[bytes, _Tail] = OrderedDict()
        self._bytes = 0

    def dictionary(self, key: bytes) -> bytes:
        """Return what the next frame of a session is written against."""
        tail = self._tails.get(key)
        if tail is None:
            return NEWEST
        return dictionary_of(NEWEST + tail.records) if tail.is_whole else tail.records

    def extend(self, key: bytes, records: Sequence[bytes], *, is_first: bool) -> None:
        """Put a frame's records behind a session's tail.

        Args:
            key: The session key.
            records: What the frame holds.
            is_first: No frame came before it since the last seal.
        """
        before = self._tails.pop(key, None) or _Tail(b"", is_first)
        joined = before.records + b"".join(records)
        after = joined[-TAIL_BYTES:]
        self._tails[key] = _Tail(after, before.is_whole and len(after) == len(joined))
        self._bytes += len(after) - len(before.records)
        while self._bytes > self.budget_bytes:
            _, oldest = self._tails.popitem(last=False)
            self._bytes -= len(oldest.records)

    def forget(self, key: bytes) -> None:
        """Drop a tail: its frames were sealed or erased."""
        tail = self._tails.pop(key, None)
        if tail is not None:
            self._bytes -= len(tail.records)
