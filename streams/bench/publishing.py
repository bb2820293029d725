"""Publish turns into a store of a bench as a busy door would, timed, then checked."""

import os
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from turnstate.agents.session.step import Answer
from turnstate.replay.bench.figures import Progress, digest_of, tell
from turnstate.schemas.admission import Verdict
from turnstate.schemas.dialogue.fold_set import fold_set
from turnstate.schemas.dialogue.head import digest
from turnstate.schemas.dialogue.state import DialogueState
from turnstate.storage.session_reader import operations
from turnstate.streams.embedded import upkeep
from turnstate.streams.embedded.store import EmbeddedStore
from turnstate.streams.settings import Settings

BATCH_TURNS: Final = 2048
"""Turns handed over at once, as `turnstate publish` does."""

IN_FLIGHT: Final = 16
"""Batches that wait for their answers."""

FOLD_SET_EVERY: Final = 97
"""One session in so many is folded by the definition too, which is slow."""

FOLD_SET_TURNS_MAX: Final = 120
"""The definition takes the square of a session's turns, or more."""


class Published(NamedTuple):
    """How a publish went.

    Attributes:
        turns: How many were published.
        seconds: Until the last one was durable and answered.
        cpu_seconds: Of the whole process meanwhile.
        syncs: fsyncs meanwhile.
    """

    turns: int
    seconds: float
    cpu_seconds: float
    syncs: int

    @property
    def turns_per_s(self) -> float:
        """Return the rate that counts: by the wall clock."""
        return self.turns / self.seconds

    @property
    def cpu_us(self) -> float:
        """Return the processor's microseconds a turn, all threads."""
        return 1e6 * self.cpu_seconds / self.turns


@contextmanager
def bench_store(**settings: object) -> Generator[EmbeddedStore]:
    """Open a store in a folder of its own, which goes afterwards.

    The folder is made where `TMPDIR` says; on a memory file system an fsync
    costs nothing, so the reports say what it cost.
    """
    with TemporaryDirectory(prefix="turnstate-bench-") as folder:
        chosen = Settings.from_env({}, data=Path(folder), **settings)
        with EmbeddedStore(chosen) as store:
            yield store


def published(
    store: EmbeddedStore,
    turns: Iterable[bytes],
    *,
    progress: Progress = None,
    after_batch: Callable[[int], None] | None = None,
) -> Published:
    """Publish turns, several batches in flight; every one has to be accepted.

    Args:
        store: Where to.
        turns: JSON turns; what making them costs is measured with them.
        progress: Told the turns answered.
        after_batch: Told the same.
    """
    source = iter(turns)
    waiting: deque[Future[list[Answer]]] = deque()
    done = 0

    def settle() -> None:
        nonlocal done
        answers = waiting.popleft().result()
        for answer in answers:
            assert answer.verdict is Verdict.ACCEPTED, answer
        done += len(answers)
        tell(progress, done)
        if after_batch is not None:
            after_batch(done)

    syncs = store.warm.syncs
    start, cpu_start = time.perf_counter(), time.process_time()
    while batch := list(islice(source, BATCH_TURNS)):
        waiting.append(store.engine.submit(batch))
        if len(waiting) == IN_FLIGHT:
            settle()
    while waiting:
        settle()
    seconds = time.perf_counter() - start
    cpu_seconds = time.process_time() - cpu_start
    return Published(done, seconds, cpu_seconds, store.warm.syncs - syncs)


class Checked(NamedTuple):
    """What a figure must pass to count.

    Attributes:
        digest: Of all sessions' digests.
        sessions: How many were compared with `DialogueState`.
        by_definition: How many of them also with `fold_set`.
    """

    digest: str
    sessions: int
    by_definition: int


def checked(store: EmbeddedStore, progress: Progress = None) -> Checked:
    """Verify a store, and compare every session with folds of another make.

    Raises:
        AssertionError: a figure of this store does not count.
    """
    found = upkeep.verify(store, progress=lambda done: tell(progress, done))
    assert found["bad"] == [], found["bad"][:3]
    digests: list[tuple[bytes, bytes]] = []
    by_definition = short = 0
    for number, (key, stored) in enumerate(store.stored_heads()):
        ops = [op for _, op in operations(store.warm, key, stored)]
        state = DialogueState.empty(store.graph, stored.head.incarnation).apply(ops)
        mine = digest(stored.head)
        assert state.digest() == mine, f"{key!r} folds to another state"
        if len(ops) <= FOLD_SET_TURNS_MAX:
            if short % FOLD_SET_EVERY == 0:
                assert state.folded() == fold_set(ops, store.graph), key
                by_definition += 1
            short += 1
        digests.append((key, mine))
        tell(progress, number + 1, found["sessions"])
    return Checked(digest_of(digests), len(digests), by_definition)


def fsync_ms(folder: Path, runs: int = 20) -> float:
    """Return what an fsync of 4 KB costs in a folder, the median."""
    times: list[float] = []
    with (folder / "fsync-probe").open("wb", buffering=0) as file:
        for _ in range(runs):
            file.write(bytes(4096))
            start = time.perf_counter()
            os.fdatasync(file.fileno())
            times.append(1e3 * (time.perf_counter() - start))
    return median(times)
