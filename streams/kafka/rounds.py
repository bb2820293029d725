"""One round of a worker: fold in memory, then out to all places in the safe order."""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

import structlog

from turnstate.schemas.errors import FencedError
from turnstate.storage.warm.changelog import ChangelogBatch
from turnstate.storage.warm.changelog_records import RowRecord
from turnstate.streams.kafka.cold_tier import ColdNeededError
from turnstate.streams.kafka.metrics import WorkerMetrics
from turnstate.streams.kafka.partition import Partition
from turnstate.streams.kafka.staged import Row, Staged, staged
from turnstate.streams.kafka.topics import Topics
from turnstate.streams.kafka.transport import Chunk

_log = structlog.get_logger(__name__)

CONFIRM_S: Final = 0.02


class Sender(Protocol):
    """Who delivers rows: all of them, in order, or it raises."""

    async def send_rows(
        self, topic: str, partition: int, rows: Sequence[Row]
    ) -> int | None:
        """Return the offset of the last row, once it is on all replicas."""
        ...


class _Lacking(NamedTuple):
    """Chunks of a partition that need sessions which are cold."""

    partition: Partition
    chunks: list[Chunk]
    keys: list[bytes]


class Rounds:
    """Carry chunks of turns, and what no turn brought, through a checkpoint.

    A round goes: fold in memory; frames, entities and dead letters out, verified,
    and hot written meanwhile; changelog out, verified; one RocksDB batch a partition,
    with the log position; then the chunk is done, and its offset may be
    committed. A crash anywhere repeats the round, and repeating is harmless:
    the fold is the same, and a head knows the position that it has folded.
    Since frames go before the changelog, no state is ever restored whose
    frames are not on `deltas`. Hot takes no more of a round than its time
    limit, and no round fails with it.

    Args:
        sender: Delivers to topics.
        topics: Their names.
        log: The 16 bytes of the topic id of turns.
        partition_of: Gives an assigned partition, None where it is gone.
        is_current: Says whether a generation of the group is the one of now.
        owns: Says whether the group certainly counts this worker as a member.
        done: Told of each chunk that is durable.
        read_again: Told of a chunk before which something is missing.
        metrics: Counted into.
        confirmed_since: Says whether the group has confirmed this worker since a
            moment of the monotonic clock.

    Attributes:
        draining: Somebody waits for the round under way; then it waits for nobody.
    """

    def __init__(
        self,
        *,
        sender: Sender,
        topics: Topics,
        log: bytes,
        partition_of: Callable[[int], Partition | None],
        is_current: Callable[[int], bool],
        owns: Callable[[], bool],
        done: Callable[[Chunk], None],
        read_again: Callable[[Chunk], None],
        metrics: WorkerMetrics,
        confirmed_since: Callable[[float], bool] = lambda _: True,
    ) -> None:
        self._sender = sender
        self._topics = topics
        self._log_id = log
        self._partition_of = partition_of
        self._is_current = is_current
        self._owns = owns
        self._done = done
        self._read_again = read_again
        self._metrics = metrics
        self._confirmed_since = confirmed_since
        self.draining = False

    async def run(self, chunks: Sequence[Chunk]) -> None:
        """Carry chunks through; those of partitions that moved are left out.

        Raises:
            KafkaError: a record could not be delivered: the worker must end.
        """
        waiting = list(self._by_partition(chunks))
        while waiting:
            lacking = await self._checkpoint(waiting)
            waiting = [
                (each.partition, each.chunks)
                for each in lacking
                if await self._woken(each)
            ]

    async def _checkpoint(
        self, chunks: Sequence[tuple[Partition, list[Chunk]]]
    ) -> list[_Lacking]:
        """Carry chunks through; return those that need cold sessions first."""
        began = time.perf_counter()
        ready: list[Staged] = []
        lacking: list[_Lacking] = []
        for partition, mine in chunks:
            try:
                with partition.condemning():
                    ready.append(staged(partition, mine, self._log_id, self._metrics))
            except ColdNeededError as needed:
                lacking.append(_Lacking(partition, mine, needed.keys))
            # Heartbeats, queries and fetches have their turn in between.
            await asyncio.sleep(0)
        folded_at = time.perf_counter()
        generations = {chunk.generation for each in ready for chunk in each.chunks}
        if not ready or not await self._still_owned(generations):
            return lacking if not ready else []
        owned = False
        try:
            owned = await self._sent_out(ready, generations)
            if not owned:
                return []
            offsets = await asyncio.gather(*map(self._send_changelog, ready))
            # What a later owner's claim came before is void: it must not stay here.
            owned = await self._still_owned(generations)
            if not owned:
                return []
        finally:
            if not owned:
                for each in ready:
                    each.partition.void_hot()
        for each, offset in zip(ready, offsets, strict=True):
            self._finish(each, offset)
        ended = time.perf_counter()
        self._metrics.round(
            turns=sum(len(each.records) for each in ready),
            fold_s=folded_at - began,
            checkpoint_s=ended - folded_at,
        )
        return lacking

    async def _sent_out(
        self, ready: Sequence[Staged], generations: Iterable[int]
    ) -> bool:
        """Send frames and letters, and write hot; False = this is no owner."""
        hot = asyncio.gather(*map(self._write_hot, ready))
        await asyncio.gather(hot, *map(self._send_out, ready))
        errors = [
            (each.partition, error)
            for each, error in zip(ready, hot.result(), strict=True)
            if error is not None
        ]
        if not errors:
            return True
        # Redis has heard of a later owner; the next heartbeat tells who is right.
        moment = time.monotonic()
        while not self._confirmed_since(moment):
            if self.draining or not all(map(self._is_current, generations)):
                return False
            await asyncio.sleep(CONFIRM_S)
        for partition, error in errors:
            partition.turn_hot_off(error)
        return all(map(self._is_current, generations))

    async def _write_hot(self, each: Staged) -> FencedError | None:
        redis = each.partition.redis
        if redis is not None:
            try:
                await redis.commit(each.folded.changes)
            except FencedError as error:
                return error
        return None

    async def _still_owned(self, generations: Iterable[int]) -> bool:
        """Wait until the group has confirmed this worker, or replaced it.

        One that was stopped for longer than the session time-out wakes up in
        the middle of a round, and others own its partitions by then. Who waits
        for the round to end would wait for ever: then nobody is the owner.
        """
        while not self._owns():  # another thread hears of it
            if self.draining or not all(map(self._is_current, generations)):
                return False
            await asyncio.sleep(CONFIRM_S)
        return all(map(self._is_current, generations))

    def _by_partition(
        self, chunks: Sequence[Chunk]
    ) -> Iterator[tuple[Partition, list[Chunk]]]:
        found: dict[int, list[Chunk]] = {}
        for chunk in chunks:
            if not self._is_current(chunk.generation):
                # Of before a rebalance: it will be fetched again, by its owner.
                continue
            found.setdefault(chunk.partition.partition, []).append(chunk)
        for number, mine in found.items():
            partition = self._partition_of(number)
            if partition is None or not partition.is_fresh:
                continue
            fresh = self._without_a_hole(partition, mine)
            if fresh:
                yield partition, fresh

    def _without_a_hole(
        self, partition: Partition, chunks: Sequence[Chunk]
    ) -> list[Chunk]:
        """Return the chunks that follow from what is folded, without a hole.

        Faust lets partitions flow before it has sought, and a fetch of before
        a rebalance may end after it. What is folded is never folded again, so
        turns that are passed over here would be lost.
        """
        fresh: list[Chunk] = []
        wanted = partition.next_offset
        for chunk in chunks:
            if partition.is_folded(chunk.last_offset):
                self._done(chunk)
            elif chunk.begin <= wanted:
                fresh.append(chunk)
                wanted = max(wanted, chunk.last_offset + 1)
            else:
                _log.warning(
                    "turns.read_again",
                    partition=partition.number,
                    missing=f"{wanted} to {chunk.begin - 1}",
                )
                self._read_again(chunk)
                break
        return fresh

    async def _send_out(self, staged: Staged) -> None:
        number = staged.partition.number
        await asyncio.gather(
            self._sender.send_rows(self._topics.deltas, number, staged.deltas),
            self._sender.send_rows(self._topics.dead_letters, number, staged.letters),
            self._sender.send_rows(self._topics.entities, number, staged.entities),
        )

    async def _send_changelog(self, staged: Staged) -> int | None:
        return await self._changelog(staged.partition, staged.batch.records)

    async def _changelog(
        self, partition: Partition, records: Sequence[RowRecord]
    ) -> int | None:
        rows: list[Row] = [(row.key, row.value, []) for row in records]
        return await self._sender.send_rows(
            self._topics.changelog, partition.number, rows
        )

    def _finish(self, staged: Staged, changelog_offset: int | None) -> None:
        partition, last = staged.partition, staged.records[-1].position
        partition.write(staged.batch, changelog_offset)
        partition.committed(staged.folded, last.offset, last.index)
        for chunk in staged.chunks:
            self._done(chunk)

    async def write(
        self,
        partition: Partition,
        batch: ChangelogBatch,
        then: Callable[[], object] = lambda: None,
    ) -> bool:
        """Make durable what no turn brought; only between two rounds.

        Args:
            partition: Whose it is.
            batch: What is written.
            then: Called at once behind the write.

        Returns:
            Whether it was: not where another worker may own the partition by now.
        """
        generation = partition.epoch.generation
        offset = await self._changelog(partition, batch.records)
        if not await self._still_owned([generation]):
            return False
        partition.write(batch, offset)
        then()
        # Whoever comes later has read what stands in the place of these.
        await self._changelog(partition, batch.tombstones)
        return True

    async def _woken(self, lacking: _Lacking) -> bool:
        """Bring cold sessions back; False where the round is given up.

        Nothing can be refused over Kafka, so a round waits for a cold tier that
        is away; unless whoever waits for the round is to get the partition.
        """
        partition = lacking.partition
        generations = {chunk.generation for chunk in lacking.chunks}

        def goes_on() -> bool:
            return not self.draining and all(map(self._is_current, generations))

        return await partition.cold.bring_back(
            lacking.keys,
            lambda batch: self.write(partition, batch),
            goes_on,
            self._metrics.moves.cold_waits,
        )
