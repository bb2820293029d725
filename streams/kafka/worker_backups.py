"""Back up a worker's partitions while they are folded, one after another."""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final

import structlog

from turnstate.agents.ports import Clock
from turnstate.schemas.errors import TurnstateError, UnavailableError
from turnstate.storage.backup.checkpoint import remove_checkpoint
from turnstate.storage.backup.manifest import FILES, numbers
from turnstate.storage.backup.snapshot import Taken, collect, take_backup
from turnstate.storage.cold.objects import ObjectStore
from turnstate.streams.documents import Document
from turnstate.streams.embedded.backup_lease import held_place
from turnstate.streams.embedded.messages import error_parts
from turnstate.streams.kafka.backup_metrics import BackupMetrics
from turnstate.streams.kafka.backup_place import is_unused, opened_backups
from turnstate.streams.kafka.backup_queries import BackupQuery, BackupStateQuery
from turnstate.streams.kafka.checkpoint import Checkpointer
from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.fresh import FreshPartitions
from turnstate.streams.kafka.partition import Partition
from turnstate.streams.kafka.partition_files import Facts, facts_in, link_files
from turnstate.streams.kafka.read_gate import GateShutError

_log = structlog.get_logger(__name__)

LINK_S: Final = 60.0
"""How long a backup waits for the round under way, and for the files' links."""


class _Run:
    """One backup: who asked for it, how far it is, what came of it."""

    def __init__(self, job: str) -> None:
        self.job = job
        self.done = self.total = 0
        self.document: Document | None = None
        self.error: TurnstateError | None = None

    @property
    def is_over(self) -> bool:
        return self.document is not None or self.error is not None

    def told(self) -> Document:
        if self.document is not None:
            return {"state": "made", **self.document}
        if self.error is not None:
            return {"state": "failed", "error": error_parts(self.error)}
        return {"state": "running", "done": self.done, "total": self.total}


