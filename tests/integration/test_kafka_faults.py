"""What breaks under a worker: brokers, disks, stores, topics; nothing is lost."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from resource import RLIMIT_FSIZE, prlimit

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import RecordsToDelete

from support.cluster import Cluster, Source
from support.cluster_scenes import (
    dialogue,
    ended,
    finished,
    play,
    published,
    stopped,
)
from turnstate.infra.services.kafka import start_kafka
from turnstate.schemas.operation import Op
from turnstate.storage.warm.rocksdb import WarmStore
from turnstate.streams.kafka.delta_records import delta_of
from turnstate.streams.kafka.topics import create_topics

UNAVAILABLE = 6
CORRUPT = 5


def test_brokers_that_are_away_are_waited_for_and_not_for_ever(tmp_path: Path) -> None:
    server = start_kafka(tmp_path / "kafka")

    async def scenario(cluster: Cluster) -> None:
        worker = cluster.worker("first", TURNSTATE_BROKER_AWAY_S="20")
        impatient = cluster.worker("other", TURNSTATE_BROKER_AWAY_S="4")
        source = Source(cluster.settings, cluster.folder)
        try:
            worker.start()
            source.start(seed=5, rate=200)
            await cluster.until(lambda: len(source.taken()) > 100, "turns come")
            await asyncio.to_thread(server.kill)
            await asyncio.sleep(5)
            await asyncio.to_thread(server.restart)
            before = len(source.taken())
            await cluster.until(lambda: len(source.taken()) > before, "turns go on")
            await cluster.until(worker.partitions, "it has partitions")
            impatient.start()
            await cluster.until(impatient.partitions, "both have partitions")
            taken = await asyncio.to_thread(source.stop)
            await cluster.quiet()
            await asyncio.to_thread(server.kill)
            assert await ended(impatient, 30) == UNAVAILABLE
            assert "Kafka did not answer in time" in impatient.last_words()
            assert worker.pid
            await asyncio.to_thread(server.restart)
            await finished(cluster, worker, taken)
        finally:
            source.end()

    try:
        play(server.bootstrap, tmp_path, scenario)
    finally:
        server.stop()


def test_a_full_disk_is_named_and_nothing_is_lost(kafka: str, tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        worker = cluster.worker("first")
        worker.start()
        taken = await published(cluster, dialogue(6, 200))
        await cluster.quiet()
        # No file may grow any more, as where the disk has no room.
        prlimit(worker.pid, RLIMIT_FSIZE, (20_000, 20_000))
        taken += await published(cluster, dialogue(7, 3_000))
        code = await ended(worker)
        assert code == UNAVAILABLE, (code, worker.last_words())
        assert "File too large" in worker.last_words()
        worker.start()
        await finished(cluster, worker, taken)

    play(kafka, tmp_path, scenario)


def test_a_store_that_another_process_holds_is_named(
    kafka: str, tmp_path: Path
) -> None:
    async def scenario(cluster: Cluster) -> None:
        worker = cluster.worker("first")
        taken = await published(cluster, dialogue(8, 50))
        store = WarmStore(worker.data / "first" / "0" / "store", log_name="log")
        try:
            worker.start()
            assert await ended(worker) == UNAVAILABLE
            assert "another process owns the store" in worker.last_words()
        finally:
            store.close()
        worker.start()
        await finished(cluster, worker, taken)

    (tmp_path / "data" / "first" / "0").mkdir(parents=True)
    play(kafka, tmp_path, scenario)


def _remove_manifest(store: Path) -> None:
    for path in store.glob("MANIFEST-*"):
        path.unlink()


def _flip_tables(store: Path) -> None:
    tables = sorted(store.glob("*.sst"))
    assert tables
    for path in tables:
        data = bytearray(path.read_bytes())
        for at in range(0, len(data), 40):
            data[at] ^= 0xFF
        path.write_bytes(data)


def _flip_blocks(store: Path) -> None:
    """Damage the rows of tables alone: they open, and fail when they are read."""
    tables = sorted(store.glob("*.sst"))
    assert tables
    for path in tables:
        data = bytearray(path.read_bytes())
        data[10] ^= 0xFF
        path.write_bytes(data)


@pytest.mark.parametrize("damage", [_remove_manifest, _flip_tables, _flip_blocks])
def test_a_damaged_store_is_named_wiped_and_rebuilt(
    kafka: str, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    async def scenario(cluster: Cluster) -> None:
        worker = cluster.worker("first")
        worker.start()
        first = dialogue(9, 900)
        taken = await published(cluster, first[:600])
        await cluster.quiet()
        await stopped(worker)
        for number in range(cluster.settings.partitions):
            path = worker.data / "first" / str(number) / "store"
            store = WarmStore(path, log_name="log")
            store.flush()
            store.close()
            damage(path)
        worker.start()
        # The same sessions go on: their heads have to be read.
        taken += await published(cluster, first[600:])
        restarts = 0
        while restarts < 3:
            try:
                await cluster.quiet(30)
                break
            except AssertionError:
                # What only a read finds ends the worker; the next start rebuilds.
                assert worker.process is not None
                assert await ended(worker) == CORRUPT, worker.last_words()
                restarts += 1
                worker.start()
        assert '"event": "partition.damaged"' in worker.last_words()
        await finished(cluster, worker, taken)

    play(kafka, tmp_path, scenario)


def test_a_changelog_that_was_made_anew_is_filled_from_the_log(
    kafka: str, tmp_path: Path
) -> None:
    async def scenario(cluster: Cluster) -> None:
        worker = cluster.worker("first")
        worker.start()
        taken = await published(cluster, dialogue(10, 300))
        await cluster.quiet()
        await stopped(worker)
        await cluster.admin.delete_topics([cluster.topics.changelog])
        await cluster.until(lambda: _is_gone(cluster, cluster.topics.changelog), "gone")
        await create_topics(cluster.settings)
        taken += await published(cluster, dialogue(11, 50))
        worker.start()
        await finished(cluster, worker, taken)
        assert '"event": "restore.wiped"' in worker.last_words()

    play(kafka, tmp_path, scenario)


def test_turns_that_were_made_anew_are_all_folded(kafka: str, tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        worker = cluster.worker("first")
        worker.start()
        await published(cluster, dialogue(12, 300))
        await cluster.quiet()
        await stopped(worker)
        await cluster.admin.delete_topics([cluster.topics.turns])
        await cluster.until(lambda: _is_gone(cluster, cluster.topics.turns), "gone")
        await create_topics(cluster.settings)
        # Fewer than before: their offsets are all below what was folded.
        again = await published(cluster, dialogue(13, 100))
        worker.start()
        await cluster.quiet()
        await stopped(worker)

        told = {
            Op.decode(raw).turn_id
            for each in await cluster.records(cluster.topics.deltas)
            for raw in delta_of(each).records
        }
        assert {turn.turn_id for turn in again} <= told

    play(kafka, tmp_path, scenario)


async def _is_gone(cluster: Cluster, topic: str) -> bool:
    return topic not in await cluster.admin.list_topics()


def test_turns_that_were_deleted_before_they_were_folded_end_the_worker(
    kafka: str, tmp_path: Path
) -> None:
    async def scenario(cluster: Cluster) -> None:
        worker = cluster.worker("first")
        worker.start()
        await published(cluster, dialogue(14, 300))
        folded = await cluster.quiet()
        await stopped(worker)
        await published(cluster, dialogue(15, 300))
        cut = folded[0] + 5
        place = TopicPartition(cluster.topics.turns, 0)
        await cluster.admin.delete_records({place: RecordsToDelete(cut)})
        worker.start()
        assert await ended(worker) == UNAVAILABLE
        words = worker.last_words()
        said = f"turns {folded[0]} to {cut - 1} of partition 0 were deleted"
        assert said in words, words
        assert (await cluster.committed())[0] == folded[0]

    play(kafka, tmp_path, scenario)
