"""Which fetched chunks are done, and so up to where an offset may be committed."""

from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

P = TypeVar("P", bound=Hashable)
"""What names a partition."""


class _Chunk:
    __slots__ = ("done", "last_offset")

    def __init__(self, last_offset: int) -> None:
        self.last_offset = last_offset
        self.done = False


class Ledger(Generic[P]):
    """Account for the chunks in flight of every partition.

    Faust acknowledges an event as soon as its agent lets go of it, also when
    it was skipped or the agent failed, and computes offsets from gaps: both
    let a commit pass what is not folded (F#606). Here a chunk counts once it
    was said to be done, and an offset never passes the oldest that is not.

    Example:
        >>> ledger: Ledger[str] = Ledger()
        >>> for last_offset in (9, 19, 29):
        ...     ledger.fetched("turns-0", last_offset)
        >>> ledger.done("turns-0", 19)
        >>> ledger.committable("turns-0") is None
        True
        >>> ledger.done("turns-0", 9)
        >>> ledger.committable("turns-0")
        20
    """

    def __init__(self) -> None:
        self._flying: dict[P, deque[_Chunk]] = {}
        self._reached: dict[P, int] = {}

    def fetched(self, partition: P, last_offset: int) -> None:
        """Note a chunk that was fetched; chunks of a partition come in order.

        Raises:
            ValueError: it does not lie behind the chunk before.
        """
        flying = self._flying.setdefault(partition, deque())
        if flying and last_offset <= flying[-1].last_offset:
            raise ValueError(
                f"chunk to {last_offset} after the one to {flying[-1].last_offset}"
            )
        flying.append(_Chunk(last_offset))

    def done(self, partition: P, last_offset: int) -> None:
        """Note that a chunk is folded and durable; unknown ones are not counted."""
        flying = self._flying.get(partition, ())
        for chunk in flying:
            if chunk.last_offset == last_offset:
                chunk.done = True
                break
        while flying and flying[0].done:
            self._reached[partition] = flying.popleft().last_offset + 1

    def committable(self, partition: P) -> int | None:
        """Return the offset to commit, None where nothing is done yet; O(1)."""
        return self._reached.get(partition)

    def partitions(self) -> list[P]:
        """Return the partitions with something to commit."""
        return list(self._reached)

    def in_flight(self, partition: P) -> int:
        """Return how many chunks of a partition are not done."""
        return len(self._flying.get(partition, ()))

    def forget(self, partition: P) -> None:
        """Drop a partition: it was taken away, or will be read from elsewhere."""
        self._flying.pop(partition, None)
        self._reached.pop(partition, None)
