"""A worker on real Kafka beside a plain Faust table, in one run."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.kafka_rates import (
    Followed,
    Sent,
    committed_count,
    cpu_s,
    empty_partitions,
    end_count,
    followed,
    latencies_ms,
    prepared,
    send_all,
    worker,
)
from turnstate.infra.services.kafka import KafkaServer, start_kafka
from turnstate.replay.bench.corpora import dialogues, interleaved, multiplied
from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.restore import RestoreProgress, restore
from turnstate.streams.kafka.topics import Topics, create_topics

pytestmark = pytest.mark.bench

PARTITIONS = 4
WARMING = 20_000
"""Turns before those whose latency counts."""
PLAIN_TURNS = 10_000
"""Of plain Faust, which takes a while for more."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    server = start_kafka(tmp_path_factory.mktemp("kafka"), fast=False)
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="module")
def rows() -> list[Sent]:
    """All sessions of the corpora, or of the samples twelve times, interleaved."""
    spoken = list(dialogues(small=False))
    many = spoken if len(spoken) > 3000 else list(multiplied(spoken, 12 * len(spoken)))
    return prepared(list(interleaved(many)), PARTITIONS)


def cluster(broker: KafkaServer, name: str) -> ClusterSettings:
    settings = ClusterSettings(
        bootstrap=broker.bootstrap,
        partitions=PARTITIONS,
        prefix=f"{name}.",
        group=f"bench-{name}",
        session_timeout_ms=6000,
    )
    asyncio.run(create_topics(settings))
    return settings


def environment(settings: ClusterSettings) -> dict[str, str]:
    return {
        "TURNSTATE_KAFKA": settings.bootstrap,
        "TURNSTATE_PREFIX": settings.prefix,
        "TURNSTATE_GROUP": settings.group,
        "TURNSTATE_PARTITIONS": str(settings.partitions),
        "TURNSTATE_SESSION_TIMEOUT_MS": str(settings.session_timeout_ms),
    }


def end(process: "subprocess.Popen[bytes]", how: int = signal.SIGTERM) -> None:
    process.send_signal(how)
    process.wait(60)


def show(name: str, got: Followed) -> None:
    print(f"{name}: {got.turns_per_s:,.0f} turns/s, {got.cpu_us:.1f} us of processor")


async def folded(settings: ClusterSettings, pid: int, turns: int) -> Followed:
    async with committed_count(settings) as count:
        return await followed(count, pid, turns)


async def plain(settings: ClusterSettings, pid: int, turns: int) -> Followed:
    topic = f"{settings.group}-plain-state-changelog"
    async with end_count(settings, topic) as count:
        return await followed(count, pid, turns)


