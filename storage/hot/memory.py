"""The hot tier in memory: heads and the last frames, within a byte budget."""

from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence

from turnstate.schemas.errors import FencedError
from turnstate.storage.frames.header import decode_header
from turnstate.storage.stored_head import StoredHead
from turnstate.storage.tier import SessionChange

OBJECT_FACTOR = 6
"""A decoded head takes about six times the bytes of its row (docs/bench.md)."""


class _Held:
    __slots__ = ("bytes", "frames", "stored")

    def __init__(self, stored: StoredHead) -> None:
        self.stored = stored
        self.frames: deque[bytes] = deque()
        self.bytes = 0


class MemoryTier:
    """Keep the sessions used last; forget the others, which warm still has.

    Never the only copy: what does not fit is dropped (Redis on flash does the
    same). Not for use from several threads at once.

    Args:
        budget_bytes: About how much memory it may take.
        frames_kept: How many frames of a session it keeps for readers and
            subscribers.
    """

    name = "hot"
    capabilities: frozenset[str] = frozenset()

    def __init__(self, budget_bytes: int, frames_kept: int = 8) -> None:
        self.budget_bytes = budget_bytes
        self.frames_kept = frames_kept
        self.bytes_held = 0
        self._held: OrderedDict[bytes, _Held] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def heads(self, keys: Sequence[bytes]) -> list[StoredHead | None]:
        """Return what is held; a look counts as use."""
        found: list[StoredHead | None] = []
        for key in keys:
            held = self._held.get(key)
            if held is not None:
                self._held.move_to_end(key)
            found.append(held.stored if held else None)
        return found

    def peek(self, key: bytes) -> StoredHead | None:
        """Return a held head without counting a use; safe from any thread."""
        held = self._held.get(key)
        return held.stored if held else None

    def replace(self, key: bytes, stored: StoredHead) -> None:
        """Put the same state with other bookkeeping in the place of a held head."""
        held = self._held.get(key)
        if held is not None:
            held.stored = stored

    def frames(
        self, key: bytes, incarnation: int, after_version: int
    ) -> Iterator[bytes]:
        """Yield the frames still held that lead above a version."""
        held = self._held.get(key)
        if held is None or held.stored.head.incarnation != incarnation:
            return
        for frame in tuple(held.frames):
            if decode_header(frame).to_version > after_version:
                yield frame

    def commit(self, changes: Sequence[SessionChange]) -> None:
        """Take the changes; a session that is not held is taken up with its head.

        Raises:
            FencedError: a held head is not the one a change was decided from.
        """
        for change in changes:
            held = self._held.get(change.key)
            if held is not None and _stands(held.stored) != _stands(change.before):
                raise FencedError(
                    "the hot tier holds another version than this was decided from",
                    hint="another owner writes this session: stop",
                )
        for change in changes:
            self._take(change)
        self._shrink()

    def _take(self, change: SessionChange) -> None:
        held = self._held.get(change.key)
        if held is None or change.erased:
            if held is not None:
                self.bytes_held -= held.bytes
            held = self._held[change.key] = _Held(change.after)
        held.stored = change.after
        if change.frame is not None:
            held.frames.append(change.frame)
            while len(held.frames) > self.frames_kept:
                held.frames.popleft()
        size = (
            len(change.key)
            + len(change.row) * OBJECT_FACTOR
            + sum(map(len, held.frames))
        )
        self.bytes_held += size - held.bytes
        held.bytes = size
        self._held.move_to_end(change.key)

    def _shrink(self) -> None:
        while self.bytes_held > self.budget_bytes and self._held:
            _, held = self._held.popitem(last=False)
            self.bytes_held -= held.bytes

    def drop(self, key: bytes) -> None:
        """Forget a session."""
        held = self._held.pop(key, None)
        if held is not None:
            self.bytes_held -= held.bytes

    def keys(self, prefix: bytes = b"", after: bytes = b"") -> Iterator[bytes]:
        """Yield the keys held, in byte order."""
        for key in sorted(self._held):
            if key > after and key.startswith(prefix):
                yield key


def _stands(stored: StoredHead) -> tuple[int, int]:
    return (stored.head.incarnation, stored.head.version)
