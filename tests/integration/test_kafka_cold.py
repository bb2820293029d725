"""Sessions of a cluster in S3: they go there, are read there, and come back."""

import sys
import time
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import pytest

from support import held_worker
from support.both_ways import Running, both_ways, plain
from support.cluster import PARTITIONS
from support.cluster_checks import restored
from support.cold_cluster import assigned, command, cool, jobs, restart, tier_of
from support.told import turn
from turnstate.infra.services.s3 import S3Server, start_s3
from turnstate.replay.samples import sample_paths
from turnstate.schemas.dialogue.head import digest
from turnstate.schemas.errors import FencedError, NotFoundError, TurnstateError
from turnstate.schemas.ids import SessionName
from turnstate.storage.cold.sessions import ColdSessions
from turnstate.storage.moves.journal import Plan
from turnstate.storage.moves.owner import Copied
from turnstate.storage.session_image import decode_front
from turnstate.storage.warm.cold_rows import ColdHead
from turnstate.streams.clock import SystemClock
from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.cluster_tiers import opened_tiers
from turnstate.streams.kafka.cold_place import ClusterPacks
from turnstate.streams.kafka.partitioning import partition_of, partition_of_session
from turnstate.streams.settings import Settings
from turnstate.streams.tiers.opening import OpenedTiers
from turnstate.streams.tiers.packs import collect_garbage, compact_packs

LATER = "2099-01-01T00:00:00Z"
"""By then every session is cold."""


@pytest.fixture(name="s3", scope="module")
def fixture_s3(tmp_path_factory: pytest.TempPathFactory) -> Generator[S3Server]:
    """An S3 server of one's own, to be killed."""
    server = start_s3(tmp_path_factory.mktemp("s3"))
    yield server
    server.stop()


@pytest.fixture(name="running", scope="module")
def fixture_running(
    kafka: str, s3: S3Server, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Running]:
    folder = tmp_path_factory.mktemp("cold")
    told = {
        f"TURNSTATE_S3_{name.upper()}": value for name, value in s3.connection.items()
    }
    told["TURNSTATE_S3"] = told.pop("TURNSTATE_S3_ENDPOINT")
    with both_ways(kafka, folder, **told) as running:
        running.quiet()
        yield running


# -- everything ---------------------------------------------------------------------


def test_everything_cools_and_reads_the_same(running: Running) -> None:
    assert sample_paths()
    count = running.sessions()
    report = command(running, "tiers", "run", "--now", LATER)
    assert report["moved"]["warm>cold"] == count
    status = command(running, "tiers", "status")
    assert status["tiers"]["cold"]["sessions"] == count
    assert status["tiers"]["warm"]["sessions"] == 0
    assert status["packs"] >= 1
    assert (status["unfinished"], status["lease"]) == (0, None)
    with running.reader() as reader:
        rows = list(reader.sessions())
        assert {row["tier"] for row in rows} == {"cold"}
        assert [plain(row) for row in rows] == [
            plain(row) for row in running.embedded.sessions()
        ]
        for at, row in enumerate(rows):
            name = row["tenant"], row["session"]
            # A second read would bring it back: that has a test of its own.
            if at % 20 == 0:
                state = reader.state(*name)
                assert state["tier"] == "cold"
                assert plain(state) == plain(running.embedded.state(*name))
            elif at % 20 == 1:
                assert plain(reader.turns(*name, at=1, limit=5)) == plain(
                    running.embedded.turns(*name, at=1, limit=5)
                )
            elif at % 20 == 2:
                then = reader.state(*name, version=1)
                assert plain(then) == plain(running.embedded.state(*name, version=1))
            elif at % 20 < 6:
                assert reader.head(*name).version == row["version"]
        checked = reader.verify()
        assert (checked["sessions"], checked["bad"]) == (count, [])
        total = reader.stats()
        assert total["sessions"] == total["tiers"]["cold"]["sessions"] == count
        assert total["turns"] == running.embedded.stats()["turns"]


def test_a_restore_from_nothing_has_the_cold_sessions(
    running: Running, tmp_path: Path
) -> None:
    packs = ClusterPacks(running.settings, SystemClock())
    below = ColdSessions(packs)
    found: dict[bytes, bytes] = {}
    partitions = running.thread.run(restored(running.settings, tmp_path, below))
    try:
        for partition in partitions.values():
            for key in list(partition.store.keys()):
                (lies,) = partition.store.located([key])
                assert isinstance(lies, ColdHead)
                found[key] = lies.digest
                if len(found) % 20 == 0:
                    (head,) = partition.store.heads([key])
                    assert head is not None
                    assert digest(head.head) == lies.digest
    finally:
        for partition in partitions.values():
            partition.close()
        below.close()
    assert found == {
        SessionName(row["tenant"], row["session"]).key(): bytes.fromhex(row["digest"])
        for row in running.embedded.sessions()
    }


