"""A round with a real Redis above it: replaced owners, slow servers, lost rounds."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from aiokafka.structs import ConsumerRecord

from support.changelogs import Owner, Topic
from support.round_bench import TURNS, RoundBench, chunk
from turnstate.infra.services.redis import RedisServer, start_redis
from turnstate.schemas.ids import SessionName
from turnstate.storage.hot.redis_marks import LEASE_MS, Marks
from turnstate.storage.warm.changelog_records import Epoch
from turnstate.streams.clock import SystemClock
from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.hot_reads import Floor
from turnstate.streams.kafka.hot_settings import redis_settings
from turnstate.streams.kafka.hot_tier import HotPartition
from turnstate.streams.kafka.hot_watch import HotWatch
from turnstate.streams.kafka.transport import Chunk

KEY = SessionName("t", "s").key()
LIMIT_MS = 200


class Bench(RoundBench):
    """Rounds of one partition whose topics are lists, with a Redis that is real."""

    def __init__(self, folder: Path, url: str) -> None:
        clock: Any = SystemClock()
        super().__init__(Owner(folder, Topic(), [], clock))
        cluster = ClusterSettings(redis=url, hot_timeout_ms=LIMIT_MS)
        self.settings = redis_settings(cluster, uuid4().bytes)
        self.marks = Marks(self.settings)
        self.redis = self.hot()
        self.partition = self.owner.partition
        self.partition.redis = self.redis
        self.owner.take_over(1)
        self.confirmed = True
        self.rounds = self.made_rounds(confirmed_since=self.is_confirmed)

    def is_confirmed(self, since_s: float) -> bool:
        """Say whether the group has confirmed the worker, whenever that was."""
        del since_s
        return self.confirmed

    def hot(self) -> HotPartition:
        """Return the partition's place in Redis, as another owner has it."""
        watch = HotWatch(self.metrics.moves)
        now_ms = SystemClock().now_ms
        return HotPartition(0, self.settings, self.marks, watch, now_ms)

    async def send_rows(
        self, topic: str, partition: int, rows: Sequence[Any]
    ) -> int | None:
        """Take rows; their offset counts on."""
        assert partition == 0
        at = self.owner.topic.end
        self.owner.topic.end += len(rows)
        return at if rows else None

    async def version(self) -> int | None:
        """Return the version that a reader of Redis is told, None for none."""
        now_ms = SystemClock().now_ms()
        found = await self.marks.session(0, KEY, now_ms)
        return None if found is None else found.value.version

    async def told(self, redis: HotPartition | None = None) -> int | None:
        """Renew the mark; return what a reader is told."""
        folded = self.partition.folded
        await (redis or self.redis).upkeep(-1 if folded is None else folded[0])
        return await self.version()


def play(
    folder: Path, url: str, scenario: Callable[[Bench], Awaitable[None]]
) -> None:
    """Run a scenario, and hang up behind it."""

    @asynccontextmanager
    async def opened() -> AsyncGenerator[Bench]:
        bench = Bench(folder, url)
        try:
            yield bench
        finally:
            await bench.redis.close()
            await bench.marks.close()
            bench.owner.close()
            assert not bench.again, "no turn was missing"

    async def run() -> None:
        async with opened() as bench:
            await scenario(bench)

    asyncio.run(run())


def test_a_round_is_in_hot_once_the_owner_has_said_so(
    tmp_path: Path, redis_server: str
) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.rounds.run([chunk(0, 2)])
        assert await bench.version() is None  # no mark yet
        assert await bench.told() == 3
        await bench.rounds.run([chunk(3, 4)])
        assert await bench.version() == 5
        assert (bench.redis.has(KEY), len(bench.redis.books)) == (True, 1)
        assert bench.redis.books.bytes > 100

    play(tmp_path, redis_server, scenario)


def test_a_round_that_is_given_up_counts_no_more_in_hot(
    tmp_path: Path, redis_server: str
) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.rounds.run([chunk(0, 2)])
        assert await bench.told() == 3
        # Hot has it, and then the group does not confirm this worker any more.
        sent, bench.rounds.draining = bench.send_rows, True

        async def send_and_lose(topic: str, partition: int, rows: Any) -> int | None:
            bench.owns = False
            return await sent(topic, partition, rows)

        bench.send_rows = send_and_lose  # type: ignore[method-assign]
        await bench.rounds.run([chunk(3, 5)])
        assert bench.done == [2]
        bench.send_rows = sent  # type: ignore[method-assign]
        bench.owns, bench.rounds.draining = True, False
        assert await bench.told() is None
        # The same turns again, in another chunk: it is not fenced by itself.
        await bench.rounds.run([chunk(3, 3)])
        assert bench.done == [2, 3]
        assert await bench.told() == 4

    play(tmp_path, redis_server, scenario)


