"""Rebuild partitions from the changelog by a batch loop, each to its end."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import structlog
from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition

from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.connections import started, unavailable
from turnstate.streams.kafka.partition import Partition

_log = structlog.get_logger(__name__)

RECORDS_A_BATCH: Final = 4_000
"""Records of one RocksDB batch: about 10 ms, after which others have their turn."""

_FETCH_BYTES: Final = 8 << 20
_WAIT_MS: Final = 200
_SILENCE_S: Final = 60.0
"""How long the brokers may give nothing before the restore gives up."""


class RestoreProgress(NamedTuple):
    """How far a restore has come.

    Attributes:
        done: Records read so far.
        total: Records that there were when it began, tombstones and all.
        seconds: Since it began.
        files: Of backups that are fetched first: how many are there, of how many;
            None once records are read.
    """

    done: int
    total: int
    seconds: float
    files: tuple[int, int] | None = None


Told = Callable[[RestoreProgress], None]


class Empty(NamedTuple):
    """A partition that has nothing of its changelog.

    Attributes:
        partition: It.
        begin: The offset at which the changelog begins.
        end: Behind its last record.
    """

    partition: Partition
    begin: int
    end: int


class Seed(Protocol):
    """Who may give empty partitions something to begin with: see `seeds.py`."""

    async def __call__(
        self,
        empty: Sequence[Empty],
        is_current: Callable[[], bool],
        told: Callable[[int, int], object],
        /,
    ) -> None:
        """Give what there is."""
        ...


async def restore(
    settings: ClusterSettings,
    topic: str,
    partitions: Mapping[int, Partition],
    told: Told,
    *,
    is_current: Callable[[], bool] = lambda: True,
    between: Callable[[], Awaitable[None]] | None = None,
    seed: Seed | None = None,
) -> set[int]:
    """Apply what each partition's changelog has above its store.

    Reads to the end that the topic has when the loop begins; whoever wrote it
    does so no more, since the partitions are this worker's. Begins at what the
    store has; a store that is ahead of its changelog, or of another one, is
    thrown away and made anew.

    Args:
        settings: Where the brokers are.
        topic: The changelog.
        partitions: By number.
        told: Is told of progress, about once a batch.
        is_current: Asked between batches; where it says no, another rebalance
            has begun and the loop ends early.
        between: Awaited between batches, for tests.
        seed: Gives empty partitions something to begin with; None = the
            changelog is read whole.

    Returns:
        The partitions in which something was applied.

    Raises:
        UnavailableError: the brokers stay away.
        CorruptDataError: a record cannot be read.
    """
    if not partitions:
        return set()
    consumer = AIOKafkaConsumer(
        enable_auto_commit=False,
        auto_offset_reset="none",
        fetch_max_wait_ms=_WAIT_MS,
        max_partition_fetch_bytes=_FETCH_BYTES,
        max_poll_records=RECORDS_A_BATCH,
        check_crcs=False,
        **settings.client_options(),
    )
    try:
        await started(consumer, settings, "the changelog")
        loop = _Restore(consumer, topic, partitions, told)
        await loop.begin(is_current, seed)
        return await loop.run(is_current, between)
    except (KafkaError, OSError) as error:
        raise unavailable(settings, error, "the changelog") from error
    finally:
        await consumer.stop()


class _Restore:
    def __init__(
        self,
        consumer: AIOKafkaConsumer,
        topic: str,
        partitions: Mapping[int, Partition],
        told: Told,
    ) -> None:
        self._consumer = consumer
        self._topic = topic
        self._partitions = partitions
        self._told = told
        self._began = time.monotonic()
        self._ends: dict[TopicPartition, int] = {}
        self._done = self._total = self._stale = 0
        self.changed: set[int] = set()

    async def begin(self, is_current: Callable[[], bool], seed: Seed | None) -> None:
        """Find where each partition begins and ends; throw away what cannot be."""
        tps = [TopicPartition(self._topic, number) for number in self._partitions]
        self._consumer.assign(tps)
        begins = await self._consumer.beginning_offsets(tps)
        self._ends = dict(await self._consumer.end_offsets(tps))
        for tp in tps:
            partition = self._partitions[tp.partition]
            if (
                partition.is_of_another_changelog
                or partition.applied.offset >= self._ends[tp]
            ):
                _log.warning(
                    "restore.wiped",
                    partition=tp.partition,
                    why="the store is not of this changelog, or ahead of it",
                )
                partition.wipe()
                self.changed.add(tp.partition)
        if seed is not None:
            empty = [
                Empty(self._partitions[tp.partition], begins[tp], self._ends[tp])
                for tp in tps
                if self._ends[tp] > begins[tp]
                and self._partitions[tp.partition].applied.offset < 0
            ]
            await seed(empty, is_current, self._tell_files)
        for tp in tps:
            partition = self._partitions[tp.partition]
            start = max(partition.applied.offset + 1, begins[tp])
            self._consumer.seek(tp, start)
            self._total += self._ends[tp] - start
            if start >= self._ends[tp]:
                self._finish(tp)

    async def run(
        self,
        is_current: Callable[[], bool],
        between: Callable[[], Awaitable[None]] | None,
    ) -> set[int]:
        heard = time.monotonic()
        while self._ends and is_current():
            found: Mapping[Any, Any] = await self._consumer.getmany(
                timeout_ms=_WAIT_MS
            )
            for tp, records in found.items():
                heard = time.monotonic()
                self._apply(tp, records)
                await asyncio.sleep(0)
            for tp in list(self._ends):
                # A compacted topic may end before the offset that it ends at.
                if await self._consumer.position(tp) >= self._ends[tp]:
                    self._finish(tp)
            self._tell()
            if between is not None:
                await between()
            if time.monotonic() - heard > _SILENCE_S:
                raise KafkaError(f"nothing came for {_SILENCE_S:.0f} s")
        if self._stale:
            _log.warning("restore.stale", records=self._stale)
        return self.changed

    def _apply(self, tp: TopicPartition, records: Any) -> None:
        partition = self._partitions[tp.partition]
        self._stale += partition.apply([(each.offset, each.value) for each in records])
        self._done += len(records)
        self.changed.add(tp.partition)

    def _finish(self, tp: TopicPartition) -> None:
        del self._ends[tp]
        self._consumer.pause(tp)

    def _tell_files(self, done: int, total: int) -> None:
        seconds = time.monotonic() - self._began
        self._told(RestoreProgress(0, 1, seconds, (done, total)))

    def _tell(self) -> None:
        seconds = time.monotonic() - self._began
        self._told(RestoreProgress(self._done, self._total, seconds))
