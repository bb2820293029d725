"""The hot tier in memory: heads and the last frames, within a byte budget."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from turnstate.schemas.errors import FencedError
from turnstate.storage.access import (
    CORRELATED_MS,
    NO_ACCESSES,
    Accesses,
    AccessHistory,
    K,
)
from turnstate.storage.frames.header import decode_header
from turnstate.storage.hot.replacement import FOREVER_MS, LruK, Resident
from turnstate.storage.stored_head import StoredHead
from turnstate.storage.tier import SessionChange

OBJECT_FACTOR: Final = 6
"""A decoded head takes about six times the bytes of its row (docs/bench.md)."""

PINNED_SHARE: Final = 0.5
"""Part of the budget up to which sessions may be pinned; the rest is for what
they grow by and for everyone else."""

_REMEMBERED_A_BYTE: Final = 4096
"""One session that was let go is remembered for so many bytes of budget: about
300 bytes each, so a fourteenth of the budget at most, beside it."""

_NOTES_MAX: Final = 4096
"""Uses by readers that wait to be noted; more than that are no news."""


class _Held(Resident):
    __slots__ = ("expires_ms", "frames", "leased_until_ms", "pinned_until_ms", "stored")

    def __init__(self, key: bytes, stored: StoredHead) -> None:
        super().__init__(key, 0)
        self.stored = stored
        self.frames: tuple[bytes, ...] = ()
        self.expires_ms = FOREVER_MS
        self.pinned_until_ms = 0
        self.leased_until_ms = 0


class MemoryTier:
    """Keep the sessions used most; forget the others, which warm still has.

    Never the only copy: what does not fit is dropped (Redis on flash does the
    same). Who goes is told by LRU-K (`LruK`), so a walk over many sessions
    washes little out; what was let go is remembered for a while, so that a
    session that comes back goes on where it was.

    Not for use from several threads at once, but for `peek` and `note_use`.

    Args:
        budget_bytes: About how much memory it may take.
        frames_kept: How many frames of a session it keeps for readers and
            subscribers.
        clock: Tells epoch milliseconds. Without one, time is the number of
            times that heads were looked up: the order of use is right, and
            two uses in one batch are one.
        ttl_ms: How long after it was written last a session is served; None =
            for ever. Looked at when it is read, so nothing is served late.
        k: How many uses are remembered of each.
        correlated_ms: Uses closer together than this are one; without a clock
            those of one batch are.
    """

    name = "hot"
    capabilities: frozenset[str] = frozenset()

    def __init__(
        self,
        budget_bytes: int,
        frames_kept: int = 8,
        *,
        clock: Callable[[], int] | None = None,
        ttl_ms: int | None = None,
        k: int = K,
        correlated_ms: int = CORRELATED_MS,
    ) -> None:
        assert ttl_ms is None or clock is not None, "a TTL needs a clock"
        self.budget_bytes = budget_bytes
        self.frames_kept = frames_kept
        self.ttl_ms = ttl_ms
        self._clock = clock
        self._looks = 0
        self._held: dict[bytes, _Held] = {}
        gap_ms = correlated_ms if clock is not None else 0
        self._order = LruK(k=k, correlated_ms=gap_ms)
        self._remembered = AccessHistory(
            budget_bytes // _REMEMBERED_A_BYTE, k=k, correlated_ms=gap_ms
        )
        self._pinned: dict[bytes, _Held] = {}
        self._notes: deque[bytes] = deque(maxlen=_NOTES_MAX)

    def __len__(self) -> int:
        """Return how many are held; some may have expired since."""
        return len(self._held)

    @property
    def bytes_held(self) -> int:
        """Return about how many bytes it takes."""
        return self._order.bytes

    # -- reading -----------------------------------------------------------

    def heads(
        self, keys: Sequence[bytes], *, counts: bool = True
    ) -> list[StoredHead | None]:
        """Return what is held; a look counts as use, unless it is a scan's."""
        clock = self._clock
        if clock is None:
            now_ms = self._looks = self._looks + 1
        else:
            now_ms = clock()
        if self._notes:
            self._take_notes(now_ms)
        found: list[StoredHead | None] = []
        touch = self._order.touch
        for key in keys:
            held = self._held.get(key)
            if held is None:
                found.append(None)
            elif held.expires_ms <= now_ms:
                self._let_go(held)
                found.append(None)
            else:
                if counts:
                    touch(held, now_ms)
                found.append(held.stored)
        return found

    def peek(self, key: bytes) -> StoredHead | None:
        """Return a held head without counting a use; safe from any thread."""
        held = self._served(key)
        return held.stored if held else None

    def note_use(self, key: bytes) -> None:
        """Say that a reader used a session; counted at the next look-up.

        Safe from any thread. Scans and replays do not call it.
        """
        self._notes.append(key)

    def frames(
        self, key: bytes, incarnation: int, after_version: int
    ) -> Iterator[bytes]:
        """Yield the frames still held that lead above a version."""
        held = self._served(key)
        if held is None or held.stored.head.incarnation != incarnation:
            return
        for frame in held.frames:
            if decode_header(frame).to_version > after_version:
                yield frame

    def keys(self, prefix: bytes = b"", after: bytes = b"") -> Iterator[bytes]:
        """Yield the keys held, in byte order."""
        for key in sorted(self._held):
            if key > after and key.startswith(prefix) and self._served(key):
                yield key

    def accesses(self, key: bytes) -> Accesses:
        """Return when a session was used, held or let go; times need a clock."""
        held = self._held.get(key)
        return held.accesses() if held else self._remembered.get(key)

    # -- writing -----------------------------------------------------------

    def commit(self, changes: Sequence[SessionChange]) -> None:
        """Take the changes; a session that is not held is taken up with its head.

        Raises:
            FencedError: a held head is not the one a change was decided from.
        """
        now_ms = self._now_ms()
        for change in changes:
            held = self._held.get(change.key)
            if held is None:
                continue
            if held.expires_ms <= now_ms:
                self._let_go(held)
            elif _stands(held.stored) != _stands(change.before):
                raise FencedError(
                    "the hot tier holds another version than this was decided from",
                    hint="another owner writes this session: stop",
                )
        for change in changes:
            self._take(change, now_ms)
        if self._order.bytes > self.budget_bytes:
            self._shrink(now_ms)

    def promote(self, key: bytes, stored: StoredHead, row_bytes: int) -> bool:
        """Take up a head that was read below; False where one is held already.

        The caller owns the session, so that no newer head can be under way.

        Args:
            key: The session key.
            stored: Its newest head.
            row_bytes: The length of its row.
        """
        now_ms = self._now_ms()
        held = self._held.get(key)
        if held is not None:
            if held.expires_ms > now_ms:
                self._order.touch(held, now_ms)
                return False
            self._let_go(held)
        self._add(_Held(key, stored), row_bytes, now_ms)
        if self._order.bytes > self.budget_bytes:
            self._shrink(now_ms)
        return True

    def replace(self, key: bytes, stored: StoredHead) -> None:
        """Put the same state with other bookkeeping in the place of a held head."""
        held = self._held.get(key)
        if held is not None:
            held.stored = stored

    def drop(self, key: bytes) -> None:
        """Forget a session, pinned or leased too, and that it was ever used."""
        held = self._held.get(key)
        if held is not None:
            self._let_go(held)
        self._remembered.take(key)

    def expire(self) -> int:
        """Let go of all that has expired; return how many those were."""
        now_ms = self._now_ms()
        late = [held for held in self._held.values() if held.expires_ms <= now_ms]
        for held in late:
            self._let_go(held)
        return len(late)

    # -- pins and leases -----------------------------------------------------

    def pin(self, key: bytes, until_ms: int = FOREVER_MS) -> bool:
        """Keep a held session whatever else comes, as one with a system prompt.

        A pin does not outlast a TTL, nor `drop`.

        Returns:
            False where it is not held, or pins would take more than
            `PINNED_SHARE` of the budget.
        """
        held = self._served(key)
        if held is None:
            return False
        now_ms = self._now_ms()
        pinned = held.size
        for other in list(self._pinned.values()):
            if other.pinned_until_ms <= now_ms:
                del self._pinned[other.key]
            elif other is not held:
                pinned += other.size
        if pinned > self.budget_bytes * PINNED_SHARE:
            return False
        held.pinned_until_ms = until_ms
        self._pinned[key] = held
        self._order.keep(held, max(until_ms, held.leased_until_ms))
        return True

    def unpin(self, key: bytes) -> None:
        """Let a session go like any other again."""
        held = self._held.get(key)
        if held is None or not held.pinned_until_ms:
            return
        held.pinned_until_ms = 0
        self._pinned.pop(key, None)
        if held.leased_until_ms > self._now_ms():
            self._order.keep(held, held.leased_until_ms)
        else:
            self._order.free(held)

    def lease(self, key: bytes, until_ms: int) -> bool:
        """Keep a held session while somebody reads it; leases end by themselves.

        Returns:
            False where it is not held.
        """
        assert self._clock is not None, "a lease needs a clock"
        held = self._served(key)
        if held is None:
            return False
        held.leased_until_ms = max(held.leased_until_ms, until_ms)
        until_ms = max(held.leased_until_ms, held.pinned_until_ms)
        if until_ms > self._now_ms():
            self._order.keep(held, until_ms)
        return True

    # -- inside ----------------------------------------------------------------

    def _now_ms(self) -> int:
        return self._looks if self._clock is None else self._clock()

    def _served(self, key: bytes) -> _Held | None:
        held = self._held.get(key)
        if held is None or self.ttl_ms is None:
            return held
        return held if held.expires_ms > self._now_ms() else None

    def _take_notes(self, now_ms: int) -> None:
        while self._notes:
            key = self._notes.popleft()
            held = self._held.get(key)
            if held is None:
                self._remembered.touch(key, now_ms)
            else:
                self._order.touch(held, now_ms)

    def _take(self, change: SessionChange, now_ms: int) -> None:
        if change.erased:
            self.drop(change.key)
        held = self._held.get(change.key)
        size = len(change.row)
        if held is None:
            held = _Held(change.key, change.after)
            held.frames = self._kept_frames((), change.frame)
            self._add(held, size, now_ms)
            return
        held.stored = change.after
        if self.frames_kept:
            held.frames = self._kept_frames(held.frames, change.frame)
        if self.ttl_ms is not None:
            held.expires_ms = now_ms + self.ttl_ms
        self._order.resize(held, _size_of(held, size))
        self._order.touch(held, now_ms)

    def _add(self, held: _Held, row_bytes: int, now_ms: int) -> None:
        if self.ttl_ms is not None:
            held.expires_ms = now_ms + self.ttl_ms
        held.size = _size_of(held, row_bytes)
        self._held[held.key] = held
        known = self._remembered.take(held.key) if self._remembered else NO_ACCESSES
        self._order.add(held, now_ms, known)

    def _kept_frames(
        self, frames: tuple[bytes, ...], frame: bytes | None
    ) -> tuple[bytes, ...]:
        if frame is None or not self.frames_kept:
            return frames
        return (*frames, frame)[-self.frames_kept :]

    def _shrink(self, now_ms: int) -> None:
        order, budget = self._order, self.budget_bytes
        while order.bytes > budget:
            victim = order.victim(budget, now_ms)
            if victim is None:
                return
            self._let_go(self._held[victim.key])

    def _let_go(self, held: _Held) -> None:
        del self._held[held.key]
        if held.pinned_until_ms:
            self._pinned.pop(held.key, None)
        self._order.remove(held)
        self._remembered.put(held.key, held.accesses())


def _size_of(held: _Held, row_bytes: int) -> int:
    size = len(held.key) + row_bytes * OBJECT_FACTOR
    return size + sum(map(len, held.frames)) if held.frames else size


def _stands(stored: StoredHead) -> tuple[int, int]:
    return (stored.head.incarnation, stored.head.version)