def test_an_owner_that_was_replaced_is_told_so_by_redis(
    tmp_path: Path, redis_server: str
) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.rounds.run([chunk(0, 2)])
        later = bench.hot()
        later.claimed(Epoch(7, 2))
        await later.upkeep(2)
        later.want(KEY)
        await later.fill(bench.partition.store)
        await later.close()
        # Nobody confirms it, and who waits for the round gets the partition.
        bench.confirmed, bench.rounds.draining = False, True
        await bench.rounds.run([chunk(3, 4)])
        assert bench.done == [2]
        assert bench.partition.folded == (2, 0)
        assert await bench.version() == 3
        # If the group says that it is the owner, Redis is wrong: it is left alone.
        bench.confirmed, bench.rounds.draining = True, False
        await bench.rounds.run([chunk(3, 4)])
        assert bench.done == [2, 4]
        assert await bench.told() == 3
        # A new claim begins anew, and older epochs fence nobody.
        bench.redis.claimed(Epoch(8, 3))
        assert await bench.told() is None
        await bench.rounds.run([chunk(5, 5)])
        assert await bench.told() == 6

    play(tmp_path, redis_server, scenario)


def test_a_slow_redis_takes_its_limit_and_no_more(tmp_path: Path) -> None:
    server: RedisServer = start_redis(tmp_path / "redis")

    async def scenario(bench: Bench) -> None:
        await bench.rounds.run([chunk(0, 2)])
        assert await bench.told() == 3
        process = server.pid
        assert process is not None
        os.kill(process, signal.SIGSTOP)
        try:
            spent: list[float] = []
            for first in range(3, 40, 3):
                began = time.monotonic()
                await bench.rounds.run([chunk(first, first + 2)])
                spent.append(time.monotonic() - began)
            assert bench.partition.folded == (41, 0)
            assert max(spent) < 3 * LIMIT_MS / 1000
            # After some that failed it is not even asked.
            assert sorted(spent)[len(spent) // 2] < LIMIT_MS / 2000
            assert "turnstate_hot_up 0.0" in bench.metrics.text()
        finally:
            os.kill(process, signal.SIGCONT)
        # Old marks are of use for two seconds; what it took in late never again.
        await asyncio.sleep(LEASE_MS / 1000)
        end = time.monotonic() + 20
        while bench.redis.cache.tier.rests or bench.marks.rests:
            await asyncio.sleep(0.05)
        assert await bench.told() is None
        await bench.rounds.run([chunk(42, 42)])
        while await bench.told() != 43:
            assert time.monotonic() < end
            bench.redis.want(KEY)
            await bench.redis.fill(bench.partition.store)
            await asyncio.sleep(0.1)
        assert "turnstate_hot_up 1.0" in bench.metrics.text()

    try:
        play(tmp_path / "store", server.url, scenario)
    finally:
        server.stop()


def test_an_erase_leaves_its_tombstone_though_redis_was_away(tmp_path: Path) -> None:
    server = start_redis(tmp_path / "redis")
    erase = b'{"tenant":"t","session":"s","role":"system","op":"erase"}'

    async def scenario(bench: Bench) -> None:
        await bench.rounds.run([chunk(0, 2)])
        assert await bench.told() == 3
        server.kill()
        for offset in (3, 4):
            await bench.rounds.run([chunk(offset, offset)])
        records: list[Any] = [
            ConsumerRecord(*TURNS, 5, 0, 0, None, erase, None, 0, 0, ())
        ]
        await bench.rounds.run([Chunk(TURNS, records, 1, 5)])
        assert bench.partition.folded == (5, 0)
        server.restart()
        end = time.monotonic() + 20
        while bench.redis.cache.stale_count or await bench.version() is not None:
            assert time.monotonic() < end
            await bench.told()
            await asyncio.sleep(0.1)
        report = await bench.redis.cache.tier.sweep(mend=False)
        assert (report.tombstones, report.bodies) == (1, 0)

    try:
        play(tmp_path / "store", server.url, scenario)
    finally:
        server.stop()


def test_a_floor_lets_nothing_older_pass() -> None:
    floor = Floor().with_more(Floor(1, 5)).with_more(Floor(at_least=7))
    assert floor == Floor(1, 5, 7)
    assert floor.with_more(Floor(2, 1)) == Floor(2, 1)
    assert floor.with_more(Floor(offset=9)) == Floor(1, 5, 7, 9)
