"""A session of a cluster whose time is over: served by nobody, archived, erased."""

import asyncio
import secrets
import subprocess
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from support.cluster import Cluster, cluster_on
from support.commands import COMMAND, TIMEOUT_S
from support.told import turn
from turnstate.agents.archive.summary import decode_summary
from turnstate.agents.tiering.budget import RunBudget
from turnstate.infra.services.redis import RedisServer, start_redis
from turnstate.schemas.errors import NotFoundError, UnavailableError
from turnstate.schemas.ids import SessionName
from turnstate.storage.archive import Archive
from turnstate.storage.cold.directory import DirectoryObjects
from turnstate.streams.kafka.cluster_reader import ClusterReader
from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.cluster_tiers import opened_tiers
from turnstate.streams.kafka.sync_producer import LoopThread, SyncTurnProducer
from turnstate.streams.settings import Settings

TTL_S = 5


@dataclass
class Expiring:
    """A worker with a short time to live, a hot tier, a cold folder, an archive."""

    cluster: Cluster
    thread: LoopThread
    settings: ClusterSettings
    archive: Path
    environment: dict[str, str]

    def say(self, session: str, first: int, last: int) -> None:
        """Publish turns, and wait until they are folded."""
        with SyncTurnProducer(self.settings) as producer:
            for number in range(first, last + 1):
                producer.publish(turn(number, session, "t")).result(20)
        self.thread.run(self.cluster.quiet())

    def job(self) -> Settings:
        """Return the settings of a job: its archive is that of the worker."""
        made = Settings(data=self.cluster.folder / "data", ttl_s=TTL_S)
        return replace(made, archive=str(self.archive))


def _answers(it: Expiring) -> Callable[[], Any]:
    """Return what says whether every partition has a worker that answers."""

    def answers() -> bool:
        try:
            with ClusterReader(it.settings, wait_s=1) as reader:
                return len(reader.positions()) == it.settings.partitions
        except UnavailableError:
            return False

    # Both run loops of their own: not in that of the cluster.
    return lambda: asyncio.to_thread(answers)


@pytest.fixture(name="redis", scope="module")
def fixture_redis(tmp_path_factory: pytest.TempPathFactory) -> Generator[RedisServer]:
    server = start_redis(tmp_path_factory.mktemp("redis"))
    yield server
    server.stop()


@pytest.fixture(name="it", scope="module")
def fixture_it(
    kafka: str, redis: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Expiring]:
    folder = tmp_path_factory.mktemp("expiring")
    archive, cold = folder / "archive", folder / "cold"
    told = {
        "TURNSTATE_TTL_S": str(TTL_S),
        "TURNSTATE_ARCHIVE": str(archive),
        "TURNSTATE_COLD": str(cold),
        "TURNSTATE_REDIS": redis.url,
        "TURNSTATE_HOT_TIMEOUT_MS": "2000",
    }
    thread = LoopThread("cluster")
    scene = cluster_on(kafka, folder, f"exp-{uuid4().hex[:8]}", partitions=2)
    cluster = thread.run(scene.__aenter__())
    try:
        worker = cluster.worker("one", **told)
        worker.start()
        settings = replace(
            cluster.settings, redis=redis.url, cold=str(cold), hot_timeout_ms=2000
        )
        environment = dict(worker.environment)
        del environment["TURNSTATE_TTL_S"]  # readers go by what workers are set to
        yield Expiring(cluster, thread, settings, archive, environment)
    finally:
        thread.run(scene.__aexit__(None, None, None))
        thread.close()


