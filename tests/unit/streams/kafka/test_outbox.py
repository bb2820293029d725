"""What waits to be sent: in order, packed, bounded; each failure told."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from turnstate.schemas.errors import TurnstateError, UnavailableError
from turnstate.schemas.wire.packed import unpack_turns
from turnstate.streams.kafka.outbox import SEAL_TURNS, Outbox
from turnstate.streams.kafka.receipts import Message, Receipt


class Wire:
    """Takes records, and answers them when told to."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.answers: list[asyncio.Future[int]] = []
        self.taken: list[tuple[str, int, int]] = []
        self.refuses: TurnstateError | None = None

    async def send(self, message: Message) -> "asyncio.Future[int]":
        if self.refuses is not None:
            raise self.refuses
        self.sent.append(message)
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.answers.append(answer)
        return answer

    def outbox(self, **options: Any) -> Outbox:
        chosen: dict[str, Any] = {
            "linger_s": 0.001,
            "turns_max": 1000,
            "bytes_max": 1 << 20,
            "block_s": 0.05,
            "delivery_s": 5.0,
        }
        return Outbox(
            self.send,
            lambda _: [],
            **{**chosen, **options},
            acknowledged=self.acknowledged,
        )

    def acknowledged(self, topic: str, partition: int, offset: int) -> None:
        self.taken.append((topic, partition, offset))

    def values(self) -> list[list[bytes]]:
        return [
            unpack_turns(message.value) if message.key is None else [message.value]
            for message in self.sent
            if message.value is not None
        ]


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


async def put(outbox: Outbox, turn: bytes, partition: int = 0) -> Receipt:
    await outbox.reserve(len(turn))
    return outbox.put("turns", partition, b"key", turn, None)


def test_turns_that_come_together_share_a_record_and_one_alone_is_plain() -> None:
    async def test() -> None:
        wire = Wire()
        outbox = wire.outbox()
        receipts = [await put(outbox, b"a"), await put(outbox, b"b")]
        other = await put(outbox, b"c", partition=1)
        await asyncio.sleep(0.02)
        assert wire.values() == [[b"a", b"b"], [b"c"]]
        assert [message.key for message in wire.sent] == [None, b"key"]
        for number, answer in enumerate(wire.answers):
            answer.set_result(7 + number)
        await outbox.flush()
        places = [await receipt for receipt in [*receipts, other]]
        assert [(at.partition, at.offset, at.index) for at in places] == [
            (0, 7, 0),
            (0, 7, 1),
            (1, 8, 0),
        ]
        assert wire.taken == [("turns", 0, 7), ("turns", 1, 8)]
        assert outbox.turns == outbox.bytes == 0
        await outbox.close()

    run(test())


def test_a_record_of_its_own_keeps_its_place() -> None:
    async def test() -> None:
        wire = Wire()
        outbox = wire.outbox()
        await put(outbox, b"a")
        await outbox.reserve(1)
        outbox.put_alone("turns", 0, b"key", b"b", [("x", b"y")])
        await put(outbox, b"c")
        await asyncio.sleep(0.02)
        assert wire.values() == [[b"a"], [b"b"], [b"c"]]
        for answer in wire.answers:
            answer.set_result(0)
        await outbox.flush()
        await outbox.close()

    run(test())


def test_a_full_pack_does_not_linger() -> None:
    async def test() -> None:
        wire = Wire()
        outbox = wire.outbox(linger_s=60.0)
        for _ in range(SEAL_TURNS + 1):
            await put(outbox, b"t")
        await asyncio.sleep(0)
        assert list(map(len, wire.values())) == [SEAL_TURNS]
        flush = asyncio.create_task(outbox.flush())
        await asyncio.sleep(0.01)
        assert list(map(len, wire.values())) == [SEAL_TURNS, 1]
        assert not flush.done()
        for answer in wire.answers:
            answer.set_result(0)
        await flush
        await outbox.close()

    run(test())


def test_a_publisher_waits_for_room_and_is_told_at_last() -> None:
    async def test() -> None:
        wire = Wire()
        outbox = wire.outbox(turns_max=2)
        await put(outbox, b"a")
        await put(outbox, b"b")
        with pytest.raises(UnavailableError) as caught:
            await put(outbox, b"c")
        assert caught.value.code == "buffer_full"
        waiting = asyncio.create_task(put(outbox, b"d"))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        wire.answers[0].set_result(0)
        await waiting
        assert outbox.turns == 1
        assert outbox.held_back == 2
        await asyncio.sleep(0.01)
        wire.answers[1].set_result(1)
        await outbox.flush()
        await outbox.close()

    run(test())


def test_a_publisher_that_gives_up_leaves_its_room_to_others() -> None:
    async def test() -> None:
        wire = Wire()
        outbox = wire.outbox(turns_max=1, block_s=5.0)
        await put(outbox, b"a")
        await asyncio.sleep(0.01)
        first, second = (asyncio.create_task(outbox.reserve(1)) for _ in range(2))
        await asyncio.sleep(0)
        wire.answers[0].set_result(0)
        while outbox.turns == 1 and wire.taken == []:
            await asyncio.sleep(0)
        first.cancel()
        await second
        assert outbox.turns == 1
        await outbox.close()

    run(test())


def test_bytes_are_bounded_too_but_one_turn_is_always_taken() -> None:
    async def test() -> None:
        wire = Wire()
        outbox = wire.outbox(bytes_max=10)
        await put(outbox, bytes(99))
        with pytest.raises(UnavailableError):
            await put(outbox, b"a")
        wire.answers[0].set_result(0)
        await put(outbox, b"a")
        await outbox.close()

    run(test())


def test_each_failure_is_told_by_its_receipt_and_the_first_by_flush() -> None:
    async def test() -> None:
        wire = Wire()
        outbox = wire.outbox()
        first, second = await put(outbox, b"a"), await put(outbox, b"b", 1)
        third = await put(outbox, b"c", 2)
        await asyncio.sleep(0.02)
        errors = [UnavailableError("one"), UnavailableError("two")]
        wire.answers[0].set_exception(errors[0])
        wire.answers[1].set_exception(errors[1])
        wire.answers[2].set_result(5)
        with pytest.raises(UnavailableError, match="one"):
            await outbox.flush()
        for receipt, error in ((first, "one"), (second, "two")):
            with pytest.raises(UnavailableError, match=error):
                await receipt
        assert (await third).offset == 5
        await outbox.flush()  # it was told
        await outbox.close()

    run(test())


def test_what_is_not_taken_has_failed() -> None:
    async def test() -> None:
        wire = Wire()
        wire.refuses = UnavailableError("not taken")
        outbox = wire.outbox()
        receipt = await put(outbox, b"a")
        with pytest.raises(UnavailableError, match="not taken"):
            await receipt
        with pytest.raises(UnavailableError, match="not taken"):
            await outbox.flush()
        assert outbox.turns == 0
        await outbox.close()

    run(test())


def test_what_is_too_long_on_its_way_has_failed() -> None:
    async def test() -> None:
        wire = Wire()
        outbox = wire.outbox(delivery_s=0.02)
        receipt = await put(outbox, b"a")
        with pytest.raises(UnavailableError) as caught:
            await outbox.flush()
        assert caught.value.code == "delivery_timeout"
        assert receipt.done
        wire.answers[0].set_result(9)  # it arrives all the same
        await asyncio.sleep(0)
        with pytest.raises(UnavailableError):
            await receipt
        await outbox.close()

    run(test())