class WorkerBackups:
    """Make backups that jobs ask for; they go on in a thread of their own.

    RocksDB's files are linked between two rounds, so that what was folded and
    the changelog's offset agree; nothing else of a backup is in the way of the
    fold. Two workers may be at one partition's place, where it has just moved:
    the number of a backup is created once, so one of them fails.

    Args:
        parts: The worker's partitions.
        checkpointer: Makes its rounds.
        cluster: Names the place.
        metrics: Counted into.
        loop: Of the worker.
        clock: For when a backup was made.
    """

    def __init__(
        self,
        parts: FreshPartitions,
        checkpointer: Checkpointer,
        cluster: ClusterSettings,
        metrics: BackupMetrics,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
    ) -> None:
        self._parts = parts
        self._checkpointer = checkpointer
        self._cluster = cluster
        self._metrics = metrics
        self._loop = loop
        self._clock = clock
        self._lock = threading.Lock()
        self._runs: dict[int, _Run] = {}
        self._closing = False
        self._pool = ThreadPoolExecutor(1, "turnstate-backups")

    def close(self) -> None:
        """Begin no more; what is under way ends with the file that it is at."""
        self._closing = True
        self._pool.shutdown(wait=False, cancel_futures=True)

    # -- what jobs ask ------------------------------------------------------------

    def start(self, query: BackupQuery) -> Document:
        """Begin a backup of a partition, and answer how far it is.

        Raises:
            UnavailableError: the partition is not this worker's, or another job
                backs it up (code `backup_under_way`).
        """
        partition = self._parts.partition(query.partition)
        self._parts.check_fresh(partition)
        with self._lock:
            known = self._runs.get(query.partition)
            if known is not None and known.job == query.job:
                return known.told()
            if known is not None and not known.is_over:
                raise UnavailableError(
                    f"a backup of partition {query.partition} is under way",
                    field="partition",
                    hint="wait for it",
                    code="backup_under_way",
                )
            if self._closing:
                raise _ending()
            run = self._runs[query.partition] = _Run(query.job)
            self._pool.submit(self._run, run, query)
            return run.told()

    def state(self, query: BackupStateQuery) -> Document:
        """Return how far a backup is; `unknown` where this worker began none."""
        with self._lock:
            known = self._runs.get(query.partition)
        if known is None or known.job != query.job:
            return {"state": "unknown"}
        return known.told()

    # -- one backup ---------------------------------------------------------------

    def _run(self, run: _Run, query: BackupQuery) -> None:
        try:
            run.document = self._made(run, query)
        except TurnstateError as error:
            self._failed(run, query, error)
        except Exception as error:  # noqa: BLE001 - whoever asked is told
            _log.exception("backup.failed", partition=query.partition)
            self._failed(run, query, UnavailableError(f"the backup failed: {error!r}"))

    def _failed(self, run: _Run, query: BackupQuery, error: TurnstateError) -> None:
        self._metrics.failed()
        _log.warning("backup.failed", partition=query.partition, why=str(error))
        run.error = error

    def _made(self, run: _Run, query: BackupQuery) -> Document:
        began = time.monotonic()
        number = query.partition
        if query.replaces and is_unused(self._cluster, number, query.where):
            return {"number": None, "removed": []}
        with opened_backups(
            self._cluster, number, query.where, may_make=not query.replaces
        ) as objects:
            if query.replaces and not _holds_backups(objects):
                return {"number": None, "removed": []}
            holder = f"partition {number} of group {self._cluster.group}"
            partition = self._parts.partition(number)
            with held_place(objects, holder, self._clock) as still_held:

                def told(done: int, total: int) -> None:
                    if self._closing:
                        raise _ending()
                    if self._parts.partition(number) is not partition:
                        raise _moving(partition)
                    still_held()
                    run.done, run.total = done, total

                facts, taken = self._taken(partition, objects, told)
                keep = 1 if query.replaces else query.keep
                removed: list[int] = []
                if keep is not None:
                    still_held()
                    unused = {"unused_age_ms": 0} if query.replaces else {}
                    now_ms = self._clock.now_ms()
                    gone = collect(objects, keep=keep, now_ms=now_ms, **unused)
                    removed = gone.backups
        self._metrics.made(number, taken.manifest.time_ms, taken.bytes_new)
        return {
            "number": taken.manifest.number,
            "position": facts.store.position,
            "offset": facts.partition.offset,
            "files": len(taken.manifest.files),
            "bytes": taken.manifest.bytes,
            "files_new": taken.files_new,
            "bytes_new": taken.bytes_new,
            "removed": removed,
            "seconds": round(time.monotonic() - began, 3),
        }

    def _taken(
        self,
        partition: Partition,
        objects: ObjectStore,
        told: Callable[[int, int], None],
    ) -> tuple[Facts, Taken]:
        self._parts.check_fresh(partition)
        now_ms = self._clock.now_ms()
        folder = self._linked(partition)
        try:
            facts = facts_in(
                folder,
                log_name=partition.log_name,
                number=partition.number,
                partitions=partition.partitions,
            )
            taken = take_backup(
                objects,
                folder,
                facts.store,
                now_ms,
                partition=facts.partition,
                progress=told,
            )
        finally:
            remove_checkpoint(folder)
        return facts, taken

    def _linked(self, partition: Partition) -> Path:
        """Have the files linked while nothing is folded.

        Raises:
            UnavailableError: the partition goes, or the round under way takes
                too long (code `busy`).
        """
        gone = threading.Event()
        try:
            # Most of what is in memory is written before the fold has to wait.
            with partition.gate.reading():
                partition.store.flush()
        except GateShutError:
            raise _moving(partition) from None
        future: Future[Path] = asyncio.run_coroutine_threadsafe(
            self._between(partition, gone), self._loop
        )
        try:
            return future.result(LINK_S)
        except TimeoutError:
            gone.set()
            future.cancel()
            raise UnavailableError(
                "the worker is in the middle of a long round",
                hint="ask again in a moment",
                code="busy",
            ) from None

    async def _between(self, partition: Partition, gone: threading.Event) -> Path:
        def linked_files() -> Path:
            try:
                folder = link_files(partition)
            except GateShutError:
                raise _moving(partition) from None
            try:
                self._parts.check_fresh(partition)
                if gone.is_set():
                    raise _moving(partition)
            except UnavailableError:
                remove_checkpoint(folder)
                raise
            return folder

        async def linked() -> Path:
            return await asyncio.to_thread(linked_files)

        found: Path = await self._checkpointer.between(linked)
        return found


def _holds_backups(objects: ObjectStore) -> bool:
    return bool(numbers(objects)) or any(True for _ in objects.list(FILES))


def _ending() -> UnavailableError:
    return UnavailableError(
        "the worker is ending", hint="ask again in a moment", code="not_here"
    )


def _moving(partition: Partition) -> UnavailableError:
    return UnavailableError(
        f"partition {partition.number} is being handed over",
        field="partition",
        hint="ask again in a moment",
        code="not_fresh",
    )
