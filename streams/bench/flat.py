"""Append to, and read, a session of 10, 1 000 and 10 000 turns: the same cost."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

import msgspec

from turnstate.replay.bench.corpora import dialogues
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
from turnstate.streams.bench.publishing import BATCH_TURNS, bench_store
from turnstate.streams.documents import to_json
from turnstate.streams.embedded import upkeep
from turnstate.streams.embedded.store import EmbeddedStore
from turnstate.streams.settings import Settings

TENANT: Final = "flat"
LENGTHS: Final = {"small": (10, 100, 300), "large": (10, 1_000, 10_000)}
APPENDS: Final = {"small": 10, "large": 400}
READS: Final = {"small": 30, "large": 2_000}
REOPENED: Final = {"small": 1, "large": 5}


class Spoken:
    """Turns of one dialogue again and again, so that only the length differs."""

    def __init__(self) -> None:
        said = dialogues(["multiwoz21"], small=True)[0].turns[:10]
        self._turns = [msgspec.json.decode(turn) for turn in said]

    def turns(self, session: str, start: int, count: int) -> Iterator[bytes]:
        """Yield turns of a session from its `start`-th on, each with a new id."""
        said = islice(cycle(self._turns), start, start + count)
        for at, turn in enumerate(said, start):
            named = {"tenant": TENANT, "session": session, "turn_id": f"t{at}"}
            yield msgspec.json.encode(turn | named)


def append_flat(size: Size, progress: Progress) -> Report:
    """Measure one durable append at each length, in turn, again and again.

    A session grows while it is appended to, so there are many of 10 turns and
    one of each other length.
    """
    spoken, lengths, rounds = Spoken(), LENGTHS[size], APPENDS[size]
    walls: dict[int, list[float]] = {length: [] for length in lengths}
    works: dict[int, list[float]] = {length: [] for length in lengths}
    with bench_store() as store:
        short = [f"short-{number}" for number in range(rounds)]
        for session in short:
            filled(store, spoken, session, lengths[0])
        for length in lengths[1:]:
            filled(store, spoken, str(length), length)
        for number in range(rounds):
            for length in lengths:
                session, at = str(length), length + number
                if length == lengths[0]:
                    session, at = short[number], length
                (turn,) = spoken.turns(session, at, 1)
                wall, work = _timed(partial(store.publish, [turn]))
                walls[length].append(wall)
                works[length].append(work)
            tell(progress, number + 1, rounds)
        name = _digest(store, [*short, *map(str, lengths[1:])])
    middle = {length: median(values) for length, values in works.items()}
    return figure(walls[lengths[-1]], "ms an append at the longest") | {
        "ms_by_length": _middles(walls),
        "cpu_ms_by_length": _middles(works),
        "ratio": rounded(median(walls[lengths[-1]]) / median(walls[lengths[0]])),
        "cpu_ratio": rounded(middle[lengths[-1]] / middle[lengths[0]]),
        "digest": name,
    }


def read_flat(size: Size, progress: Progress) -> Report:
    """Measure reading the state at each length: hot, warm, and the first time.

    Hot = the head is in the cache; first as the turns came (ten turns lie in a
    frame, thousands in segments), then all sealed. Warm = the store was opened
    anew, so that no head is held; RocksDB's block cache fills with the first
    reads, which are told apart.
    """
    spoken, lengths = Spoken(), LENGTHS[size]
    with TemporaryDirectory(prefix="turnstate-bench-") as folder:
        settings = Settings(data=Path(folder))
        with EmbeddedStore(settings) as store:
            for length in lengths:
                filled(store, spoken, str(length), length)
            hot = _reads(store, lengths, READS[size], progress)
            upkeep.seal(store)
            sealed = _reads(store, lengths, READS[size], progress)
            name = _digest(store, [str(length) for length in lengths])
        first: dict[int, list[float]] = {length: [] for length in lengths}
        warm: dict[int, list[float]] = {length: [] for length in lengths}
        for _ in range(REOPENED[size]):
            with EmbeddedStore(replace(settings, hot_bytes=1)) as store:
                for length in reversed(lengths):
                    first[length] += _reads(store, (length,), 1, None)[length]
                found = _reads(store, lengths, READS[size] // 5, progress)
                for length in lengths:
                    warm[length] += found[length]
                again = _digest(store, [str(length) for length in lengths])
                assert again == name, "the store came back with other states"
    return figure(hot[lengths[-1]], "ms a hot read at the longest") | {
        "hot_ms_by_length": _middles(hot),
        "hot_sealed_ms_by_length": _middles(sealed),
        "warm_ms_by_length": _middles(warm),
        "first_ms_by_length": _middles(first),
        "hot_ratio": rounded(median(hot[lengths[-1]]) / median(hot[lengths[0]])),
        "hot_sealed_ratio": rounded(
            median(sealed[lengths[-1]]) / median(sealed[lengths[0]])
        ),
        "warm_ratio": rounded(median(warm[lengths[-1]]) / median(warm[lengths[0]])),
        "digest": name,
    }


def filled(store: EmbeddedStore, spoken: Spoken, session: str, length: int) -> None:
    """Publish so many turns of a session."""
    turns = spoken.turns(session, 0, length)
    while batch := list(islice(turns, BATCH_TURNS)):
        store.publish(batch)


def _reads(
    store: EmbeddedStore, lengths: tuple[int, ...], rounds: int, progress: Progress
) -> dict[int, list[float]]:
    """Read each session in turn, as the answer of a door: JSON."""
    times: dict[int, list[float]] = {length: [] for length in lengths}
    for number in range(rounds):
        for length in lengths:
            name = str(length)
            wall, _ = _timed(partial(_answer, store, name))
            times[length].append(wall)
        tell(progress, number + 1, rounds)
    return times


def _answer(store: EmbeddedStore, session: str) -> bytes:
    return to_json(store.state(TENANT, session))


def _timed(call: Callable[[], object]) -> tuple[float, float]:
    """Return the milliseconds of a call: of the clock, and of the processor."""
    start, work = time.perf_counter(), time.process_time()
    call()
    return (
        1e3 * (time.perf_counter() - start),
        1e3 * (time.process_time() - work),
    )


def _middles(times: dict[int, list[float]]) -> dict[str, float]:
    return {str(length): rounded(median(each)) for length, each in times.items()}


def _digest(store: EmbeddedStore, sessions: list[str]) -> str:
    keys = [SessionName(TENANT, session).key() for session in sessions]
    found = [(key, store.engine.head(key)) for key in keys]
    return digest_of((key, digest(stored.head)) for key, stored in found if stored)
