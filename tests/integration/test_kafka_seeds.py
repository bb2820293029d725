"""A partition that begins with a backup: given up half-way, refused, never twice."""

import asyncio
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from support.both_ways import Running, both_ways
from support.cluster_backups import more_turns, place_of, said
from support.cluster_checks import LOG_NAME
from turnstate.agents.ports import Clock
from turnstate.schemas.dialogue.phases import default_graph
from turnstate.schemas.errors import ConflictError, CorruptDataError
from turnstate.storage.backup.manifest import read_manifest
from turnstate.storage.cold.directory import DirectoryObjects
from turnstate.storage.warm.tables import STATE_TABLES
from turnstate.streams.clock import SystemClock, VirtualClock
from turnstate.streams.embedded.restoring import restore as restore_embedded
from turnstate.streams.kafka.cluster_backups import replace_backups
from turnstate.streams.kafka.metrics import WorkerMetrics
from turnstate.streams.kafka.partition import Partition, PartitionSizes
from turnstate.streams.kafka.restore import RestoreProgress, restore
from turnstate.streams.kafka.seeds import Seeds
from turnstate.streams.kafka.topic_ids import topic_id
from turnstate.streams.settings import Settings

NUMBER = 2
DAY_MS = 86_400_000


@pytest.fixture(name="running", scope="module")
def fixture_running(
    kafka: str, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Running]:
    """What two workers left: a backup of each partition, and some turns since."""
    folder = tmp_path_factory.mktemp(f"seeds-{uuid4().hex[:8]}")
    with both_ways(
        kafka, folder, TURNSTATE_BACKUPS=str(folder / "backups")
    ) as running:
        running.quiet()
        assert said(running, "backup")[0] == 0
        more_turns(running, "since", 60)
        # So that the changelog stands still.
        for worker in running.cluster.workers.values():
            assert worker.stop() == 0
        yield running


class Disk:
    """A worker's disk with one partition, restored in this process."""

    def __init__(
        self, running: Running, folder: Path, clock: Clock | None = None
    ) -> None:
        self.running = running
        self.topic = running.cluster.topics.changelog
        self.changelog_id = running.thread.run(topic_id(running.settings, self.topic))
        self.folder = folder
        self.metrics = WorkerMetrics()
        self.told: list[RestoreProgress] = []
        backups = self.metrics.backups
        self.seeds = Seeds(
            folder, running.settings, self.changelog_id, backups, clock or SystemClock()
        )

    @contextmanager
    def opened(self) -> Generator[Partition]:
        """Open the partition's store."""
        made = Partition(
            self.folder / str(NUMBER) / "store",
            NUMBER,
            partitions=self.running.settings.partitions,
            changelog_id=self.changelog_id,
            sizes=PartitionSizes(1 << 20, 8 << 20, 3600),
            log_name=LOG_NAME,
            graph=default_graph(),
            clock=SystemClock(),
        )
        with closing(made):
            yield made

    @property
    def gathered(self) -> list[Path]:
        """The files that were fetched and are no store yet."""
        return list((self.folder / str(NUMBER) / "backup.restoring").glob("*"))

    def restore(
        self, partition: Partition, is_current: Callable[[], bool] = lambda: True
    ) -> "asyncio.Task[set[int]]":
        """Begin to restore; call it on an event loop."""
        self.told.clear()
        return asyncio.ensure_future(
            restore(
                self.running.settings,
                self.topic,
                {NUMBER: partition},
                self.told.append,
                is_current=is_current,
                seed=self.seeds.seed,
            )
        )

    def restored(self, partition: Partition) -> RestoreProgress:
        """Restore to the end; return the last of what was told."""

        asyncio.run(_whole(self, partition))
        return self.told[-1]

    def met(self, result: str) -> bool:
        """Say whether a backup was met so, once."""
        told = f'turnstate_restores_from_backup_total{{result="{result}"}} 1.0'
        return told in self.metrics.text()


async def _whole(disk: Disk, partition: Partition) -> None:
    await disk.restore(partition)


@pytest.fixture(name="disk")
def fixture_disk(running: Running, tmp_path: Path) -> Generator[Disk]:
    disk = Disk(running, tmp_path)
    yield disk
    disk.seeds.close()


