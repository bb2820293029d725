"""What a worker answers others: queries by TCP, metrics and health by HTTP."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from aiokafka.errors import KafkaError
from faust.types import TP

from turnstate.storage.warm.tables import HEADS, STATE_TABLES
from turnstate.streams.embedded.serving import RequestServer
from turnstate.streams.kafka.app import WorkerApp
from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.fresh import FreshPartitions
from turnstate.streams.kafka.metrics_server import MetricsServer
from turnstate.streams.kafka.progress import Reading, WorkerProgress
from turnstate.streams.kafka.query_server import listening, query_server, url_of
from turnstate.streams.kafka.read_gate import GateShutError
from turnstate.streams.kafka.worker_archive import WorkerArchive
from turnstate.streams.kafka.worker_backups import WorkerBackups
from turnstate.streams.kafka.worker_erasing import WorkerErasing
from turnstate.streams.kafka.worker_moves import WorkerMoves
from turnstate.streams.kafka.worker_reads import WorkerReads
from turnstate.streams.settings import Settings

ENDS_S: Final = 2.0
"""How often the brokers are asked where the log ends."""

TIERS_S: Final = 10.0
"""How often bytes are counted by tier."""

_DRAIN_S: Final = 5.0
_CALM_S: Final = 30.0


class WorkerDoors:
    """Listen before the group is joined, for its metadata hold the address.

    Args:
        cluster: Says where to listen.
        settings: Say where the archive is.

    Raises:
        UnavailableError: the address cannot be had.
    """

    def __init__(self, cluster: ClusterSettings, settings: Settings) -> None:
        self._cluster = cluster
        self._settings = settings
        self._listener = listening(cluster.query_host, cluster.query_port)
        self.url = url_of(self._listener)
        self.progress = WorkerProgress()
        self._queries: RequestServer | None = None
        self._backups: WorkerBackups | None = None
        self._erasing: WorkerErasing | None = None
        self._metrics: MetricsServer | None = None
        self._ends: dict[int, int] = {}
        self._asked_ends = self._asked_tiers = float("-inf")
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, app: WorkerApp, log: bytes) -> None:
        """Answer from here on.

        Raises:
            UnavailableError: the metrics port cannot be had.
        """
        loop = asyncio.get_running_loop()
        if self._cluster.metrics_port:
            self._metrics = MetricsServer(app.metrics.text, self.progress)
            await self._metrics.start(
                self._cluster.query_host, self._cluster.metrics_port
            )

        def calmly(call: Callable[[], Any]) -> Any:
            # A checkpoint writes in one step of the loop, so nothing is between.
            async def alone() -> Any:
                return call()

            return asyncio.run_coroutine_threadsafe(alone(), loop).result(_CALM_S)

        moves = WorkerMoves(
            FreshPartitions(app, log),
            app.checkpointer,
            app.tiers.packs,
            loop,
            app.tiers.now_ms,
        )
        self._backups = WorkerBackups(
            FreshPartitions(app, log),
            app.checkpointer,
            self._cluster,
            app.metrics.backups,
            loop,
            app.tiers.clock,
        )
        self._erasing = WorkerErasing(
            FreshPartitions(app, log),
            moves,
            loop,
            app.tiers.clock,
            app.folder,
            lambda: {*app.partitions, *app.closing},
        )
        reads = WorkerReads(
            app,
            partitions=self._cluster.partitions,
            log=log,
            calmly=calmly,
            moves=moves,
            backups=self._backups,
            erasing=self._erasing,
            expiry=app.expiry,
        )
        moves.archiving = WorkerArchive(reads, self._settings, app.tiers.clock)
        self._queries = query_server(self._listener, reads, log)
        self._queries.start()

    def measure(self, app: WorkerApp) -> None:
        """Note progress; called about once a second, takes no time."""
        restored = 0 if app.restoring is None else app.restoring.done
        readings = {
            number: Reading(
                partition.folded[0] if partition.folded else None,
                0 if partition.is_fresh else restored,
                partition.is_fresh,
            )
            for number, partition in app.partitions.items()
        }
        self.progress.note(readings, self._ends)
        app.metrics.partitions(readings, self._ends)
        if self._erasing is not None:
            self._erasing.look()
        now = time.monotonic()
        if now - self._asked_ends > ENDS_S and readings:
            self._asked_ends = now
            self._begin(self._find_ends(app))
        if now - self._asked_tiers > TIERS_S:
            self._asked_tiers = now
            self._begin(self._count_tiers(app))

    async def close(self) -> None:
        """Answer what was begun, and hang up."""
        for task in self._tasks:
            task.cancel()
        if self._backups is not None:
            self._backups.close()
        if self._erasing is not None:
            self._erasing.close()
        if self._metrics is not None:
            await self._metrics.close()
        if self._queries is None:
            self._listener.close()
        else:
            await asyncio.to_thread(self._queries.close, _DRAIN_S)

    # -- inside ------------------------------------------------------------------

    def _begin(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _find_ends(self, app: WorkerApp) -> None:
        """Ask the brokers: who does not fetch hears of no new end."""
        tps = [TP(app.topics_named.turns, number) for number in app.partitions]
        # During a rebalance, or without brokers, the ends of before stand.
        with suppress(KafkaError, TimeoutError, AssertionError, RuntimeError):
            async with asyncio.timeout(_DRAIN_S):
                found = await app.consumer.highwaters(*tps)
            self._ends = {tp.partition: end for tp, end in found.items() if end}

    async def _count_tiers(self, app: WorkerApp) -> None:
        app.metrics.tiers(await asyncio.to_thread(_tiers, app))


def _tiers(app: WorkerApp) -> dict[str, tuple[int, int]]:
    """Return about how many sessions and bytes each tier has."""
    hot = hot_bytes = warm = warm_bytes = 0
    for partition in list(app.partitions.values()):
        with suppress(GateShutError), partition.gate.reading():
            redis = partition.redis
            hot += len(partition.hot if redis is None else redis.books)
            hot_bytes += (
                partition.hot.bytes_held if redis is None else redis.books.bytes
            )
            warm += partition.store.rows_about(HEADS)
            warm_bytes += partition.store.table_bytes(STATE_TABLES)
    return {"hot": (hot, hot_bytes), "warm": (max(warm - hot, 0), warm_bytes)}
