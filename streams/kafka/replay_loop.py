"""Fold some partitions of a topic of turns in one process, each into its store."""

import asyncio
import gc
import random
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError
from rocksdict import Cache

from turnstate.agents.ports import Record
from turnstate.replay.engine import FoldedSession
from turnstate.schemas.dialogue.head import digest
from turnstate.schemas.dialogue.phases import DialogueGraph
from turnstate.schemas.errors import UnavailableError
from turnstate.storage.warm.tables import HEADS
from turnstate.streams.clock import VirtualClock
from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.loops import new_loop
from turnstate.streams.kafka.partition import Partition, PartitionSizes
from turnstate.streams.kafka.records import turns_of
from turnstate.streams.kafka.replay_plan import WAIT_MS, Plan, lone_consumer
from turnstate.streams.kafka.replay_stores import scratch_stores

BATCH_TURNS: Final = 16_384
"""Turns folded at once, of one partition."""

_SILENCE_S: Final = 60.0
"""How long the brokers may give nothing before the replay gives up."""

_SLICES_A_SECOND: Final = 10
"""With a rate, turns are let go in so many portions."""

_HOT_BYTES: Final = 384 << 20
_CACHE_BYTES: Final = 64 << 20
_WRITE_BUFFER_BYTES: Final = 256 << 20


class Share(NamedTuple):
    """The partitions that one process folds, and all that it has to know."""

    settings: ClusterSettings
    topic: str
    plan: Plan
    folder: Path
    graph: DialogueGraph
    log_name: str
    rate: float | None
    shuffle: int | None
    numbers: Sequence[int]


class FoldedShare(NamedTuple):
    """What a share folded to; as `FoldedTopic`."""

    sessions: dict[bytes, FoldedSession]
    touched: set[bytes]
    turns: int
    refused: Counter[str]
    cpu_s: float


def folded_share(share: Share, count: Callable[[int], None]) -> FoldedShare:
    """Fold a share in a loop of its own.

    Args:
        share: What to read, and where the stores go.
        count: Is told how many records are done; what it raises ends the fold.

    Raises:
        UnavailableError: the brokers stay away, or turns were deleted.
    """
    began = time.process_time()
    loop = _Loop(share, count)
    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(loop.run())
        sessions = loop.sessions()
    finally:
        loop.close()
    cpu_s = time.process_time() - began
    return FoldedShare(sessions, loop.touched, loop.turns, loop.refused, cpu_s)


@contextmanager
def _deleted_named() -> Generator[None]:
    """Say in our words that turns went while they were read."""
    try:
        yield
    except OffsetOutOfRangeError as error:
        raise UnavailableError(
            f"turns of the range were deleted while it was read: {error}",
            field="from-offset",
            hint="begin later, by --from or --from-offset",
            code="turns_deleted",
        ) from error