@pytest.fixture(name="slow")
def fixture_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every object take its time, so that something can come between."""
    read = DirectoryObjects.read

    def slow(
        self: DirectoryObjects, name: str, start: int = 0, length: int | None = None
    ) -> bytes:
        time.sleep(0.1)
        return read(self, name, start, length)

    monkeypatch.setattr(DirectoryObjects, "read", slow)


def _tail(disk: Disk) -> tuple[int, int]:
    """Return how much the changelog has behind the backup, and in all."""
    facts = read_manifest(place_of(disk.running, NUMBER)).partition
    assert facts is not None
    ends = disk.running.thread.run(disk.running.cluster.ends(disk.topic))
    return ends[NUMBER] - facts.offset - 1, ends[NUMBER]


def test_only_the_tail_is_read_and_all_rows_are_those_of_the_whole_changelog(
    disk: Disk, tmp_path: Path
) -> None:
    tail, whole = _tail(disk)
    with disk.opened() as partition:
        last = disk.restored(partition)
        assert (last.total, last.files) == (tail, None)
        assert 0 < last.done <= tail < whole
        files = [each.files for each in disk.told if each.files is not None]
        assert files[-1][0] == files[-1][1] == len(files) > 0
        assert disk.met("taken")
        assert disk.gathered == []
        alone = Disk(disk.running, tmp_path / "alone")
        with alone.opened() as other:
            asyncio.run(
                restore(
                    alone.running.settings, alone.topic, {NUMBER: other}, lambda _: None
                )
            )
            assert partition.applied == other.applied
            for table in STATE_TABLES:
                rows = dict(partition.store.rows(table))
                assert rows == dict(other.store.rows(table))
        alone.seeds.close()


@pytest.mark.usefixtures("slow")
def test_a_rebalance_in_the_middle_leaves_the_store_alone(disk: Disk) -> None:
    asked = 0

    def is_current() -> bool:
        nonlocal asked
        asked += 1
        return asked < 4

    async def rebalanced(partition: Partition) -> None:
        assert await disk.restore(partition, is_current) == set()

    async def cancelled(partition: Partition) -> None:
        task = disk.restore(partition)
        while not any(each.files for each in disk.told):
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert partition.applied.offset == -1
        # The next one comes at once, while the thread is at its file still.
        await disk.restore(partition)

    with disk.opened() as partition:
        asyncio.run(rebalanced(partition))
        assert partition.applied.offset == -1
        assert disk.gathered
        assert not disk.met("taken")
        asyncio.run(cancelled(partition))
        assert disk.met("taken")
        assert disk.told[-1].total == _tail(disk)[0]
    assert disk.gathered == []


def test_a_backup_whose_store_did_not_last_is_not_taken_again(disk: Disk) -> None:
    with disk.opened() as partition:
        disk.restored(partition)
        with pytest.raises(CorruptDataError), partition.condemning():
            raise CorruptDataError("a block is wrong")
    with disk.opened() as partition:
        assert partition.applied.offset == -1
        assert disk.restored(partition).total == _tail(disk)[1]
        assert disk.met("refused")


def test_a_backup_that_is_too_old_is_refused(running: Running, tmp_path: Path) -> None:
    later = VirtualClock(SystemClock().now_ms() + 7 * DAY_MS)
    disk = Disk(running, tmp_path, later)
    with disk.opened() as partition:
        assert disk.restored(partition).total == _tail(disk)[1]
    assert disk.met("refused")
    disk.seeds.close()


def test_a_partition_that_has_something_is_left_alone(disk: Disk) -> None:
    with disk.opened() as partition:
        disk.restored(partition)
        before = partition.applied
    with disk.opened() as partition:
        asyncio.run(_whole(disk, partition))
        assert disk.told == []
        assert partition.applied == before
    assert disk.met("taken")


def test_the_backup_of_a_partition_is_no_store_of_its_own(
    running: Running, tmp_path: Path
) -> None:
    place = str(place_of(running, NUMBER).path)
    with pytest.raises(ConflictError) as caught:
        restore_embedded(Settings(data=tmp_path / "data"), place, access={})
    assert caught.value.code == "of_a_partition"
    with running.reader() as reader:
        # An erase that touched no partition touches no backup.
        done = replace_backups(reader, [])
    assert done["partitions"] == []


def test_what_is_left_of_partitions_that_went_is_removed(disk: Disk) -> None:
    for number in (NUMBER, NUMBER + 1):
        for name in ("store", "store.checkpoint", "backup.restoring"):
            (disk.folder / str(number) / name).mkdir(parents=True)
    disk.seeds.drop_others({NUMBER})
    left = {str(path.relative_to(disk.folder)) for path in disk.folder.glob("*/*")}
    mine = {f"{NUMBER}/{n}" for n in ("store", "store.checkpoint", "backup.restoring")}
    assert left == mine | {f"{NUMBER + 1}/store"}
