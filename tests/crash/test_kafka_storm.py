"""Workers and broker killed under a stream of turns: none is lost, none is twice."""

import asyncio
import time
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

import pytest

from support.cluster import Cluster, Sample, Source, WorkerProcess, cluster_on
from support.cluster_checks import Checked, check_cluster
from support.soak import SoakSeeds
from turnstate.infra.services.failures import MissingProgramError
from turnstate.infra.services.kafka import KafkaServer, start_kafka
from turnstate.infra.services.redis import RedisServer, start_redis

RATE: Final = 600
"""Turns a second: what two workers, a broker and a producer share two cores for."""

HITS_LEAST: Final = 0.8
"""Of the kills, so many have to hit turns that are not committed."""

LIVES_S: Final = 0.8
"""A worker lives at most so long after it has its partitions."""


class Plan(NamedTuple):
    """How often what happens."""

    kills: int
    broker_kills: int
    rebalances: int
    wipes: int
    doubles: int = 1


class Report(NamedTuple):
    """What happened, and what was found afterwards."""

    plan: Plan
    hits: int
    in_flight: int
    acknowledged: int
    checked: Checked
    seconds: float


class Storm:
    """One cluster, one stream, and a plan of mishaps in an order of chance."""

    def __init__(
        self,
        cluster: Cluster,
        kafka: KafkaServer,
        plan: Plan,
        seed: int,
        environment: dict[str, str],
    ) -> None:
        self.cluster = cluster
        self.kafka = kafka
        self.plan = plan
        self.chance = Random(seed)
        self.seed = seed
        self.workers = [
            cluster.worker(name, **environment) for name in ("first", "second")
        ]
        self.third = cluster.worker("third", **environment)
        self.source = Source(cluster.settings, cluster.folder)
        self.samples: list[Sample] = []
        self.hits = self.in_flight = 0

    async def run(self) -> Report:
        """Let it all happen, wait until it is quiet, check everything."""
        began = time.monotonic()
        try:
            for worker in self.workers:
                worker.start()
            self.source.start(seed=self.seed, rate=RATE)
            await self._all_assigned()
            for what in self._order():
                print(f"{time.monotonic() - began:6.1f} {what}", flush=True)
                await getattr(self, f"_{what}")()
            taken = await asyncio.to_thread(self.source.stop)
            await self.cluster.quiet()
            for worker in self.workers:
                code = await asyncio.to_thread(worker.stop)
                assert code == 0, f"{worker.name}: {code}: {worker.last_words()}"
        finally:
            self.source.end()
        checked = await check_cluster(self.cluster, taken, self.samples)
        seconds = time.monotonic() - began
        return Report(
            self.plan, self.hits, self.in_flight, len(taken), checked, seconds
        )

    def _order(self) -> list[str]:
        """Return the mishaps in an order of chance; each wipe comes with a kill."""
        plan = self.plan
        order = (
            ["kill"] * (plan.kills - plan.wipes - plan.rebalances)
            + ["wipe"] * plan.wipes
            + ["rebalance"] * plan.rebalances
            + ["broker"] * plan.broker_kills
            + ["double"] * plan.doubles
        )
        self.chance.shuffle(order)
        return order

    async def _all_assigned(self) -> None:
        """Wait until every worker has its share of the stores open, and all are."""

        def assigned() -> bool:
            shares = [
                worker.partitions()
                for worker in (*self.workers, self.third)
                if worker.process is not None
            ]
            numbers = sorted(number for share in shares for number in share)
            everything = list(range(self.cluster.settings.partitions))
            return all(shares) and numbers == everything

        await self.cluster.until(assigned, "every partition has a worker")

    async def _hit(self, worker: WorkerProcess) -> None:
        """Kill a worker once something of its partitions is not committed."""
        end = time.monotonic() + 5
        while True:
            mine = worker.partitions()
            ends, committed = await asyncio.gather(
                self.cluster.ends(), self.cluster.committed()
            )
            if any(ends[at] > committed[at] for at in mine) or time.monotonic() > end:
                break
        ends = await self.cluster.ends()
        worker.kill()
        sample = await self.cluster.sample()
        self.samples.append(sample)
        flying = sum(max(0, ends[at] - sample.committed[at]) for at in mine)
        self.in_flight += flying
        self.hits += flying > 0

    async def _kill(self) -> None:
        await asyncio.sleep(self.chance.random() * LIVES_S)
        worker = self.chance.choice(self.workers)
        await self._hit(worker)
        # Sooner than the session's time-out, or later: both ways are walked.
        await asyncio.sleep(self.chance.choice((0, 0, 2.2)))
        worker.start()
        await self._all_assigned()

    async def _wipe(self) -> None:
        worker = self.chance.choice(self.workers)
        await self._hit(worker)
        worker.wipe()
        worker.start()
        await self._all_assigned()

    async def _rebalance(self) -> None:
        """A third worker comes while another one restores, and goes again."""
        worker = self.chance.choice(self.workers)
        await self._hit(worker)
        worker.wipe()
        worker.start()
        await asyncio.sleep(self.chance.random())
        self.third.start()
        await self._all_assigned()
        if self.chance.random() < 0.5:
            self.third.kill()
        else:
            code = await asyncio.to_thread(self.third.stop)
            assert code == 0, self.third.last_words()
        await self._all_assigned()

    async def _broker(self) -> None:
        await asyncio.to_thread(self.kafka.kill)
        await asyncio.sleep(self.chance.random())
        await asyncio.to_thread(self.kafka.restart)
        await self._all_assigned()

    async def _double(self) -> None:
        """Start an instance that runs: it must end at once and say why."""
        running = self.workers[0]
        twin = WorkerProcess(running.name, running.data, running.environment)
        began = time.monotonic()
        twin.start()
        assert await asyncio.to_thread(twin.wait, 15) == 6
        assert time.monotonic() - began < 10
        assert "another process runs the instance 'first'" in twin.last_words()
        assert running.pid


def _redis(folder: Path) -> RedisServer | None:
    """Start a Redis, so that hot is written in the storm; None where there is none."""
    try:
        return start_redis(folder)
    except MissingProgramError:
        return None


def storm(folder: Path, plan: Plan, seed: int) -> Report:
    """Run a storm on a Kafka of its own."""
    kafka = start_kafka(folder / "kafka")
    redis = _redis(folder / "redis")
    environment = {} if redis is None else {"TURNSTATE_REDIS": redis.url}
    try:

        async def run() -> Report:
            async with cluster_on(kafka.bootstrap, folder, f"storm{seed}") as cluster:
                return await Storm(cluster, kafka, plan, seed, environment).run()

        report = asyncio.run(run())
    finally:
        if redis is not None:
            redis.stop()
        kafka.stop()
    print(report)
    return report


def test_a_short_storm(tmp_path: Path) -> None:
    report = storm(tmp_path, Plan(4, 1, 1, 1), seed=1)
    assert report.hits


@pytest.mark.soak
def test_a_long_storm(tmp_path: Path, soak_seeds: SoakSeeds) -> None:
    """A hundred kills in one storm, or as many short storms as there is time for."""
    whole = soak_seeds.seconds is None
    plan = Plan(100, 10, 10, 5) if whole else Plan(10, 1, 1, 1)
    for seed in soak_seeds.take(1 if whole else 10):
        report = storm(tmp_path / str(seed), plan, seed)
        assert report.hits >= HITS_LEAST * plan.kills