def test_a_late_turn_wakes_its_session(running: Running) -> None:
    names = [("own", f"late-{at}") for at in range(12)]
    for name in names:
        for number in range(1, 4):
            running.publish(turn(number, name[1], "own", time=1_700_000_000_000))
    running.quiet()
    cool(running, *names)
    with running.reader() as reader:
        rows = list(reader.sessions(tenant="own", prefix="late-"))
    assert {row["tier"] for row in rows} == {"cold"}
    for name in names:
        running.publish(turn(4, name[1], "own", time=1_700_000_000_001))
        running.publish(turn(2, name[1], "own", time=1_700_000_000_000))  # again
    running.quiet()
    with running.reader() as reader:
        for name in names:
            state = reader.state(*name)
            assert (state["version"], state["tier"]) != (3, "cold")
            assert plain(state) == plain(running.embedded.state(*name))
        assert not reader.verify(tenant="own")["bad"]


def test_what_is_read_twice_comes_back(running: Running) -> None:
    name = ("own", "twice")
    running.publish(turn(1, "twice", "own", time=1_700_000_000_001))
    running.quiet()
    cool(running, name)
    with running.reader() as reader:
        assert reader.state(*name)["tier"] == "cold"
        assert reader.state(*name)["version"] == 1
        end = time.monotonic() + 10
        while tier_of(running, name) == "cold":
            assert time.monotonic() < end
            time.sleep(0.05)
        assert plain(reader.state(*name)) == plain(running.embedded.state(*name))
    with jobs(running) as opened:
        key = SessionName(*name).key()
        facts = opened.store.call("tier_facts_of", key=key)
        # The head says since when it is back: the next run lets it stay.
        assert 0 <= opened.now_ms() - facts.moved_at_ms < 60_000


def test_packs_are_compacted_and_garbage_is_collected(running: Running) -> None:
    names = [("own", f"pack-{at}") for at in range(4)]
    for name in names:
        running.publish(turn(1, name[1], "own", time=1_700_000_000_001))
    running.quiet()
    cool(running, *names)
    with jobs(running) as opened:
        opened.job.move(SessionName(*names[0]).key(), "warm")
        packs, lease = opened.packs, opened.lease
        before = len(packs.manifests.latest().packs)
        made = compact_packs(opened.store, packs, lease, min_age_ms=0)
        assert made["rewritten"] >= 4
        assert made["moved"] >= 3
        time.sleep(0.1)
        collect_garbage(opened.store, packs, lease, min_age_ms=1)
        assert len(packs.manifests.latest().packs) < before
    assert command(running, "tiers", "gc", "--dry-run")["dry_run"]
    with running.reader() as reader:
        for name in names:
            assert plain(reader.state(*name)) == plain(running.embedded.state(*name))
        assert not reader.verify(tenant="own")["bad"]


def test_what_has_expired_is_erased_by_a_turn(running: Running) -> None:
    name = ("own", "expires")
    running.publish(turn(1, "expires", "own", time=1_700_000_000_001))
    running.quiet()
    cool(running, name)
    key = SessionName(*name).key()
    with jobs(running) as opened:
        assert opened.store.call("tier_expire", keys=[key])["erased"] == 1
        running.quiet()
        facts = opened.store.call("tier_facts_of", key=key)
        assert (facts.tombstone, facts.incarnation) == (True, 2)
    running.embedded.erase(*name[:1], session=name[1])
    with running.reader() as reader, pytest.raises(NotFoundError):
        reader.state(*name)
    place = running.cluster.folder / "archive"
    archiving = Settings(data=running.cluster.folder, archive=str(place))
    with opened_tiers(archiving, running.settings) as opened:
        with pytest.raises(TurnstateError, match="the worker has no archive"):
            opened.store.call("tier_expire", keys=[key])
        assert opened.store.call("tier_forget_archived") == {"archived_batches": 0}
        with pytest.raises(TurnstateError, match="knows no method"):
            opened.store.call("tier_unheard_of")


# -- what goes wrong ------------------------------------------------------------------


def _copied(opened: OpenedTiers, key: bytes) -> Copied:
    """Carry a move to where its copy is verified, and no further."""
    facts = opened.store.call("tier_facts_of", key=key)
    at = (facts.incarnation, facts.version)
    plan = Plan(key, *at, "warm", "cold", opened.now_ms(), "a test")
    opened.store.call("tier_plan", plans=[plan])
    ((_, image),) = opened.store.call("tier_images", plans=[plan])
    assert image is not None
    (pointer,) = opened.packs.write([image])
    front, _ = decode_front(image.data)
    return Copied(plan, front.row, pointer)


