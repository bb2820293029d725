"""Deal out seeds to soak tests until their counts or their time are used up."""

import os
import time
from collections.abc import Iterator
from typing import NamedTuple


class SoakSeeds(NamedTuple):
    """Yield seeds for one test, at least one.

    Attributes:
        first: The first seed; the others follow it one by one.
        seconds: The time that this test may take; None = as long as it needs.
    """

    first: int
    seconds: float | None

    def take(self, count: int) -> Iterator[int]:
        """Yield up to `count` seeds, and print each, so that a failure names its."""
        end = None if self.seconds is None else time.monotonic() + self.seconds
        for seed in range(self.first, self.first + count):
            if end is not None and seed > self.first and time.monotonic() > end:
                print(f"time is up before seed {seed}")
                return
            print(f"seed {seed}: again with make soak SOAK_SEED={seed}")
            yield seed

    def take_shares(self, count: int, share: int) -> Iterator[tuple[int, int]]:
        """Yield (seed, how many): all in one, or share by share while there is time."""
        if self.seconds is None:
            yield from ((seed, count) for seed in self.take(1))
        else:
            yield from ((seed, share) for seed in self.take(count // share))


def seeds_for(tests: int) -> SoakSeeds:
    """Return one test's seeds and its share of SOAK_SECONDS among all soak tests."""
    seconds = os.environ.get("SOAK_SECONDS")
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return SoakSeeds(
        first=int(os.environ.get("SOAK_SEED", "1")),
        seconds=float(seconds) * workers / max(tests, workers) if seconds else None,
    )
