"""Faust's Kafka transport, with one event for each fetched chunk of a partition."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Final, NamedTuple, Protocol, cast

from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError
from aiokafka.structs import ConsumerRecord, OffsetAndMetadata, TopicPartition
from faust.transport.drivers import aiokafka as driver
from faust.types import TP, ConsumerMessage, Message
from faust.types.transports import ConsumerT, ProducerT

from turnstate.streams.kafka.cancelled_calls import (
    CallCancelledError,
    calls_may_be_cancelled,
)
from turnstate.streams.kafka.ledger import Ledger
from turnstate.streams.kafka.loops import new_loop
from turnstate.streams.kafka.membership import MembershipLease

SCHEME: Final = "turnstate-kafka"
"""Of broker addresses that take this transport (entry point `faust.transports`)."""

ONE_BATCH_BYTES: Final = 1 << 20
"""Records for a partition go out in batches of about so much."""


FETCH_BYTES_MIN: Final = 64 << 10
"""What a broker collects before it answers, unless the wait is over."""

IDLE_AFTER_S: Final = 1.0
IDLE_WAIT_MS: Final = 250
"""After a second without a record a broker answers at the next one, or after this
wait: a hundred empty answers a second cost it and the worker a tenth of a core."""


class Chunk(NamedTuple):
    """Records of one partition that were fetched together.

    Attributes:
        partition: Of the topic of turns.
        records: As they came, in order.
        generation: Of the consumer group when they were fetched.
        begin: The offset that was read from: what the log has below the first
            record and not below this offset are no records.
    """

    partition: TP
    records: Sequence[ConsumerRecord[bytes | None, bytes | None]]
    generation: int
    begin: int

    @property
    def last_offset(self) -> int:
        """Return the offset of the last record."""
        return int(self.records[-1].offset)

    @property
    def bytes(self) -> int:
        """Return the bytes of its values."""
        return sum([len(record.value or b"") for record in self.records])


class Host(Protocol):
    """What the drivers ask of the application that they run in.

    Attributes:
        chunked_topics: Topics whose records come as chunks.
        fetch_max_wait_ms: How long a broker may hold a fetch that finds little.
        membership: Hears of heartbeats.
    """

    chunked_topics: frozenset[str]
    fetch_max_wait_ms: int
    membership: MembershipLease

    def next_offset(self, number: int) -> int | None:
        """Return from where a partition's state goes on, None where it is not here."""
        ...

    async def check_nothing_was_deleted(self) -> None:
        """Raise where the log begins above what an assigned partition needs."""
        ...


class ChunkThread(driver.AIOKafkaConsumerThread):
    """Faust's consumer thread, with the fetch wait that the settings name."""

    def pace(self, *, idle: bool) -> None:
        """Have fetches of the time to come wait for company, or for anything.

        Hard-coded in Faust: 1.5 s, and an answer for each record that comes.
        Thousands of answers a second, with a record each, cost more than the
        fold; so the broker waits for company, but not for long.
        """
        # Read anew for each request.
        fetcher: Any = cast("Any", self._ensure_consumer())._fetcher
        wait_ms = cast("Host", self.app).fetch_max_wait_ms
        fetcher._fetch_min_bytes = 1 if idle else FETCH_BYTES_MIN
        fetcher._fetch_max_wait_ms = max(IDLE_WAIT_MS, wait_ms) if idle else wait_ms

    async def on_start(self) -> None:
        """Start the consumer, and hear of its heartbeats."""
        await super().on_start()
        self.pace(idle=False)
        consumer: Any = self._ensure_consumer()
        cast("Host", self.app).membership.watch(consumer._coordinator)

    async def _commit(self, offsets: Mapping[TP, int]) -> bool:
        """Commit; say no where a rebalance has taken the partitions.

        Faust ends the worker then, but their owner folds what follows: what
        is folded and not committed changes nothing when it comes again.
        """
        consumer: Any = self._ensure_consumer()
        mine = self.assignment()
        wanted = {
            TopicPartition(tp.topic, tp.partition): OffsetAndMetadata(offset, "")
            for tp, offset in offsets.items()
            if tp in mine
        }
        if not wanted:
            return False
        try:
            await consumer.commit(wanted)
        except (CommitFailedError, IllegalStateError):
            return False
        except KafkaError as error:
            await self.crash(error)
            return False
        return True


