"""Whether a worker is well: each partition that has something to fold moves."""

import time
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from turnstate.streams.documents import Document

STILL_S: Final = 30.0
"""A partition with lag that has not moved for so long is stuck."""


class Reading(NamedTuple):
    """Where a partition is.

    Attributes:
        folded: Offset of the log that is folded last, None where none is.
        restored: Changelog records read so far, while it is restored.
        fresh: Whether it may be read.
    """

    folded: int | None
    restored: int
    fresh: bool


class _Seen(NamedTuple):
    reading: Reading
    moved_at: float


class WorkerProgress:
    """Remember when each partition last moved.

    Args:
        still_s: After so long without a move a partition with lag is stuck.
        now: A clock that never goes back.

    Example:
        >>> at = [0.0]
        >>> progress = WorkerProgress(30.0, lambda: at[0])
        >>> progress.note({0: Reading(4, 0, fresh=True)}, {0: 9})
        >>> progress.is_well
        True
        >>> at[0] = 31.0
        >>> progress.note({0: Reading(4, 0, fresh=True)}, {0: 9})
        >>> progress.is_well
        False
        >>> progress.document()["partitions"][0]["lag"]
        4
    """

    def __init__(
        self, still_s: float = STILL_S, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._still_s = still_s
        self._now = now
        self._seen: dict[int, _Seen] = {}
        self._ends: dict[int, int] = {}

    def note(self, readings: Mapping[int, Reading], ends: Mapping[int, int]) -> None:
        """Note where the partitions of this worker are, and where the log ends.

        Args:
            readings: By partition; those that went are forgotten.
            ends: Offset after the last record, where it is known.
        """
        now = self._now()
        seen: dict[int, _Seen] = {}
        for number, reading in readings.items():
            before = self._seen.get(number)
            # Where nothing was to be done, the time begins with the next record.
            if before and before.reading == reading and self._waits(number):
                seen[number] = before
            else:
                seen[number] = _Seen(reading, now)
        self._seen = seen
        self._ends = {number: ends[number] for number in seen if number in ends}

    @property
    def is_well(self) -> bool:
        """Say whether no partition is stuck."""
        return not any(map(self._is_stuck, self._seen))

    def _waits(self, number: int) -> bool:
        """Say whether there is something to fold, or to restore."""
        reading = self._seen[number].reading
        return bool(_lag(reading, self._ends.get(number))) or not reading.fresh

    def _is_stuck(self, number: int) -> bool:
        still_s = self._now() - self._seen[number].moved_at
        return self._waits(number) and still_s > self._still_s

    def document(self) -> Document:
        """Return what `/health` answers."""
        now = self._now()
        rows = [
            {
                "partition": number,
                "folded": seen.reading.folded,
                "end": self._ends.get(number),
                "lag": _lag(seen.reading, self._ends.get(number)),
                "fresh": seen.reading.fresh,
                "still_s": round(now - seen.moved_at, 1),
                "stuck": self._is_stuck(number),
            }
            for number, seen in sorted(self._seen.items())
        ]
        return {"ok": self.is_well, "partitions": rows}


def _lag(reading: Reading, end: int | None) -> int | None:
    if end is None:
        return None
    folded = -1 if reading.folded is None else reading.folded
    return max(end - folded - 1, 0)