class _Loop:
    """Read the partitions of a share to their ends and fold what comes.

    Args:
        share: What to read.
        count: Is told how many records are done.
    """

    def __init__(self, share: Share, count: Callable[[int], None]) -> None:
        self._share = share
        self._count = count
        self._clock = VirtualClock()
        self._chance = random.Random(share.shuffle)
        self._slice = BATCH_TURNS
        if share.rate is not None:
            self._slice = max(1, min(BATCH_TURNS, int(share.rate / _SLICES_A_SECOND)))
        self._began = 0.0
        self._let_go = 0
        self._done = 0
        self.touched: set[bytes] = set()
        self.turns = 0
        self.refused: Counter[str] = Counter()
        cache = Cache(_CACHE_BYTES)
        self._partitions: dict[int, Partition] = {}
        for number in share.numbers:
            self._partitions[number] = self._scratch(number, cache)

    def _scratch(self, number: int, cache: Any) -> Partition:
        share = self._share
        count = len(share.numbers)
        return Partition(
            scratch_stores(share.folder, [number])[number],
            number,
            partitions=len(share.plan.spans),
            changelog_id=b"",
            sizes=PartitionSizes(
                hot_bytes=_HOT_BYTES // count,
                write_buffer_bytes=max(_WRITE_BUFFER_BYTES // count, 4 << 20),
                seal_after_s=1,
            ),
            log_name=share.log_name,
            graph=share.graph,
            clock=self._clock,
            cache=cache,
        )

    async def run(self) -> None:
        """Read and fold, to the end.

        Raises:
            UnavailableError: the brokers stay away, or turns were deleted.
        """
        share = self._share
        places = [TopicPartition(share.topic, number) for number in share.numbers]
        if share.shuffle is not None:
            self._chance.shuffle(places)
        options = {"max_poll_records": BATCH_TURNS}
        async with lone_consumer(share.settings, **options) as consumer:
            consumer.assign(places)
            self._began = time.monotonic()
            with _deleted_named():
                await self._read(consumer, places)

    async def _read(self, consumer: Any, places: Sequence[TopicPartition]) -> None:
        spans = self._share.plan.spans
        open_places = set(places)
        for place in places:
            consumer.seek(place, spans[place.partition].first)
        heard = time.monotonic()
        while True:
            for place in list(open_places):
                # A record at the end may be one that is not for readers.
                if await consumer.position(place) >= spans[place.partition].end:
                    open_places.discard(place)
                    consumer.pause(place)
            if not open_places:
                return
            found: Mapping[Any, Any] = await consumer.getmany(timeout_ms=WAIT_MS)
            order = [place for place in found if found[place]]
            if self._share.shuffle is not None:
                self._chance.shuffle(order)
            for place in order:
                await self._take(place.partition, found[place])
                heard = time.monotonic()
            if time.monotonic() - heard > _SILENCE_S:
                raise KafkaError(f"nothing came for {_SILENCE_S:.0f} s")

    async def _take(self, number: int, fetched: Sequence[Any]) -> None:
        span = self._share.plan.spans[number]
        partition = self._partitions[number]
        before = [each for each in fetched if each.offset < span.start]
        inside = [each for each in fetched if span.start <= each.offset < span.end]
        for part, counts in ((before, False), (inside, True)):
            for records, time_ms in self._batches(part):
                self._clock.advance(max(0, time_ms - self._clock.now_ms()))
                self._fold(partition, records, counts=counts)
                await self._pace(len(records) if counts else 0)
        self._done += len(before) + len(inside)
        self._count(self._done)

    def _batches(self, fetched: Sequence[Any]) -> Iterator[tuple[list[Record], int]]:
        """Yield turns that are folded together, and the time of the last record."""
        if not fetched:
            return
        records = list(turns_of(self._share.plan.log, fetched))
        for at in range(0, len(records), self._slice):
            yield records[at : at + self._slice], fetched[-1].timestamp

    def _fold(
        self, partition: Partition, records: list[Record], *, counts: bool
    ) -> None:
        folded = partition.agent.fold(records)
        batch = partition.store.batch()
        for change in folded.changes:
            batch.stage(change)
        partition.store.write(batch, sync=False)
        partition.agent.committed(folded)
        if not counts:
            return
        self.touched.update(change.key for change in folded.changes)
        self.turns += sum(map(len, folded.ops))
        self.refused.update(
            answer.error.code for answer in folded.answers if answer.error is not None
        )

    async def _pace(self, turns: int) -> None:
        """Wait until the turns let go so far are due; else give way to fetches."""
        pause_s = 0.0
        self._let_go += turns
        if self._share.rate is not None:
            due = self._began + self._let_go / self._share.rate
            pause_s = max(0.0, due - time.monotonic())
        await asyncio.sleep(pause_s)

    def sessions(self) -> dict[bytes, FoldedSession]:
        """Return what each session folded to."""
        found: dict[bytes, FoldedSession] = {}
        for partition in self._partitions.values():
            for key, _ in partition.store.rows(HEADS):
                stored = partition.head(key)
                if stored is not None and not stored.is_tombstone:
                    head = stored.head
                    found[key] = FoldedSession(
                        digest(head), head.incarnation, head.version
                    )
        return found

    def close(self) -> None:
        """Let the stores go; what they hold stays in the folder."""
        # Each store that closes looks through all objects for iterators that
        # were left open. None were, and all heads are still there: 100 ms each.
        gc.freeze()
        try:
            for partition in self._partitions.values():
                partition.close()
        finally:
            gc.unfreeze()
