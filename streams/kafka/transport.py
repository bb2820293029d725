"""Faust's Kafka transport, with one event for each fetched chunk of a partition."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import aiokafka
from aiokafka.structs import ConsumerRecord
from faust.transport.drivers import aiokafka as driver
from faust.types import TP, ConsumerMessage, Message
from faust.types.transports import ConsumerT, ProducerT

from turnstate.streams.kafka.ledger import Ledger

SCHEME: Final = "turnstate-kafka"
"""Of broker addresses that take this transport (entry point `faust.transports`)."""

ONE_BATCH_BYTES: Final = 1 << 20
"""Records for a partition go out in batches of about so much."""


class Chunk(NamedTuple):
    """Records of one partition that were fetched together.

    Attributes:
        partition: Of the topic of turns.
        records: As they came, in order.
        generation: Of the consumer group when they were fetched.
    """

    partition: TP
    records: Sequence[ConsumerRecord[bytes | None, bytes | None]]
    generation: int

    @property
    def last_offset(self) -> int:
        """Return the offset of the last record."""
        return int(self.records[-1].offset)


class ChunkThread(driver.AIOKafkaConsumerThread):
    """Faust's consumer thread, with the fetch wait that the settings name."""

    def _create_worker_consumer(self, transport: Any) -> aiokafka.AIOKafkaConsumer:
        consumer = super()._create_worker_consumer(transport)
        # Hard-coded in Faust: 1.5 s, which a lone turn would have to wait.
        consumer._fetch_max_wait_ms = self.app.fetch_max_wait_ms
        return consumer


class ChunkConsumer(driver.Consumer):
    """Give agents chunks in place of records, and keep account of them.

    Faust's cost is for each event; a fetch brings thousands of records. Topics
    with tables' changelogs stay record by record.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.ledger = Ledger()

    def _new_consumer_thread(self) -> ChunkThread:
        return ChunkThread(self, loop=self.loop, beacon=self.beacon)

    def _is_chunked(self, topic: str) -> bool:
        return topic in self.app.chunked_topics

    async def getmany(self, timeout: float) -> AsyncIterator[tuple[TP, Message]]:
        """Yield one message a fetched partition; its value is a `Chunk`."""
        records, active = await self._wait_next_records(timeout)
        generation = self.app.consumer_generation_id
        if records is None or self.should_stop:
            return
        if not self.flow_active:
            # Fetched while a rebalance began: it will be fetched again.
            await self.perform_seek()
            return
        for tp, message in self._messages(records, generation):
            if not self.flow_active or self.app.consumer_generation_id != generation:
                return
            if active is None or tp in active or tp in self._buffered_partitions:
                if self._is_chunked(tp.topic):
                    self.ledger.fetched(tp, message.offset)
                    # Offsets between two chunks are no gap to account for.
                    self._read_offset[tp] = None
                yield tp, message

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
            message = self._to_message(tp, fetched[-1])
            message.value = Chunk(tp, fetched, generation)
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
        for tp in self.assignment():
            if self._is_chunked(tp.topic):
                self.ledger.forget(tp)
        await super().perform_seek()

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

    Consumer: type[ConsumerT] = ChunkConsumer
    Producer: type[ProducerT] = BatchProducer
