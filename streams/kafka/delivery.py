"""Hand records to the brokers through aiokafka, and start anew where it gave up."""

import asyncio
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import (
    KafkaError,
    MessageSizeTooLargeError,
    OutOfOrderSequenceNumber,
    ProducerClosed,
    ProducerFenced,
)

from turnstate.schemas.errors import (
    ConflictError,
    InvalidInputError,
    TurnstateError,
    UnavailableError,
)
from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.connections import started, unavailable
from turnstate.streams.kafka.receipts import Message
from turnstate.streams.kafka.topics import MESSAGE_BYTES_MAX

VALUE_BYTES_MAX: Final = MESSAGE_BYTES_MAX - (128 << 10)
"""A value that fits with its key and headers even where LZ4 lengthens it. A
record refused by the broker would end the idempotent sequence, so none is sent."""

BATCH_BYTES: Final = 1 << 20
"""Records of one partition in one request, before compression."""

_CUTS: Final = 5
CLOSE_S: Final = 5.0
"""What a closing producer grants to requests that nobody answers."""


class Delivery:
    """An idempotent producer of aiokafka, replaced where it is beyond use.

    aiokafka never gives up an idempotent record, since a hole in the sequence
    is the end of the sequence; how long to wait is the outbox's matter. Where
    the sequence broke all the same, what was handed over has failed, and what
    was not goes out with a new one.

    Args:
        settings: Where the brokers are.
        delivery_s: How long a record may be on its way.
        connect_s: How long to try to connect.
    """

    def __init__(
        self, settings: ClusterSettings, *, delivery_s: float, connect_s: float
    ) -> None:
        self._settings = settings
        self._delivery_s = delivery_s
        self._connect_s = connect_s
        self._producer: Any = None
        self._renewing = asyncio.Lock()
        self._unanswered: set[asyncio.Future[Any]] = set()

    async def start(self, topic: str) -> None:
        """Connect; make sure that the topic has the partitions of the settings.

        Raises:
            UnavailableError: no broker answers in time.
            ConflictError: a turn would be sent to another partition than the
                one in which its session is.
        """
        self._producer = await self._connected()
        found = len(await self._producer.partitions_for(topic))
        if found != self._settings.partitions:
            await self.close()
            raise ConflictError(
                f"{topic} has {found} partitions, the settings say"
                f" {self._settings.partitions}",
                field="partitions",
                hint="turnstate topics check",
                code="topic_differs",
            )

    async def send(self, message: Message) -> "asyncio.Future[int]":
        """Hand a record over; the answer gets its offset.

        Raises:
            TurnstateError: it was not taken.
        """
        while True:
            producer = self._producer
            try:
                sent = await producer.send(
                    message.topic,
                    message.value,
                    key=message.key,
                    partition=message.partition,
                    headers=list(message.headers),  # aiokafka takes nothing else
                )
            except (TypeError, AssertionError) as error:
                raise InvalidInputError(
                    f"this is no record that can be sent: {error!r}",
                    field="headers",
                    hint="bytes, or none, and headers of text and bytes",
                ) from error
            except (KafkaError, OSError, ValueError) as error:
                if not _is_spent(error):
                    raise self._translated(error) from error
                await self._renew(producer)
                continue
            return self._answer(sent)

    async def close(self) -> None:
        """End the connections; what is not acknowledged by now is not known."""
        if self._producer is None:
            return
        if self._unanswered:
            await _cut_off(self._producer)
        else:
            await self._producer.stop()

    async def _connected(self) -> Any:
        producer: Any = AIOKafkaProducer(
            enable_idempotence=True,
            acks="all",
            compression_type="lz4",
            linger_ms=0,  # the outbox lingers, and packs meanwhile
            max_batch_size=BATCH_BYTES,
            max_request_size=MESSAGE_BYTES_MAX,
            # Also how long aiokafka keeps a batch whose partition has no
            # leader: giving it up earlier would break the sequence.
            request_timeout_ms=int(self._delivery_s * 1000),
            **self._settings.client_options(),
        )
        try:
            await started(
                producer, self._settings, "to connect", timeout_s=self._connect_s
            )
        except BaseException:
            await producer.stop()
            raise
        return producer

    async def _renew(self, spent: Any) -> None:
        async with self._renewing:
            if self._producer is spent:
                await spent.stop()
                self._producer = await self._connected()

    def _answer(self, sent: "asyncio.Future[Any]") -> "asyncio.Future[int]":
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def told(_: object) -> None:
            self._unanswered.discard(sent)
            if answer.done():
                return
            if sent.cancelled():
                answer.cancel()
                return
            error = sent.exception()
            if error is None:
                answer.set_result(sent.result().offset)
            else:
                answer.set_exception(self._translated(error))

        self._unanswered.add(sent)
        sent.add_done_callback(told)
        return answer

    def _translated(self, error: BaseException) -> TurnstateError:
        if isinstance(error, MessageSizeTooLargeError):
            return InvalidInputError(
                f"a record is too large for the topic: {error}",
                hint="send larger parts by reference",
                code="too_large",
            )
        if _is_spent(error):
            return UnavailableError(
                f"Kafka broke the sequence of this producer: {error!r}",
                field="kafka",
                hint="it may have arrived: send turns with an id again, they are known",
                code="delivery_unknown",
            )
        return unavailable(self._settings, error, "to take a record")


def _is_spent(error: BaseException) -> bool:
    """Say whether a producer that answers so will take no record any more.

    A bare KafkaError is how aiokafka's sender says that it died of a fault.
    """
    return type(error) is KafkaError or isinstance(
        error, OutOfOrderSequenceNumber | ProducerFenced | ProducerClosed
    )


async def _cut_off(producer: Any) -> None:
    """End a producer that waits for answers, as `stop` would do for ever.

    First the connections, which ends the requests, then who would ask again.
    """
    producer._closed = True  # what `stop` begins with; else it warns when it goes
    await producer.client.close()
    sender = producer._sender.sender_task
    for _ in range(_CUTS):
        if sender is None or sender.done():
            return
        # The first ends its loop, which then waits for the requests under way;
        # the next ends those, which may wait for metadata.
        sender.cancel()
        await asyncio.wait([sender], timeout=CLOSE_S / _CUTS)
