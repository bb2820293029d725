"""What a producer holds of its caller: records on their way, and receipts for turns."""

import asyncio
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

from turnstate.schemas.errors import TurnstateError
from turnstate.schemas.wire.packed import pack_turns

Headers = Sequence[tuple[str, bytes]]


@dataclass(frozen=True, slots=True)
class Ack:
    """Where an acknowledged turn lies in its topic.

    Attributes:
        partition: The partition.
        offset: The offset of its record; -1 where the broker acknowledged a
            repeated send and no longer knows where the first one went.
        index: Its place in a packed record.
    """

    partition: int
    offset: int
    index: int


class Receipt:
    """Stand for one turn that was taken; await it for where it lies.

    Awaiting raises the error of the delivery. A receipt that nobody awaits is
    no loss: `flush` and `close` raise the first failure.
    """

    __slots__ = ("_message", "index")

    def __init__(self, message: "Message", index: int) -> None:
        self._message = message
        self.index = index

    @property
    def partition(self) -> int:
        """Return the partition, which is known before the acknowledgement."""
        return self._message.partition

    @property
    def done(self) -> bool:
        """Say whether it is acknowledged or failed."""
        return self._message.acknowledged.done()

    def result(self) -> Ack:
        """Return where the turn lies, once `done`.

        Raises:
            TurnstateError: it was not delivered, or nobody knows whether.
        """
        return Ack(self.partition, self._message.acknowledged.result(), self.index)

    def __await__(self) -> Generator[Any, None, Ack]:
        # Shielded: one caller that gives up must not cancel a whole pack.
        offset = yield from asyncio.shield(self._message.acknowledged).__await__()
        return Ack(self.partition, offset, self.index)


class Message:
    """One record on its way: a turn, a pack of turns, or bytes as they are.

    Args:
        topic: Where to.
        partition: The partition.
        key: Of a record with one turn; a pack has none.
        acknowledged: Gets the offset, or the error.
    """

    __slots__ = (
        "acknowledged",
        "count",
        "deadline",
        "headers",
        "key",
        "partition",
        "request_id",
        "size",
        "topic",
        "turns",
        "value",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        acknowledged: "asyncio.Future[int]",
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.key = key
        self.acknowledged = acknowledged
        self.turns: list[bytes] = []
        self.count = 0
        self.size = 0
        self.value: bytes | None = None
        self.headers: Headers = ()
        self.request_id: str | None = None
        self.deadline: asyncio.TimerHandle | None = None

    def add(self, turn: bytes) -> Receipt:
        """Take a turn that goes with those before it."""
        receipt = Receipt(self, self.count)
        self.turns.append(turn)
        self.count += 1
        self.size += len(turn)
        return receipt

    def seal(self) -> None:
        """Make the value: a turn by itself as it is, several as a pack."""
        if self.count > 1:
            self.key, self.value = None, pack_turns(self.turns)
        else:
            self.value = self.turns[0]
        self.turns = []

    def settle(self, offset: int) -> None:
        """Take the acknowledgement, unless it was given up before."""
        if not self.acknowledged.done():
            self.acknowledged.set_result(offset)

    def fail(self, error: TurnstateError) -> None:
        """Take the failure, unless there was an answer before."""
        if not self.acknowledged.done():
            self.acknowledged.set_exception(error)
            # Told by flush too: nobody has to ask this one for it.
            self.acknowledged.exception()
