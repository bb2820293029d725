"""How often the memory tier has a session that is asked for, against plain LRU."""

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator
from itertools import accumulate
from random import Random
from typing import Final, NamedTuple, Protocol

from turnstate.replay.bench.figures import (
    Progress,
    Report,
    Size,
    digest_of,
    figure,
    rounded,
    tell,
)
from turnstate.storage.hot.memory import OBJECT_FACTOR, MemoryTier
from turnstate.storage.stored_head import NO_SESSION

SESSIONS: Final = {"small": 2_000, "large": 20_000}
USES: Final = {"small": 20_000, "large": 400_000}
SEEDS: Final = {"small": (1,), "large": (1, 2, 3)}
BUDGETS: Final = (0.01, 0.05, 0.10, 0.25)
"""Room for these parts of all sessions."""

SKEW: Final = 0.9
"""Exponent of the Zipf load: the rank-th session is used in proportion to
rank^-SKEW. Measured popularity of keys in caches lies around it."""

ROW_BYTES: Final = 519
"""Of a head of the corpora (docs/bench.md, head view)."""

SCAN_EVERY: Final = 20
"""With scans, each so-many-th part of the uses is followed by one."""

SCAN_SHARE: Final = 0.25
"""Part of all sessions that a scan walks over, none of them in the load."""

USE_MS: Final = 20
"""Between two uses: fifty a second."""


class _Cache(Protocol):
    def has(self, key: bytes) -> bool:
        """Use a session; say whether it was there, and have it from now on."""
        ...


class PlainLru:
    """Keep the sessions used last, by the same count of bytes.

    Args:
        budget_bytes: As of the memory tier.
    """

    def __init__(self, budget_bytes: int) -> None:
        self._budget = budget_bytes
        self._held: OrderedDict[bytes, int] = OrderedDict()
        self._bytes = 0

    def has(self, key: bytes) -> bool:
        """Use a session; say whether it was there."""
        if key in self._held:
            self._held.move_to_end(key)
            return True
        self._held[key] = size_of(key)
        self._bytes += size_of(key)
        while self._bytes > self._budget:
            self._bytes -= self._held.popitem(last=False)[1]
        return False


class TierLruK:
    """Ask the real memory tier; a miss is read below and taken up.

    Args:
        budget_bytes: Of the tier.
    """

    def __init__(self, budget_bytes: int) -> None:
        self.now_ms = 0
        self.tier = MemoryTier(budget_bytes, frames_kept=0, clock=lambda: self.now_ms)

    def has(self, key: bytes) -> bool:
        """Use a session; say whether it was there."""
        self.now_ms += USE_MS
        if self.tier.heads([key])[0] is not None:
            return True
        self.tier.promote(key, NO_SESSION, ROW_BYTES)
        return False


class Load(NamedTuple):
    """A load of reads.

    Attributes:
        name: What it is called in the report.
        scans: Whether walks over sessions that nobody asked for come between;
            each counts as a use, the worst that a careless reader can do.
        drifts: Whether which sessions are popular changes over time.
    """

    name: str
    scans: bool
    drifts: bool


LOADS: Final = (
    Load("zipf", scans=False, drifts=False),
    Load("zipf_scans", scans=True, drifts=False),
    Load("zipf_drift", scans=False, drifts=True),
)


def size_of(key: bytes) -> int:
    """Return what a session takes of the budget."""
    return len(key) + ROW_BYTES * OBJECT_FACTOR


def uses(
    load: Load, sessions: int, count: int, seed: int
) -> Iterator[tuple[bytes, bool]]:
    """Yield (key, whether it counts) in the order of use; the same for a seed.

    What a scan touches is not counted: nobody waits for it.
    """
    random = Random(seed)
    names = list(range(sessions))
    random.shuffle(names)
    weights = list(accumulate((rank + 1) ** -SKEW for rank in range(sessions)))
    scan_at = max(1, count // SCAN_EVERY)
    walked = 0
    for at in range(count):
        if load.drifts and at % scan_at == 0:
            # A tenth of the popular ones change places with any others.
            for _ in range(sessions // 100):
                one, two = random.randrange(sessions // 10), random.randrange(sessions)
                names[one], names[two] = names[two], names[one]
        rank = bisect_left(weights, random.random() * weights[-1])
        yield b"\0\1t%d" % names[min(rank, sessions - 1)], True
        if load.scans and at % scan_at == scan_at - 1:
            for _ in range(int(sessions * SCAN_SHARE)):
                walked += 1
                yield b"\0\1u%d" % walked, False


def rate(cache: _Cache, load: Load, sessions: int, count: int, seed: int) -> float:
    """Return which part of the second half of a load's uses a cache had."""
    hits = asked = 0
    for number, (key, counts) in enumerate(uses(load, sessions, count, seed)):
        had = cache.has(key)
        if counts and number > count // 2:
            asked += 1
            hits += had
    return hits / asked


def hit_rate(size: Size, progress: Progress) -> Report:
    """Run every load at every budget over both, by the same uses."""
    sessions, count = SESSIONS[size], USES[size]
    rows: dict[str, dict[str, dict[str, float]]] = {}
    gains: list[float] = []
    steps = len(LOADS) * len(BUDGETS) * len(SEEDS[size])
    done = 0
    for load in LOADS:
        for share in BUDGETS:
            budget = int(sessions * share * size_of(b"\0\1t10000"))
            found: dict[str, list[float]] = {"lru": [], "lru_k": []}
            for seed in SEEDS[size]:
                plain = rate(PlainLru(budget), load, sessions, count, seed)
                ours = rate(TierLruK(budget), load, sessions, count, seed)
                found["lru"].append(plain)
                found["lru_k"].append(ours)
                gains.append(ours / plain)
                done += 1
                tell(progress, done, steps)
            rows.setdefault(load.name, {})[f"{share:.0%}"] = {
                name: rounded(sum(each) / len(each)) for name, each in found.items()
            }
    return figure(gains, "times the hit rate of plain LRU") | {
        "rows": rows,
        "sessions": sessions,
        "uses": count,
        "digest": digest_of(
            (f"{load} {share}".encode(), repr(row).encode())
            for load, each in rows.items()
            for share, row in each.items()
        ),
    }