def test_turns_a_second(broker: KafkaServer, rows: list[Sent], tmp_path: Path) -> None:
    """A backlog, interleaved: a worker against Faust as its guide shows it."""
    settings = cluster(broker, "rate")
    asyncio.run(send_all(settings, rows))
    process = worker(tmp_path / "data", "w", environment(settings))
    try:
        ours = asyncio.run(folded(settings, process.pid, len(rows)))
    finally:
        end(process)
    few = cluster(broker, "plain")
    asyncio.run(send_all(few, rows[:PLAIN_TURNS]))
    other = subprocess.Popen(
        [
            sys.executable,
            str(Path(__file__).parents[1] / "support" / "plain_faust.py"),
            few.bootstrap,
            Topics.of(few).turns,
            f"{few.group}-plain",
            str(PARTITIONS),
            str(tmp_path / "plain"),
            "worker",
            "-l",
            "warn",
        ],
        env={**os.environ, "PYTHONSAFEPATH": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        theirs = asyncio.run(plain(few, other.pid, PLAIN_TURNS))
    finally:
        end(other, signal.SIGKILL)
    show("turnstate", ours)
    show("a Faust table", theirs)
    print(f"{ours.turns_per_s / theirs.turns_per_s:.1f} times")
    assert ours.turns_per_s > theirs.turns_per_s


@pytest.mark.parametrize("rate", [1000, 5000])
def test_latency(
    broker: KafkaServer, rows: list[Sent], tmp_path: Path, rate: int
) -> None:
    """From producer to frame on `deltas`, at a steady rate."""
    settings = cluster(broker, f"late{rate}")
    process = worker(tmp_path / "data", "w", environment(settings))
    sample = [row for row in rows if row.key != rows[0].key][: WARMING + rate * 8]
    try:
        asyncio.run(ready(settings, rows[0]))
        spent: list[float] = []

        def note() -> None:
            spent.append(cpu_s(process.pid))

        late = asyncio.run(
            latencies_ms(settings, sample, rate, warming=WARMING, warmed=note)
        )
        note()
        cpu_us = 1e6 * (spent[1] - spent[0]) / len(late)
    finally:
        end(process)
    at = {name: late[int(len(late) * part)] for name, part in PARTS.items()}
    told = ", ".join(f"{name} {ms:.1f} ms" for name, ms in at.items())
    print(f"{rate} turns/s: {told}; {cpu_us:.0f} us of processor a turn")
    assert len(late) == len(sample) - WARMING


PARTS = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


async def ready(settings: ClusterSettings, first: Sent) -> None:
    """Wait until a worker has folded a first turn."""
    await send_all(settings, [first])
    async with end_count(settings, Topics.of(settings).deltas) as count:
        while not await count():
            await asyncio.sleep(0.05)


def test_restore(broker: KafkaServer, rows: list[Sent], tmp_path: Path) -> None:
    """An empty disk: changelog records a second until the store is whole."""
    settings = cluster(broker, "restore")
    asyncio.run(send_all(settings, rows))
    data = tmp_path / "data"
    process = worker(data, "w", environment(settings))
    try:
        asyncio.run(folded(settings, process.pid, len(rows)))
    finally:
        end(process)
    shutil.rmtree(data / "w")
    done, seconds = asyncio.run(restored(settings, data / "w"))
    rates = f"{done / seconds:,.0f} records/s, {len(rows) / seconds:,.0f} turns/s"
    print(f"restore: {rates}")
    assert done


async def restored(settings: ClusterSettings, folder: Path) -> tuple[int, float]:
    partitions = await empty_partitions(settings, folder)
    seen: list[RestoreProgress] = []
    start = time.perf_counter()
    await restore(settings, Topics.of(settings).changelog, partitions, seen.append)
    seconds = time.perf_counter() - start
    for partition in partitions.values():
        partition.close()
    return seen[-1].done, seconds


def test_takeover(broker: KafkaServer, rows: list[Sent], tmp_path: Path) -> None:
    """From kill -9 of one worker to the first turn folded by the other."""
    settings = cluster(broker, "takeover")
    first = worker(tmp_path / "data", "a", environment(settings))
    second = worker(tmp_path / "data", "b", environment(settings))
    try:
        seconds = asyncio.run(taken_over(settings, rows, first))
    finally:
        for process in (first, second):
            if process.poll() is None:
                end(process)
    unheard_s = settings.session_timeout_ms / 1000
    print(f"takeover: {seconds:.1f} s, of them {unheard_s} until a silence is noticed")
    assert seconds < 60


async def taken_over(
    settings: ClusterSettings, rows: list[Sent], first: "subprocess.Popen[bytes]"
) -> float:
    """Kill the first; return when every partition has moved on."""
    mine: dict[int, Sent] = {}
    for row in rows:
        mine.setdefault(row.partition, row)
    await send_all(settings, list(mine.values()))
    async with end_count(settings, Topics.of(settings).deltas) as count:
        while await count() < PARTITIONS:
            await asyncio.sleep(0.05)
        # Both have joined once the group is at rest; then one dies.
        await asyncio.sleep(8)
        first.kill()
        start = time.perf_counter()
        fresh: dict[int, Sent] = {}
        for row in rows:
            if row.key != mine[row.partition].key:
                fresh.setdefault(row.partition, row)
        await send_all(settings, list(fresh.values()))
        while await count() < 2 * PARTITIONS:
            await asyncio.sleep(0.02)
        return time.perf_counter() - start
