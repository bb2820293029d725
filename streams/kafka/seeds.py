"""Begin the restore of an empty partition with its latest backup, where one will do."""

import asyncio
import shutil
import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from turnstate.agents.ports import Clock
from turnstate.schemas.errors import NotFoundError, TurnstateError, UnavailableError
from turnstate.storage.backup.checkpoint import checkpoint_folder
from turnstate.storage.backup.manifest import Manifest, PartitionFacts, read_manifest
from turnstate.storage.backup.restore import fetch_backup, restoring_folder
from turnstate.storage.warm.changelog_records import Epoch
from turnstate.streams.kafka.applied import Applied
from turnstate.streams.kafka.backup_metrics import BackupMetrics
from turnstate.streams.kafka.backup_place import opened_backups, partition_place
from turnstate.streams.kafka.backup_rules import Changelog, why_not
from turnstate.streams.kafka.changelog_topic import tombstones_kept_ms
from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.partition import Partition
from turnstate.streams.kafka.restore import Empty
from turnstate.streams.kafka.topics import Topics

_log = structlog.get_logger(__name__)

FETCHES_AT_ONCE: Final = 2
"""Partitions whose files are fetched at a time; each has one file in memory."""

STORE: Final = "store"
"""The folder of a partition's store, in that of the partition."""

_FETCHED: Final = "backup"
"""Beside the store, with an ending: where files are gathered."""

_TAKEN: Final = "backup.taken"
"""Beside the store: which backup it began with."""

Told = Callable[[int, int], object]
"""Is told how many files of backups are there, and of how many."""


class _NotTakenError(Exception):
    """The latest backup will not do; the argument says why."""


class _GivenUpError(Exception):
    """Another rebalance has begun."""