def test_a_worker_that_dies_before_the_flip_keeps_the_session(
    running: Running,
) -> None:
    name = ("own", "unflipped")
    key = SessionName(*name).key()
    running.publish(turn(1, "unflipped", "own", time=1_700_000_000_001))
    running.quiet()
    worker = running.worker_of(partition_of(key, PARTITIONS))
    with jobs(running) as opened, opened.lease.held() as token:
        copied = _copied(opened, key)
        worker.kill()
        worker.start()
        assigned(running)
        # Another epoch: what it handed out before is not what it answers for.
        assert opened.store.call("tier_flip", copied=[copied], token=token) == []
        assert tier_of(running, name) != "cold"
        again = _copied(opened, key)
        with pytest.raises(FencedError):
            opened.store.call("tier_flip", copied=[again], token=token - 1)
        made = opened.store.call("tier_flip", copied=[again], token=token)
        assert made == [again.plan.id]
        assert opened.store.call("tier_unfinished", before_ms=opened.now_ms()) == []
    assert tier_of(running, name) == "cold"
    with running.reader() as reader:
        assert plain(reader.state(*name)) == plain(running.embedded.state(*name))


def test_a_worker_that_dies_in_the_middle_of_a_wake_loses_nothing(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = ("own", "half")
    key = SessionName(*name).key()
    for number in range(1, 200):
        data = turn(number, "half", "own", content="x" * 500, time=1_700_000_000_000)
        running.publish(data)
    running.quiet()
    cool(running, name)
    number = partition_of(key, PARTITIONS)
    worker = running.worker_of(number)
    worker.stop()
    command_line = [sys.executable, "-P", held_worker.__file__, "wake"]
    for other in running.cluster.workers.values():
        if other is not worker:
            other.stop()
    worker.start(command=command_line)
    running.publish(turn(200, "half", "own", time=1_700_000_000_001))
    running.thread.run(
        running.cluster.until(lambda: "held" in worker.last_words(), "it is held")
    )
    worker.kill()
    worker.wipe()
    restart(running)
    running.quiet()
    with running.reader() as reader:
        state = reader.state(*name)
        assert state["version"] == 200
        assert plain(state) == plain(running.embedded.state(*name))
        assert not reader.verify(tenant="own")["bad"]


def test_while_s3_is_away_turns_of_cold_sessions_wait_and_workers_can_end(
    running: Running, s3: S3Server
) -> None:
    name = ("own", "waits")
    running.publish(turn(1, "waits", "own", time=1_700_000_000_001))
    running.quiet()
    cool(running, name)
    number = partition_of_session(*name, PARTITIONS)
    s3.kill()
    try:
        ack = running.publish(turn(2, "waits", "own", time=1_700_000_000_002))
        worker = running.worker_of(number)

        def told() -> bool:
            return any(line.get("event") == "cold.away" for line in worker.said())

        running.thread.run(running.cluster.until(told, "it says that it waits"))
        committed = running.thread.run(running.cluster.committed())
        assert committed[ack.partition] <= ack.offset
        with running.reader(wait_s=3) as reader:
            # What is warm is read as ever.
            assert reader.positions()
            with pytest.raises(TurnstateError):
                reader.state(*name)
        assert worker.stop(30) == 0, worker.last_words()
        worker.start()
    finally:
        s3.restart()
    running.quiet()
    assigned(running)
    with running.reader() as reader:
        state = reader.state(*name)
        assert state["version"] == 2
        assert plain(state) == plain(running.embedded.state(*name))
    assert not running.thread.run(running.cluster.records(
        running.cluster.topics.dead_letters
    ))


def test_workers_move_sessions_by_themselves(running: Running) -> None:
    name = ("own", "by-itself")
    running.publish(turn(1, "by-itself", "own", time=1_700_000_000_001))
    running.quiet()
    told = {
        "TURNSTATE_TIERS_EVERY_S": "1",
        "TURNSTATE_ACTIVE_S": "1",
        "TURNSTATE_COOLING_S": "1",
    }
    restart(running, **told)  # the last test that needs them: they stay so
    end = time.monotonic() + 20
    while tier_of(running, name) != "cold":
        assert time.monotonic() < end
        time.sleep(0.2)
    with running.reader() as reader:
        assert plain(reader.state(*name)) == plain(running.embedded.state(*name))
        assert not reader.verify(tenant="own")["bad"]


def test_without_a_cold_tier_jobs_say_so(running: Running) -> None:
    lonely: ClusterSettings = replace(running.settings, s3="", cold="")
    with pytest.raises(TurnstateError) as caught, opened_tiers(Settings(), lonely):
        pass
    assert caught.value.code == "cold_away"
