"""Publish turns to Kafka: checked here, packed, acknowledged by all replicas."""

import asyncio
import os
import time
from collections.abc import Iterable, Mapping
from itertools import count
from types import TracebackType
from typing import Any, Final, Self

from turnstate.agents.ports import Record
from turnstate.schemas.draft import Draft
from turnstate.schemas.errors import InvalidInputError, TurnstateError, UnavailableError
from turnstate.schemas.position import Position
from turnstate.schemas.turn import Turn
from turnstate.schemas.wire.json import turn_to_json
from turnstate.schemas.wire.packed import CONTENT_TYPE as PACK
from turnstate.schemas.wire.scan import too_large
from turnstate.schemas.wire.turn_bytes import draft_from_bytes
from turnstate.streams.documents import to_json
from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.delivery import VALUE_BYTES_MAX, Delivery
from turnstate.streams.kafka.letter_records import NOWHERE
from turnstate.streams.kafka.letters import letter_row
from turnstate.streams.kafka.outbox import Acknowledged, Outbox
from turnstate.streams.kafka.partitioning import partition_of
from turnstate.streams.kafka.receipts import Headers, Message, Receipt
from turnstate.streams.kafka.topic_ids import topic_id
from turnstate.streams.kafka.topics import Topics
from turnstate.streams.kafka.turn_headers import (
    Unsent,
    check_traceparent,
    content_type_of,
    trace_headers,
    turn_headers,
)

BUFFER_BYTES_MAX: Final = 64 << 20
"""Turns held until they are acknowledged; large ones reach it before the count."""

_BREATH_TURNS: Final = 256
"""So many turns are taken before others of the loop have their turn."""

AnyTurn = Turn | bytes | Mapping[str, Any]
"""A turn, its bytes (JSON or protobuf), or what JSON can be made of."""