class ChunkConsumer(driver.Consumer):
    """Give agents chunks in place of records, and keep account of them.

    Faust's cost is for each event; a fetch brings thousands of records. Topics
    with tables' changelogs stay record by record.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.ledger: Ledger[TP] = Ledger()
        self._read_to: dict[TP, int] = {}
        self._again: set[TP] = set()
        self._heard_at = time.monotonic()
        self._is_idle = False

    def _new_consumer_thread(self) -> ChunkThread:
        return ChunkThread(
            self, loop=self.loop, beacon=self.beacon, thread_loop=new_loop()
        )

    def _is_chunked(self, topic: str) -> bool:
        return topic in cast("Host", self.app).chunked_topics

    async def getmany(self, timeout: float) -> AsyncIterator[tuple[TP, Message]]:
        """Yield one message a fetched partition; its value is a `Chunk`."""
        try:
            with calls_may_be_cancelled():
                await self._seek_again()
                found = await self._wait_next_records(timeout)
        except CallCancelledError:
            return
        records: Any = found[0]
        self._pace(heard=any((records or {}).values()))
        active = found[1] or set()
        generation = self.app.consumer_generation_id
        messages = list(self._messages(records or {}, generation))
        # Noted here, whatever becomes of them: what is left out shows as a hole.
        for partition, fetched in (records or {}).items():
            if fetched:
                self._read_to[TP(*partition)] = fetched[-1].offset + 1
        if records is None or self.should_stop:
            return
        if not self.flow_active:
            # Fetched while a rebalance began: it will be fetched again.
            # Where it has gone on meanwhile this fails: at its end Faust seeks.
            ends = suppress(IllegalStateError, CallCancelledError)
            with ends, calls_may_be_cancelled():
                await self.perform_seek()
            return
        for tp, message in messages:
            if not self._still_flows(generation):
                return
            if tp in active or tp in self._buffered_partitions:
                if self._is_chunked(tp.topic):
                    self.ledger.fetched(tp, message.offset)
                    # Offsets between two chunks are no gap to account for.
                    self._read_offset[tp] = None
                yield tp, message

    def _pace(self, *, heard: bool) -> None:
        now = time.monotonic()
        if heard:
            self._heard_at = now
        idle = now - self._heard_at > IDLE_AFTER_S
        if idle != self._is_idle:
            cast("ChunkThread", self._thread).pace(idle=idle)
            self._is_idle = idle

    def _still_flows(self, generation: int) -> bool:
        """Say whether no rebalance has begun since a fetch."""
        return self.flow_active and self.app.consumer_generation_id == generation

    def _messages(
        self, records: Any, generation: int
    ) -> Iterator[tuple[TP, ConsumerMessage]]:
        for partition, fetched in records.items():
            tp = TP(partition.topic, partition.partition)
            if not fetched:
                continue
            self.app.monitor.track_tp_end_offset(tp, self.highwater(partition))
            if not self._is_chunked(tp.topic):
                for record in fetched:
                    yield tp, self._to_message(tp, record)
                continue
            begin = min(self._read_to.get(tp, fetched[0].offset), fetched[0].offset)
            message = self._to_message(tp, fetched[-1])
            message.value = cast("Any", Chunk(tp, fetched, generation, begin))
            yield tp, message

    def ack(self, message: Message) -> bool:
        """Let go of a message; for chunks the ledger alone says what is done."""
        if not self._is_chunked(message.topic):
            return super().ack(message)
        message.acked = True
        self._unacked_messages.discard(message)
        return True

    async def _add_gap(self, tp: TP, offset_from: int, offset_to: int) -> None:
        if not self._is_chunked(tp.topic):
            await super()._add_gap(tp, offset_from, offset_to)

    def _filter_tps_with_pending_acks(self, topics: Any = None) -> Iterator[TP]:
        yield from super()._filter_tps_with_pending_acks(topics)
        for tp in self.ledger.partitions():
            if topics is None or tp in topics or tp.topic in topics:
                yield tp

    def _new_offset(self, tp: TP) -> int | None:
        if self._is_chunked(tp.topic):
            return self.ledger.committable(tp)
        return super()._new_offset(tp)

    async def perform_seek(self) -> None:
        """Seek to the committed offsets; what was in flight comes again."""
        mine = [tp for tp in self.assignment() if self._is_chunked(tp.topic)]
        for tp in mine:
            self.ledger.forget(tp)
        await super().perform_seek()
        # A fetch may have been under way meanwhile, from where it was before.
        self._read_to.clear()
        # Where nothing is committed aiokafka stays where it has read to: what
        # came while a rebalance held the flow would be passed over for ever.
        # And what is committed says nothing about a state that was lost.
        host = cast("Host", self.app)
        targets: dict[TP, int] = {}
        for tp in mine:
            committed = self._read_offset[tp] or 0
            folded = host.next_offset(tp.partition)
            target = committed if folded is None else min(committed, folded)
            if target < committed or committed == 0:
                targets[tp] = target
        if targets:
            begins = await self.earliest_offsets(*targets)
            for tp, target in targets.items():
                await self.seek(tp, max(begins[tp], target))

    def read_again(self, tp: TP) -> None:
        """Have a partition read from where its state goes on."""
        self._again.add(tp)

    async def _seek_again(self) -> None:
        """Seek where that was asked for; no fetch is under way meanwhile."""
        again, self._again = self._again & self.assignment(), set()
        if not again or not self.flow_active:
            return
        host = cast("Host", self.app)
        await host.check_nothing_was_deleted()
        for tp in again:
            offset = host.next_offset(tp.partition)
            if offset is not None:
                self.ledger.forget(tp)
                await self.seek(tp, offset)
                self._read_to[tp] = offset

    async def commit(self, *args: Any, **kwargs: Any) -> bool:
        """Commit what is done; a commit that was cut off is made again later."""
        try:
            with calls_may_be_cancelled():
                return await super().commit(*args, **kwargs)
        except CallCancelledError:
            return False

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        """Let Faust settle, then forget what was in flight."""
        await super().on_partitions_revoked(revoked)
        for tp in revoked:
            self.ledger.forget(tp)


class BatchProducer(driver.Producer):
    """Faust's producer, idempotent, with whole batches for one partition."""

    def _settings_default(self) -> dict[str, Any]:
        return {**super()._settings_default(), "enable_idempotence": True}

    async def send_rows(
        self, topic: str, partition: int, rows: Iterable[tuple[Any, ...]]
    ) -> int | None:
        """Send (key, value, headers) rows in order; return the last one's offset.

        Returns once all in-sync replicas have them; the cost is for a batch,
        not for a record.

        Raises:
            aiokafka.errors.KafkaError: one could not be delivered in time.
        """
        producer = self._ensure_producer()
        futures: list[asyncio.Future[Any]] = []
        counts: list[int] = []
        builder = None
        for key, value, headers in rows:
            added = builder is not None and builder.append(
                timestamp=None, key=key, value=value, headers=headers
            )
            if not added:
                if builder is not None:
                    counts.append(builder.record_count())
                    futures.append(
                        await producer.send_batch(builder, topic, partition=partition)
                    )
                builder = producer.create_batch()
                builder.append(timestamp=None, key=key, value=value, headers=headers)
        if builder is None:
            return None
        counts.append(builder.record_count())
        futures.append(await producer.send_batch(builder, topic, partition=partition))
        sent = await asyncio.gather(*futures)
        return int(sent[-1].offset) + counts[-1] - 1


class Transport(driver.Transport):
    """The transport that Faust finds under `turnstate-kafka`."""

    Consumer: ClassVar[type[ConsumerT]] = ChunkConsumer
    Producer: ClassVar[type[ProducerT]] = BatchProducer
