"""Who is let go when a cache is full: LRU-K, with a part for those seen seldom."""

from collections import OrderedDict
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final

from turnstate.storage.access import BURST_FACTOR, Accesses, K, shifted, touched

FOREVER_MS: Final = 1 << 62
"""Later than any time."""

YOUNG_SHARE: Final = 0.125
"""Part of a budget that those with fewer than K uses always have.

Plain LRU-K has no such part: once what has K uses fills the memory, a
conversation that just began is let go after each turn, and what was read three
times last week never leaves. A scan washes out this part and no more.
"""

_YOUNG: Final = 0
_MATURE: Final = 1
_KEPT: Final = 2
_GONE: Final = 3

_HEAP_SLACK: Final = 64


class Resident:
    """One that is held: what the order knows of it; a cache adds its content."""

    __slots__ = ("key", "last_ms", "number", "place", "size", "times_ms")

    def __init__(self, key: bytes, size: int) -> None:
        self.key = key
        self.size = size
        self.times_ms: tuple[int, ...] = ()
        self.last_ms = 0
        self.number = 0
        self.place = _GONE

    def accesses(self) -> Accesses:
        """Return when it was used."""
        return Accesses(self.times_ms, self.last_ms)


class LruK:
    """Keep residents in the order in which they are let go.

    The victim is the one with the greatest backward K-distance: those with
    fewer than K uses first, the least recently used of them before the others
    (O'Neil, O'Neil and Weikum, The LRU-K Page Replacement Algorithm, 1993);
    but the young have their `YOUNG_SHARE`, and where they do not fill it the
    oldest of the others goes.

    A use costs O(1): residents with K uses lie in a heap under what held when
    they were put there. Distances only shrink by use, so an entry of the heap
    is never better than the truth, and is put right when it comes to the top.

    Args:
        k: How many uses make one that was seen often.
        correlated_ms: Uses closer together than this are one.
        young_share: See `YOUNG_SHARE`.
    """

    def __init__(
        self, *, k: int = K, correlated_ms: int = 0, young_share: float = YOUNG_SHARE
    ) -> None:
        self.k = k
        self.correlated_ms = correlated_ms
        self._burst_ms = BURST_FACTOR * correlated_ms
        self.young_share = young_share
        self.bytes = 0
        self._young: OrderedDict[bytes, Resident] = OrderedDict()
        self._young_bytes = 0
        self._mature = 0
        self._heap: list[tuple[int, int, int, Resident]] = []
        self._kept: list[tuple[int, int, Resident]] = []
        self._kept_count = 0
        self._number = 0

    def add(self, resident: Resident, now_ms: int, known: Accesses) -> None:
        """Take one up, with what is remembered of it; being taken up is a use."""
        if known.times_ms:
            resident.times_ms, resident.last_ms = touched(
                known, now_ms, correlated_ms=self.correlated_ms, k=self.k
            )
        else:
            resident.times_ms, resident.last_ms = (now_ms,), now_ms
        self.bytes += resident.size
        self._enter(resident)

    def touch(self, resident: Resident, now_ms: int) -> None:
        """Note a use. On the way of every turn, hence written out."""
        last_ms = resident.last_ms
        if now_ms > last_ms + self.correlated_ms or (
            now_ms > resident.times_ms[0] + self._burst_ms and now_ms > last_ms
        ):
            resident.times_ms = shifted(resident.times_ms, last_ms, now_ms, self.k)
            resident.last_ms = now_ms
            if resident.place == _YOUNG and len(resident.times_ms) >= self.k:
                self._leave(resident)
                self._enter(resident)
                return
        elif now_ms > last_ms:
            resident.last_ms = now_ms
        if resident.place == _YOUNG:
            self._young.move_to_end(resident.key)

    def resize(self, resident: Resident, size: int) -> None:
        """Note that one takes another number of bytes."""
        grown = size - resident.size
        resident.size = size
        self.bytes += grown
        if resident.place == _YOUNG:
            self._young_bytes += grown

    def remove(self, resident: Resident) -> None:
        """Let one go, whatever it is."""
        self.bytes -= resident.size
        if resident.place == _YOUNG:  # nearly always: written out
            del self._young[resident.key]
            self._young_bytes -= resident.size
        else:
            self._leave(resident)
        resident.place = _GONE

    def keep(self, resident: Resident, until_ms: int) -> None:
        """Take one out of the order until a time; an earlier word is replaced."""
        self._leave(resident)
        self._number += 1
        resident.number = self._number
        resident.place = _KEPT
        self._kept_count += 1
        heappush(self._kept, (until_ms, resident.number, resident))

    def free(self, resident: Resident) -> None:
        """Put one that was kept back into the order."""
        if resident.place == _KEPT:
            self._leave(resident)
            self._enter(resident)

    def victim(self, budget_bytes: int, now_ms: int) -> Resident | None:
        """Return who goes next, None where all that are left are kept.

        One whose time has come is put back behind the others, as just used.
        """
        kept = self._kept
        while kept and kept[0][0] <= now_ms:
            _, number, resident = heappop(kept)
            if resident.place == _KEPT and resident.number == number:
                self._kept_count -= 1
                self._enter(resident)
        young = self._young
        if young and (
            not self._mature or self._young_bytes > budget_bytes * self.young_share
        ):
            return next(iter(young.values()))
        return self._farthest()

    def _farthest(self) -> Resident | None:
        heap = self._heap
        while heap:
            time_ms, last_ms, number, resident = heap[0]
            if resident.place != _MATURE or resident.number != number:
                heappop(heap)
            elif (time_ms, last_ms) != (resident.times_ms[-1], resident.last_ms):
                now = (resident.times_ms[-1], resident.last_ms, number, resident)
                heapreplace(heap, now)
            else:
                return resident
        return None

    def _enter(self, resident: Resident) -> None:
        if len(resident.times_ms) < self.k:
            resident.place = _YOUNG
            self._young[resident.key] = resident
            self._young_bytes += resident.size
            return
        self._number += 1
        resident.number = self._number
        resident.place = _MATURE
        self._mature += 1
        heappush(
            self._heap,
            (resident.times_ms[-1], resident.last_ms, resident.number, resident),
        )

    def _leave(self, resident: Resident) -> None:
        """Take one out of where it lies; its entry in a heap is dead from now on."""
        if resident.place == _YOUNG:
            del self._young[resident.key]
            self._young_bytes -= resident.size
        elif resident.place == _MATURE:
            self._mature -= 1
            resident.place = _GONE
            if len(self._heap) > 2 * self._mature + _HEAP_SLACK:
                self._heap = [
                    entry
                    for entry in self._heap
                    if entry[3].place == _MATURE and entry[3].number == entry[2]
                ]
                heapify(self._heap)
        elif resident.place == _KEPT:
            self._kept_count -= 1
            resident.place = _GONE
            if len(self._kept) > 2 * self._kept_count + _HEAP_SLACK:
                self._kept = [
                    entry
                    for entry in self._kept
                    if entry[2].place == _KEPT and entry[2].number == entry[1]
                ]
                heapify(self._kept)