class TurnProducer:
    """Publish turns to the topic `turns`, each exactly once, in order a session.

    `publish` returns once a turn is held, with a receipt that is awaited for
    the acknowledgement of all in-sync replicas. `flush` returns when every
    turn before it is acknowledged, or raises the first failure since the flush
    before. While the brokers are away, turns are held; when so many are held
    that no more fit, `publish` waits, and at last raises.

    A turn's record has the session as its key. Turns that come close together
    for one partition share a record; one that comes alone is plain JSON.

    Args:
        settings: Where the brokers are, and the names.
        replica: This producer has a clock of its own and stamps its turns
            (design §3). Without it a stamp is refused by name.
        buffer_turns_max: Turns held until they are acknowledged.
        block_ms_max: How long `publish` waits for room, and `start` for a broker.
        delivery_timeout_s: How long a turn may be on its way. After that it
            has failed, though it may still arrive.
        acknowledged: Called in the loop with topic, partition and offset of
            each record that the brokers have.

    Example:
        A producer is used in the loop in which it is entered::

            async with TurnProducer(ClusterSettings.load(data)) as producer:
                receipt = await producer.publish(
                    {"tenant": "acme", "session": "chat-17", "role": "user"}
                )
                partition, offset, index = await receipt
    """

    def __init__(
        self,
        settings: ClusterSettings,
        *,
        replica: bool = False,
        buffer_turns_max: int = 65_536,
        block_ms_max: int = 60_000,
        delivery_timeout_s: float = 120.0,
        acknowledged: Acknowledged | None = None,
    ) -> None:
        self.settings = settings
        self.topics = Topics.of(settings)
        self.log = b""
        self._replica = replica
        self._buffer_turns_max = buffer_turns_max
        self._block_s = block_ms_max / 1000
        self._delivery_s = delivery_timeout_s
        self._acknowledged = acknowledged
        self._outbox: Outbox | None = None
        self._delivery: Delivery | None = None
        self._requests = map(f"{os.urandom(8).hex()}-{{}}".format, count(1))
        self._taken = 0

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close; after an error of the block its own is the one that is raised."""
        try:
            await self.close()
        except TurnstateError:
            if error is None:
                raise

    async def start(self) -> None:
        """Connect, and learn the identity of the log.

        Raises:
            NotFoundError: there is no topic `turns`.
            ConflictError: it has other partitions than the settings say.
            UnavailableError: no broker answers in time.
        """
        self.log = await topic_id(
            self.settings, self.topics.turns, timeout_s=self._block_s
        )
        delivery = Delivery(
            self.settings, delivery_s=self._delivery_s, connect_s=self._block_s
        )
        await delivery.start(self.topics.turns)
        self._delivery = delivery
        self._outbox = Outbox(
            delivery.send,
            self._headers_of,
            linger_s=self.settings.linger_ms / 1000,
            turns_max=self._buffer_turns_max,
            bytes_max=BUFFER_BYTES_MAX,
            block_s=self._block_s,
            delivery_s=self._delivery_s,
            acknowledged=self._acknowledged,
        )

    @property
    def held_turns(self) -> int:
        """Return how many turns are taken and not acknowledged yet."""
        return self._opened().turns

    @property
    def held_back(self) -> int:
        """Return how often a publisher had to wait for room."""
        return self._opened().held_back

    async def publish(
        self,
        turn: AnyTurn,
        *,
        traceparent: str | None = None,
        request_id: str | None = None,
    ) -> Receipt:
        """Take a turn; return once it is held.

        Args:
            turn: The turn. Bytes are sent as they are.
            traceparent: W3C trace context of the request that brought it.
            request_id: Name of that request, where the turn has none itself.

        Raises:
            InvalidInputError: it is no turn, or has a stamp and this is no
                replica; the field is named and nothing is sent.
            UnavailableError: nothing moved on for too long (`buffer_full`), or
                the producer is closed.
        """
        outbox = self._opened()
        raw, draft = self.checked(turn)
        check_traceparent(traceparent)
        await self._breathe(1)
        await outbox.reserve(len(raw))
        topic, partition = self.topics.turns, self.partition(draft.key)
        if traceparent is None and request_id is None:
            return outbox.put(topic, partition, draft.key, raw, draft.request_id)
        # Headers are a record's: with its own, a turn travels by itself.
        request = draft.request_id or request_id or next(self._requests)
        headers = turn_headers(content_type_of(raw), request, traceparent)
        return outbox.put_alone(topic, partition, draft.key, raw, headers)

    async def publish_many(self, turns: Iterable[AnyTurn]) -> list[Receipt]:
        """Take turns in order; return once all are held.

        Raises:
            InvalidInputError: one is no turn; then none is sent.
            UnavailableError: as in `publish`; those before it are sent.
        """
        return await self.publish_checked([self.checked(turn) for turn in turns])

    async def publish_checked(
        self, turns: Iterable[tuple[bytes, Draft]]
    ) -> list[Receipt]:
        """Take turns that went through `checked`, perhaps in another thread."""
        outbox = self._opened()
        topic, partitions = self.topics.turns, self.settings.partitions
        receipts: list[Receipt] = []
        for raw, draft in turns:
            await outbox.reserve(len(raw))
            partition = partition_of(draft.key, partitions)
            receipts.append(
                outbox.put(topic, partition, draft.key, raw, draft.request_id)
            )
            await self._breathe(1)
        return receipts

    async def publish_raw(
        self,
        raw: bytes | None,
        key: bytes | None,
        *,
        partition: int | None = None,
        headers: Headers = (),
        topic: str | None = None,
    ) -> Receipt:
        """Take bytes as they are, unchecked: for what is to be judged elsewhere.

        Args:
            raw: The value; None is a tombstone.
            key: The key.
            partition: Where to; None = where the key belongs.
            headers: The headers, nothing added.
            topic: Where to; None = `turns`.

        Raises:
            InvalidInputError: it is longer than a record may be.
            UnavailableError: as in `publish`.
        """
        outbox = self._opened()
        if raw is not None and len(raw) > VALUE_BYTES_MAX:
            raise too_large(len(raw))
        if raw is None and key is None:
            key = b""  # Kafka's clients refuse a record of nothing at all
        await outbox.reserve(len(raw or b""))
        if partition is None:
            partition = self.partition(key or b"")
        return outbox.put_alone(
            topic or self.topics.turns, partition, key, raw, headers
        )

    async def refuse(
        self,
        raw: bytes,
        error: TurnstateError,
        *,
        key: bytes | None = None,
        trace: str | None = None,
        attempt: int = 0,
    ) -> Receipt:
        """Put what is no turn among the dead letters, without a detour.

        Its letter has no position, since it never came to a topic.

        Args:
            raw: The bytes as they came.
            error: Why they are refused.
            key: The session key, where one could be read.
            trace: The traceparent that it came with.
            attempt: How often it was sent before.

        Raises:
            UnavailableError: as in `publish`.
        """
        now_ms = time.time_ns() // 1_000_000
        _, value, headers = letter_row(
            Unsent(self.topics.turns, now_ms, key, trace_headers(trace)),
            Record(raw, Position(b"", NOWHERE, NOWHERE), attempt),
            error,
            now_ms,
        )
        return await self.publish_raw(
            value,
            key,
            partition=self.partition(key if key is not None else raw[:64]),
            headers=headers,
            topic=self.topics.dead_letters,
        )

    async def flush(self) -> None:
        """Wait until every turn before is acknowledged by all in-sync replicas.

        Raises:
            TurnstateError: the first failure since the flush before.
        """
        await self._opened().flush()

    async def close(self) -> None:
        """Flush, then end. A closed producer takes nothing more.

        Raises:
            TurnstateError: the first failure since the flush before.
        """
        outbox, self._outbox = self._outbox, None
        if outbox is None:
            return
        assert self._delivery is not None, "both are made together"
        try:
            await outbox.flush()
        finally:
            await outbox.close()
            await self._delivery.close()

    def checked(self, turn: AnyTurn) -> tuple[bytes, Draft]:
        """Return a turn's bytes and what they say; pure, of any thread.

        Raises:
            InvalidInputError: see `publish`.
        """
        if isinstance(turn, bytes):
            raw = turn
        elif isinstance(turn, Turn):
            raw = turn_to_json(turn)
        else:
            raw = _json_of(turn)
        if len(raw) > VALUE_BYTES_MAX:
            raise too_large(len(raw))
        draft = draft_from_bytes(raw)
        if draft.stamp is not None and not self._replica:
            raise InvalidInputError(
                "the turn has a stamp, and this producer is no replica",
                field="stamp",
                hint="leave the stamp to the session's owner, or say replica=True",
                code="stamp_refused",
            )
        return raw, draft

    def partition(self, key: bytes) -> int:
        """Return the partition in which a session is."""
        return partition_of(key, self.settings.partitions)

    async def _breathe(self, turns: int) -> None:
        """Let the loop send what it holds: taking turns alone never waits."""
        self._taken += turns
        if self._taken >= _BREATH_TURNS:
            self._taken = 0
            await asyncio.sleep(0)

    def _headers_of(self, message: Message) -> Headers:
        if message.count > 1:
            return turn_headers(PACK, next(self._requests))
        request = message.request_id or next(self._requests)
        return turn_headers(content_type_of(message.turns[0]), request)

    def _opened(self) -> Outbox:
        if self._outbox is None:
            raise UnavailableError(
                "the producer is not open",
                field="producer",
                hint="enter it by `async with`",
                code="closed",
            )
        return self._outbox


def _json_of(turn: Mapping[str, Any]) -> bytes:
    try:
        return to_json(turn)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(
            f"the turn cannot be written as JSON: {error}",
            hint="plain values only",
            code="not_json",
        ) from error
