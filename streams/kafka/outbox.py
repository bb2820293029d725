"""Turns that wait to be sent: packed by partition, in order, never too many."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from turnstate.schemas.errors import TurnstateError, UnavailableError
from turnstate.streams.kafka.receipts import Headers, Message, Receipt

SEAL_TURNS: Final = 512
SEAL_BYTES: Final = 256 << 10
"""A pack goes out when either is reached. Above that nothing is gained
(docs/bench.md), and what is read again after a crash of the worker grows."""

Send = Callable[[Message], Awaitable["asyncio.Future[int]"]]
"""Hand a record over, in the order of the calls; answers where its offset comes."""

Acknowledged = Callable[[str, int, int], None]
"""Told topic, partition and offset of a record that the brokers have."""


class Outbox:
    """Hold what is on its way, and hold publishers back when that is too much.

    Records of one partition go out in the order in which they came. What is
    held counts until it is acknowledged or has failed.

    Args:
        send: Hands a record to the client of the brokers.
        headers_of: Gives the headers of a record whose turns are all in.
        linger_s: How long a turn waits for company.
        turns_max: Turns held at most.
        bytes_max: Bytes held at most; one turn is always taken.
        block_s: How long a publisher is held back before it is told so.
        delivery_s: How long a record may be on its way.
        acknowledged: Told of each record that arrived.
    """

    def __init__(
        self,
        send: Send,
        headers_of: Callable[[Message], Headers],
        *,
        linger_s: float,
        turns_max: int,
        bytes_max: int,
        block_s: float,
        delivery_s: float,
        acknowledged: Acknowledged | None = None,
    ) -> None:
        self._send = send
        self._headers_of = headers_of
        self._linger_s = linger_s
        self._turns_max = turns_max
        self._bytes_max = bytes_max
        self._block_s = block_s
        self._delivery_s = delivery_s
        self._acknowledged = acknowledged
        self._loop = asyncio.get_running_loop()
        self._lanes: dict[tuple[str, int], _Lane] = {}
        self._on_way: set[Message] = set()
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()
        self._failure: TurnstateError | None = None
        self.turns = 0
        self.bytes = 0
        self.held_back = 0

    async def reserve(self, size: int) -> None:
        """Wait until one more turn of a size may be held.

        Raises:
            UnavailableError: nothing moved for so long (code `buffer_full`).
        """
        if not self._waiting and self._fits(size):
            self.turns += 1
            self.bytes += size
            return
        self.held_back += 1
        turn = self._loop.create_future()
        entry = (turn, size)
        self._waiting.append(entry)
        try:
            async with asyncio.timeout(self._block_s):
                await turn
        except TimeoutError as error:
            if turn.done() and not turn.cancelled():
                return  # it got its room in the same moment
            self._waiting.remove(entry)
            raise UnavailableError(
                f"{self.turns} turns wait for Kafka and none moved on in"
                f" {self._block_s:g} s",
                field="kafka",
                hint="nothing of this turn was sent: try again later",
                code="buffer_full",
            ) from error
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._release(1, size)
            else:
                self._waiting.remove(entry)
            raise

    def put(
        self,
        topic: str,
        partition: int,
        key: bytes,
        turn: bytes,
        request_id: str | None,
    ) -> Receipt:
        """Take a turn whose room is reserved; it may travel in a pack."""
        lane = self._lane(topic, partition)
        message = lane.open
        if message is not None and message.size + len(turn) > SEAL_BYTES:
            self._seal(lane)
            message = None
        if message is None:
            message = self._message(topic, partition, key)
            message.request_id = request_id
            lane.open = message
            lane.timer = self._loop.call_later(self._linger_s, self._seal, lane)
        receipt = message.add(turn)
        if message.count >= SEAL_TURNS:
            self._seal(lane)
        return receipt

    def put_alone(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
    ) -> Receipt:
        """Take a record whose room is reserved; it travels as it is."""
        lane = self._lane(topic, partition)
        self._seal(lane)
        message = self._message(topic, partition, key)
        message.value = value
        message.headers = headers
        message.count = 1
        message.size = len(value or b"")
        self._queue(lane, message)
        return Receipt(message, 0)

    async def flush(self) -> None:
        """Send on what lingers; wait until all that is held has an answer.

        Raises:
            TurnstateError: the first failure since the flush before.
        """
        for lane in self._lanes.values():
            self._seal(lane)
        waited = [message.acknowledged for message in self._on_way]
        if waited:
            await asyncio.wait(waited)
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    async def close(self) -> None:
        """End the lanes; what they still hold has failed before."""
        tasks = [lane.task for lane in self._lanes.values() if lane.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _fits(self, size: int) -> bool:
        return self.turns < self._turns_max and (
            not self.turns or self.bytes + size <= self._bytes_max
        )

    def _release(self, turns: int, size: int) -> None:
        self.turns -= turns
        self.bytes -= size
        while self._waiting and self._fits(self._waiting[0][1]):
            turn, wanted = self._waiting.popleft()
            if not turn.done():
                self.turns += 1
                self.bytes += wanted
                turn.set_result(None)

    def _lane(self, topic: str, partition: int) -> "_Lane":
        lane = self._lanes.get((topic, partition))
        if lane is None:
            lane = self._lanes[topic, partition] = _Lane()
        return lane

    def _message(self, topic: str, partition: int, key: bytes | None) -> Message:
        message = Message(topic, partition, key, self._loop.create_future())
        self._on_way.add(message)
        return message

    def _seal(self, lane: "_Lane") -> None:
        """Close the open pack of a lane and send it on."""
        message, lane.open = lane.open, None
        if lane.timer is not None:
            lane.timer.cancel()
            lane.timer = None
        if message is None:
            return
        message.headers = self._headers_of(message)
        message.seal()
        self._queue(lane, message)

    def _queue(self, lane: "_Lane", message: Message) -> None:
        message.deadline = self._loop.call_later(self._delivery_s, self._late, message)
        message.acknowledged.add_done_callback(partial(self._answered, message))
        lane.queue.append(message)
        if lane.task is None:
            lane.task = self._loop.create_task(self._drain(lane))

    async def _drain(self, lane: "_Lane") -> None:
        """Hand over the records of one partition, one after another."""
        try:
            while lane.queue:
                message = lane.queue.popleft()
                if message.acknowledged.done():
                    continue  # too late: it is not sent at all
                try:
                    sent = await self._send(message)
                except TurnstateError as error:
                    message.fail(error)
                    continue
                sent.add_done_callback(partial(_tell, message))
        finally:
            lane.task = None

    def _late(self, message: Message) -> None:
        message.fail(
            UnavailableError(
                f"Kafka has not acknowledged a record of {message.count} turns"
                f" in {self._delivery_s:g} s",
                field="kafka",
                hint="it may still arrive: send turns with an id again, they are known",
                code="delivery_timeout",
            )
        )

    def _answered(self, message: Message, _: object) -> None:
        self._on_way.discard(message)
        assert message.deadline is not None, "it was queued"
        message.deadline.cancel()
        error = message.acknowledged.exception()
        if error is None:
            if self._acknowledged is not None:
                offset = message.acknowledged.result()
                self._acknowledged(message.topic, message.partition, offset)
        elif self._failure is None and isinstance(error, TurnstateError):
            self._failure = error
        self._release(message.count, message.size)


class _Lane:
    """What waits for one partition: the open pack, and records before it."""

    __slots__ = ("open", "queue", "task", "timer")

    def __init__(self) -> None:
        self.open: Message | None = None
        self.queue: deque[Message] = deque()
        self.task: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None


def _tell(message: Message, told: "asyncio.Future[int]") -> None:
    if told.cancelled():
        message.fail(
            UnavailableError(
                "the producer was closed before Kafka answered",
                field="kafka",
                code="delivery_unknown",
            )
        )
        return
    error = told.exception()
    if error is None:
        message.settle(told.result())
    else:
        assert isinstance(error, TurnstateError), "the sender translates"
        message.fail(error)