class Seeds:
    """Put the files of a backup where a store is empty; the changelog's tail follows.

    What a backup holds is no more than a beginning of what the changelog says,
    so whatever is wrong with one only costs time: the changelog is read whole.

    Args:
        folder: Of the worker: below it one for each partition.
        cluster: Names the place.
        changelog_id: The topic id of the changelog.
        metrics: Counted into.
        clock: For the age of backups.
    """

    def __init__(
        self,
        folder: Path,
        cluster: ClusterSettings,
        changelog_id: bytes,
        metrics: BackupMetrics,
        clock: Clock,
    ) -> None:
        self._folder = folder
        self._cluster = cluster
        self._changelog_id = changelog_id
        self._metrics = metrics
        self._clock = clock
        self._pool = ThreadPoolExecutor(FETCHES_AT_ONCE, "turnstate-seeds")
        self._fetches: dict[int, Future[Manifest]] = {}
        self._stops: list[threading.Event] = []

    def close(self) -> None:
        """Fetch no more."""
        for stop in self._stops:
            stop.set()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def drop_others(self, mine: Collection[int]) -> None:
        """Remove what is left of partitions that went while it was fetched or linked.

        It holds bytes that their owners may erase.

        Args:
            mine: The partitions of this worker; theirs is left alone.
        """
        for name in (checkpoint_folder(Path(STORE)), restoring_folder(Path(_FETCHED))):
            for left in self._folder.glob(f"*/{name}"):
                number = left.parent.name
                if number.isdecimal() and int(number) not in mine:
                    shutil.rmtree(left, ignore_errors=True)

    async def seed(
        self,
        empty: Sequence[Empty],
        is_current: Callable[[], bool],
        told: Told,
    ) -> None:
        """Begin with backups, where there are some that will do.

        Args:
            empty: Partitions that have nothing.
            is_current: Asked between files; where it says no, another rebalance
                has begun.
            told: Is told how far it is.
        """
        if not self._cluster.backups or not empty:
            return
        try:
            topic = Topics.of(self._cluster).changelog
            kept_ms = await tombstones_kept_ms(self._cluster, topic)
        except UnavailableError as error:
            _log.warning("restore.no_backup", why=str(error))
            return
        loop = asyncio.get_running_loop()

        def tell(done: int, total: int) -> None:
            loop.call_soon_threadsafe(told, done, total)

        watch = _Watch(tell, is_current)
        self._stops = [watch.stop]
        try:
            await asyncio.gather(*(self._one(each, kept_ms, watch) for each in empty))
        finally:
            watch.stop.set()

    async def _one(self, empty: Empty, kept_ms: int, watch: "_Watch") -> None:
        partition = empty.partition
        former = self._fetches.get(partition.number)
        if former is not None:
            # Of before a rebalance: it ends with the file that it is at.
            with suppress(Exception):
                await asyncio.wrap_future(former)
        changelog = Changelog(
            self._changelog_id,
            self._cluster.partitions,
            empty.begin,
            empty.end,
            kept_ms,
        )
        fetch = partial(self._fetched, partition, changelog, watch)
        future = self._fetches[partition.number] = self._pool.submit(fetch)
        try:
            # A cancelled wait leaves the thread alone; it sees the stop itself.
            manifest = await asyncio.shield(asyncio.wrap_future(future))
            self._adopt(partition, manifest)
        except _GivenUpError:
            return
        except NotFoundError:
            return  # there is no backup
        except _NotTakenError as why:
            self._warn(partition, "refused", str(why))
        except (TurnstateError, OSError) as error:
            self._warn(partition, "damaged", str(error))
        if watch.is_current():
            drop_gathered(partition)

    def _fetched(
        self, partition: Partition, changelog: Changelog, watch: "_Watch"
    ) -> Manifest:
        """Fetch and verify the files; in a thread."""
        watch.check()
        number = partition.number
        with opened_backups(self._cluster, number) as objects:
            latest = read_manifest(objects)
            why = why_not(
                latest,
                number,
                changelog,
                log_name=partition.log_name,
                now_ms=self._clock.now_ms(),
            )
            if why is not None:
                raise _NotTakenError(why)
            if _taken_before(partition) == self._named(number, latest):
                raise _NotTakenError("the store that began with it did not last")
            watch.expect(len(latest.files))
            sizes = iter(latest.files)

            def step(*_: int) -> None:
                watch.step()
                self._metrics.fetched(next(sizes).bytes)

            store = partition.store.path.with_name(_FETCHED)
            manifest, _ = fetch_backup(objects, store, latest.number, step)
            return manifest

    def _adopt(self, partition: Partition, manifest: Manifest) -> None:
        """Make the files the store; on the worker's loop, as whatever opens one.

        Raises:
            _NotTakenError: they are not what the manifest says.
            UnavailableError: the disk refuses.
        """
        facts = manifest.partition
        assert facts is not None, "the rules have looked at it"
        note = partition.store.path.with_name(_TAKEN)
        note.write_text(self._named(partition.number, manifest), encoding="utf-8")
        partition.adopt(_gathered(partition))
        if partition.applied != _applied(facts):
            partition.wipe()
            raise _NotTakenError("its files are not what its manifest says")
        self._metrics.met("taken")
        _log.info(
            "restore.from_backup",
            partition=partition.number,
            backup=manifest.number,
            offset=facts.offset,
        )

    def _named(self, number: int, manifest: Manifest) -> str:
        place = partition_place(self._cluster, number)
        return f"{place} {manifest.number} {manifest.time_ms}"

    def _warn(self, partition: Partition, result: str, why: str) -> None:
        self._metrics.met(result)
        _log.warning(
            "restore.no_backup",
            partition=partition.number,
            why=why,
            hint="the whole changelog is read in its place",
        )


class _Watch:
    """Count files as they come, and stop where another rebalance has begun."""

    def __init__(self, told: Told, is_current: Callable[[], bool]) -> None:
        self.is_current = is_current
        self.stop = threading.Event()
        self._told = told
        self._lock = threading.Lock()
        self._done = self._total = 0

    def expect(self, files: int) -> None:
        with self._lock:
            self._total += files

    def step(self) -> None:
        self.check()
        with self._lock:
            self._done += 1
            self._told(self._done, self._total)

    def check(self) -> None:
        if self.stop.is_set() or not self.is_current():
            raise _GivenUpError


def drop_gathered(partition: Partition) -> None:
    """Remove what a restore that was given up has fetched: it is not needed."""
    shutil.rmtree(_gathered(partition), ignore_errors=True)


def _gathered(partition: Partition) -> Path:
    return restoring_folder(partition.store.path.with_name(_FETCHED))


def _taken_before(partition: Partition) -> str | None:
    try:
        return partition.store.path.with_name(_TAKEN).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None


def _applied(facts: PartitionFacts) -> Applied:
    return Applied(bytes.fromhex(facts.changelog), facts.offset, Epoch(*facts.epoch))
