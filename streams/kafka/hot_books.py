"""Keep books of what a partition has in Redis, which can be counted nowhere else."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from turnstate.storage.tier import SessionChange

HELD_MAX: Final = 200_000
"""Sessions that the books of a partition have; about 150 bytes each."""


class _Held(NamedTuple):
    expires_ms: int
    row_bytes: int
    frame_bytes: int
    frames: int


class HotBooks:
    """Remember which sessions were written to Redis, and about how large.

    Redis counts keys of a server, not of a partition, and to walk over them
    takes seconds. What it throws away before its time stays in the books
    until somebody looks for it.

    Args:
        frames_kept: How many frames of a session Redis keeps.
        ttl_ms: For how long.
    """

    def __init__(self, frames_kept: int, ttl_ms: int) -> None:
        self._frames_kept = frames_kept
        self._ttl_ms = ttl_ms
        self._held: OrderedDict[bytes, _Held] = OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._held)

    def has(self, key: bytes, now_ms: int) -> bool:
        """Say whether a session was written there and has not expired."""
        held = self._held.get(key)
        return held is not None and now_ms < held.expires_ms

    def wrote(self, changes: Sequence[SessionChange], now_ms: int) -> None:
        """Note changes that Redis has taken."""
        for change in changes:
            frames = () if change.frame is None else (change.frame,)
            if change.erased:
                self.forget([change.key])
            if change.after.is_tombstone:
                continue
            self.put(change.key, len(change.row), frames, now_ms)

    def put(
        self, key: bytes, row_bytes: int, frames: Sequence[bytes], now_ms: int
    ) -> None:
        """Note a session with more frames than before."""
        before = self._held.pop(key, None)
        size, count = sum(map(len, frames)), len(frames)
        if before is not None:
            self.bytes -= before.row_bytes + before.frame_bytes
            size, count = size + before.frame_bytes, count + before.frames
        if count > self._frames_kept:
            size, count = size * self._frames_kept // count, self._frames_kept
        self._held[key] = _Held(now_ms + self._ttl_ms, row_bytes, size, count)
        self.bytes += row_bytes + size
        while len(self._held) > HELD_MAX:
            self.forget([next(iter(self._held))])

    def forget(self, keys: Iterable[bytes]) -> None:
        """Note that sessions are not there any more."""
        for key in keys:
            held = self._held.pop(key, None)
            if held is not None:
                self.bytes -= held.row_bytes + held.frame_bytes

    def expire(self, now_ms: int) -> None:
        """Forget what has expired; those that were written first go first."""
        while self._held:
            key, held = next(iter(self._held.items()))
            if now_ms < held.expires_ms:
                return
            self.forget([key])

    def clear(self) -> None:
        """Forget everything."""
        self._held.clear()
        self.bytes = 0
