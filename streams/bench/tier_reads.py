"""Read states that lie hot, warm and cold, alone and while turns are written."""

import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from turnstate.agents.tiering.budget import RunBudget
from turnstate.replay.bench.figures import (
    Progress,
    Report,
    Size,
    digest_of,
    figure,
    rounded,
    tell,
)
from turnstate.schemas.dialogue.head import digest
from turnstate.schemas.ids import SessionName
from turnstate.storage.cold.sessions import ColdSessions
from turnstate.streams.bench.flat import TENANT, Spoken, filled
from turnstate.streams.documents import to_json
from turnstate.streams.embedded.owner import OwnedStore
from turnstate.streams.reading import StoreReader
from turnstate.streams.settings import Settings
from turnstate.streams.tiers.opening import OpenedTiers

LENGTHS: Final = {"small": (10, 100), "large": (10, 10_000)}
READS: Final = {"small": 20, "large": 1_000}

WRITING_S: Final = {"small": 0.1, "large": 3.0}
"""Reads go on for so long at least while others write: one write that waits for a
flush is no picture of writing."""

WRITES_A_SECOND: Final = 5_000
_WRITES_AT_ONCE: Final = 50
_WRITERS_SESSIONS: Final = 500

_MONTH_MS: Final = 30 * 86_400_000

Times = dict[int, list[float]]
"""Length of the session → milliseconds of each read."""


class Read(NamedTuple):
    """Reads of one tier.

    Attributes:
        alone: While nothing else happens.
        writing: While other sessions are written.
        wrote_a_second: What the writer managed meanwhile.
    """

    alone: Times
    writing: Times
    wrote_a_second: float


def tier_reads(size: Size, progress: Progress) -> Report:
    """Measure state reads from each tier of an embedded store.

    Hot = the head is in memory. Warm = it is not, and RocksDB's block cache is
    warm. Cold = the session lies in a pack in a folder, nothing of it is
    cached, and reading does not bring it back.
    """
    with TemporaryDirectory(prefix="turnstate-bench-") as folder:
        return measured_reads(Settings(data=Path(folder)), size, progress)


def measured_reads(settings: Settings, size: Size, progress: Progress) -> Report:
    """Measure a store that settings describe, its cold tier wherever they say."""
    lengths = LENGTHS[size]
    found: dict[str, Read] = {}
    with OwnedStore(settings, serving=False) as store:
        spoken = Spoken()
        for length in lengths:
            filled(store, spoken, str(length), length)
        store.seal()
        found["hot"] = _reads(store, size, progress)
        before = _digests(store, lengths)
    with OwnedStore(replace(settings, hot_bytes=1), serving=False) as store:
        found["warm"] = _reads(store, size, progress)
        opened = OpenedTiers(settings, store, store.clock)
        opened.job.run(RunBudget(), at_ms=store.clock.now_ms() + _MONTH_MS)
        store.warm.below = ColdSessions(store.tiering.packs, cache_bytes=0)
        states = [store.state(TENANT, str(length)) for length in lengths]
        assert {state["tier"] for state in states} == {"cold"}
        found["cold"] = _reads(store, size, progress)
        after = _digests(store, lengths)
    assert after == before, "a tier gave another state"
    longest = str(lengths[-1])
    return figure(
        found["cold"].alone[lengths[-1]], f"ms a cold read of {longest} turns"
    ) | {
        "p50_p99_ms": {
            tier: {"alone": _middles(each.alone), "writing": _middles(each.writing)}
            for tier, each in found.items()
        },
        "wrote_a_second": {
            tier: rounded(each.wrote_a_second) for tier, each in found.items()
        },
        "digest": before,
    }


def _reads(store: OwnedStore, size: Size, progress: Progress) -> Read:
    lengths, rounds = LENGTHS[size], READS[size]
    # A reader that nobody is told of: what it reads stays where it is.
    reader = StoreReader(store.warm, store.engine, store.graph)
    alone = _timed(reader, lengths, rounds, progress)
    with _writing(store) as wrote:
        start = time.perf_counter()
        writing = _timed(reader, lengths, rounds, progress, WRITING_S[size])
        rate = wrote() / (time.perf_counter() - start)
    return Read(alone, writing, rate)


def _timed(
    reader: StoreReader,
    lengths: Sequence[int],
    rounds: int,
    progress: Progress,
    at_least_s: float = 0.0,
) -> Times:
    times: Times = {length: [] for length in lengths}
    end = time.perf_counter() + at_least_s
    for number in count():
        if number >= rounds and time.perf_counter() >= end:
            break
        for length in lengths:
            start = time.perf_counter()
            to_json(reader.state(TENANT, str(length)))
            times[length].append(1e3 * (time.perf_counter() - start))
        tell(progress, number + 1, rounds)
    return times


@contextmanager
def _writing(store: OwnedStore) -> Generator[Callable[[], int]]:
    """Publish turns of other sessions at a steady rate; give what counts them."""
    begun, done = threading.Event(), threading.Event()
    wrote = 0

    def write() -> None:
        nonlocal wrote
        spoken = Spoken()
        start = time.perf_counter()
        for number in count():
            if done.is_set():
                return
            at = number * _WRITES_AT_ONCE
            session = f"written-{number % _WRITERS_SESSIONS}"
            store.publish(list(spoken.turns(session, at, _WRITES_AT_ONCE)))
            wrote += _WRITES_AT_ONCE
            begun.set()
            due = start + wrote / WRITES_A_SECOND
            time.sleep(max(due - time.perf_counter(), 0.0))

    thread = threading.Thread(target=write, name="bench-writer")
    thread.start()
    begun.wait()
    before = wrote
    try:
        yield lambda: wrote - before
    finally:
        done.set()
        thread.join()


def _middles(times: Times) -> dict[str, list[float]]:
    return {
        str(length): [rounded(_quantile(each, 0.5)), rounded(_quantile(each, 0.99))]
        for length, each in times.items()
    }


def _quantile(values: Sequence[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(part * len(ordered)), len(ordered) - 1)]


def _digests(store: OwnedStore, lengths: Sequence[int]) -> str:
    keys = [SessionName(TENANT, str(length)).key() for length in lengths]
    heads = [(key, store.engine.head(key)) for key in keys]
    return digest_of((key, digest(stored.head)) for key, stored in heads if stored)
