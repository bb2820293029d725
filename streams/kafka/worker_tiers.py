"""What a worker has of tiers beside its stores: Redis above them, packs below."""

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from turnstate.agents.ports import Clock
from turnstate.storage.cold.deadline import WAIT_S
from turnstate.storage.cold.sessions import ColdSessions
from turnstate.storage.warm.below import Below
from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.cold_place import ClusterPacks, cold_place
from turnstate.streams.kafka.hot_settings import redis_settings
from turnstate.streams.kafka.hot_watch import HotWatch
from turnstate.streams.kafka.metrics import WorkerMetrics
from turnstate.streams.kafka.partition import Partition

if TYPE_CHECKING:
    from turnstate.storage.hot.redis_connection import RedisSettings
    from turnstate.storage.hot.redis_marks import Marks

LOOK_S: Final = 0.5
"""How often marks are renewed and stale sessions are forgotten in Redis."""


class WorkerTiers:
    """Connect a worker's partitions with the tiers that the settings name.

    Made, and used, on the worker's event loop.

    Args:
        cluster: Says where the tiers are.
        changelog_id: The topic id of the changelog.
        metrics: Counted into.
        clock: Tells the time.
        ttl_ms: How long after its last turn a session is served; 0 = for ever.
        cold_wait_s: How long a read waits for the cold tier in all.

    Attributes:
        clock: Tells the time.
        packs: Of the cold tier; opened when they are first needed.
        below: Where cold sessions are read; None where there is no cold tier.

    Raises:
        UnavailableError: redis-py is not installed.
        InvalidInputError: a URL or a place makes no sense.
    """

    def __init__(
        self,
        cluster: ClusterSettings,
        changelog_id: bytes,
        metrics: WorkerMetrics,
        clock: Clock,
        ttl_ms: int = 0,
        cold_wait_s: float = WAIT_S,
    ) -> None:
        self._ttl_ms = ttl_ms
        self.clock = clock
        self.now_ms = clock.now_ms
        self._watch = HotWatch(metrics.moves)
        self._redis: RedisSettings | None = None
        self._marks: Marks | None = None
        if cluster.redis:
            self._redis = redis_settings(cluster, changelog_id)
            self._marks = _marks(self._redis)
            metrics.moves.hot_state(up=True)
        self.packs = ClusterPacks(cluster, clock)
        self._cold = (
            ColdSessions(self.packs, wait_s=cold_wait_s)
            if cold_place(cluster)
            else None
        )
        self.below: Below | None = self._cold

    def take(self, partition: Partition) -> None:
        """Give a partition that was opened its place in the hot tier."""
        if self._redis is not None and self._marks is not None:
            from turnstate.streams.kafka.hot_tier import HotPartition

            partition.redis = HotPartition(
                partition.number,
                self._redis,
                self._marks,
                self._watch,
                self.now_ms,
                self._ttl_ms,
            )

    async def let_go(self, partition: Partition) -> None:
        """Hang up for a partition that is another worker's now."""
        if partition.redis is not None:
            redis, partition.redis = partition.redis, None
            await redis.close()

    async def look_after_hot(
        self,
        partitions: Callable[[], Mapping[int, Partition]],
        owns: Callable[[], bool],
    ) -> None:
        """Keep what Redis says true and known, until cancelled.

        Args:
            partitions: Those of this worker.
            owns: Says whether nobody else can own them yet.
        """
        while self._marks is not None:
            await asyncio.sleep(LOOK_S)
            for partition in list(partitions().values()):
                redis = partition.redis
                if redis is not None and partition.is_fresh and owns():
                    folded = partition.folded
                    await redis.upkeep(-1 if folded is None else folded[0])

    async def close(self, partitions: Mapping[int, Partition]) -> None:
        """Hang up everywhere."""
        for partition in partitions.values():
            await self.let_go(partition)
        if self._marks is not None:
            await self._marks.close()
        if self._cold is not None:
            await asyncio.to_thread(self._cold.close)


def _marks(settings: "RedisSettings") -> "Marks":
    # Only where Redis is configured its library has to be there.
    from turnstate.storage.hot.redis_marks import Marks

    return Marks(settings)