def test_what_has_expired_is_served_by_nobody_then_archived_and_erased(
    it: Expiring,
) -> None:
    it.say("old", 1, 3)
    with ClusterReader(it.settings) as reader:
        began = time.monotonic()
        tiers = {reader.state("t", "old")["tier"]}
        while "hot" not in tiers:
            assert time.monotonic() - began < TTL_S - 1
            tiers.add(reader.state("t", "old")["tier"])
        digest = reader.state("t", "old")["digest"]
        time.sleep(max(0.0, TTL_S + 0.2 - (time.monotonic() - began)))
        # Redis still has it, and would have it for an hour.
        for read in (reader.state, reader.turns, reader.history, reader.head):
            with pytest.raises(NotFoundError):
                read("t", "old")
        with pytest.raises(NotFoundError):
            reader.context("t", "old", budget_tokens=100)
        assert list(reader.sessions(tenant="t", prefix="old")) == []
    done = subprocess.run(
        [*COMMAND, "state", "t", "old", "--profile", "cluster", "--json"],
        capture_output=True,
        check=False,
        cwd=it.cluster.folder,
        timeout=TIMEOUT_S,
        env=it.environment,
    )
    assert done.returncode == NotFoundError.exit_code

    with opened_tiers(it.job(), it.settings) as opened:
        planned = opened.job.run(RunBudget(), dry_run=True)
        assert sum(n for path, n in planned.moved.items() if "nowhere" in path) == 1
        report = opened.job.run(RunBudget())
        assert report.archived == 1
        it.thread.run(it.cluster.quiet())
        facts = opened.store.call("tier_facts_of", key=SessionName("t", "old").key())
        assert (facts.tombstone, facts.incarnation) == (True, 2)
        again = opened.job.run(RunBudget())
        assert (again.archived, dict(again.moved)) == (0, {})
    archive = Archive(DirectoryObjects(it.archive), secrets.token_bytes)
    (batch,) = archive.manifest().batches
    (line,) = b"".join(archive.read(batch)).splitlines()
    assert decode_summary(line).digest == digest
    assert b"turn 1" not in line
    key = it.cluster.folder / "data" / "archive.key"
    assert key.stat().st_mode & 0o777 == 0o600


def test_a_session_that_lives_again_stays(it: Expiring) -> None:
    """A turn in time goes on with it, also between the plan and the erase."""
    it.say("lives", 1, 2)
    key = SessionName("t", "lives").key()
    with opened_tiers(it.job(), it.settings) as opened:
        it.say("lives", 3, 3)
        made = opened.store.call("tier_expire", keys=[key], versions=[2])
        assert (made["erased"], made["gone_on"]) == (0, [0])
    with ClusterReader(it.settings) as reader:
        assert reader.state("t", "lives")["version"] == 3


def test_a_cold_session_expires_too_and_is_archived_from_there(it: Expiring) -> None:
    it.say("cool", 1, 2)
    key = SessionName("t", "cool").key()
    with opened_tiers(it.job(), it.settings) as opened:
        assert opened.job.move(key, "cold").moved["warm>cold"] == 1
        time.sleep(TTL_S + 0.1)
        with (
            ClusterReader(replace(it.settings, redis="")) as reader,
            pytest.raises(NotFoundError),
        ):
            reader.state("t", "cool")
        made = opened.store.call("tier_expire", keys=[key], versions=[2])
        assert (made["erased"], made["archived"]) == (1, 1)
        it.thread.run(it.cluster.quiet())
        assert opened.store.call("tier_facts_of", key=key).tombstone


def test_what_cannot_be_archived_stays(it: Expiring) -> None:
    """A worker whose archive is away, or that has none, keeps what it has."""
    it.say("kept", 1, 2)
    key = SessionName("t", "kept").key()
    it.archive.mkdir(exist_ok=True)
    aside = it.archive.with_name("aside")
    it.archive.rename(aside)
    it.archive.write_text("no folder")
    try:
        with opened_tiers(it.job(), it.settings) as opened:
            with pytest.raises(UnavailableError) as away:
                opened.store.call("tier_expire", keys=[key])
            assert away.value.code == "archive_away"
            later_ms = opened.now_ms() + 2000 * TTL_S
            report = opened.job.run(RunBudget(), at_ms=later_ms)
            assert report.archived == 0
            assert any(str(it.archive) in why for why in report.skipped)
            assert not opened.store.call("tier_facts_of", key=key).tombstone
    finally:
        it.archive.unlink()
        aside.rename(it.archive)
    worker = it.cluster.worker("one")
    assert worker.stop() == 0
    worker.start(TURNSTATE_ARCHIVE="", TURNSTATE_TTL_S="3600")
    it.thread.run(it.cluster.until(_answers(it), "the worker answers"))
    with opened_tiers(it.job(), it.settings) as opened:
        with pytest.raises(UnavailableError) as caught:
            opened.store.call("tier_expire", keys=[key])
        assert caught.value.code == "no_archive"
        assert not opened.store.call("tier_facts_of", key=key).tombstone
