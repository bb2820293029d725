"""Rounds of different partitions overlap, those of one partition never do."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import pytest
from aiokafka.errors import KafkaError
from faust.types import TP

from turnstate.streams.kafka.checkpoint import LANES, Checkpointer
from turnstate.streams.kafka.rounds import Rounds
from turnstate.streams.kafka.transport import Chunk

ASSIGNED = 4


class HeldRounds:
    """Rounds that last until they are let go, and are written down."""

    def __init__(self) -> None:
        self.draining = False
        self.holds = True
        self.begun: list[list[tuple[int, int]]] = []
        self.held: list[asyncio.Future[None]] = []

    async def run(self, chunks: Sequence[Chunk]) -> None:
        self.begun.append(
            [(chunk.partition.partition, chunk.begin) for chunk in chunks]
        )
        if self.holds:
            self.held.append(asyncio.get_running_loop().create_future())
            await self.held[-1]


class Scene:
    """A checkpointer over such rounds."""

    def __init__(self) -> None:
        self.rounds = HeldRounds()
        self.checkpointer = Checkpointer(cast("Rounds", self.rounds))

    async def put(self, *partitions: int) -> None:
        for place, number in enumerate(partitions):
            record: Any = type("Record", (), {"offset": place, "value": b""})
            await self.checkpointer.put(Chunk(TP("turns", number), [record], 1, place))

    async def begun(self, count: int) -> list[list[tuple[int, int]]]:
        """Wait until so many rounds have begun."""
        async with asyncio.timeout(5):
            while len(self.rounds.begun) < count:
                await asyncio.sleep(0.001)
        return self.rounds.begun

    async def stays(self, count: int) -> None:
        """See that no more rounds begin."""
        await asyncio.sleep(0.05)
        assert len(self.rounds.begun) == count


def play(scene_of: Callable[[Scene], Awaitable[None]]) -> None:
    async def run() -> None:
        scene = Scene()
        assigned: Any = dict.fromkeys(range(ASSIGNED), _NoPartition())
        running = asyncio.create_task(scene.checkpointer.run(lambda: assigned))
        await scene_of(scene)
        scene.rounds.holds = False
        for each in scene.rounds.held:
            if not each.done():
                each.set_result(None)
        await scene.checkpointer.close()
        await asyncio.wait_for(running, 5)

    asyncio.run(run())


class _NoPartition:
    """A partition with nothing to seal or to fill."""

    is_fresh = False
    redis = None


def test_while_one_round_is_out_the_next_one_folds() -> None:
    async def scene(at: Scene) -> None:
        await at.put(0, 1, 2, 3)
        first, second = await at.begun(2)
        assert [number for number, _ in first + second] == [0, 1, 2, 3]
        assert len(first) == len(second) == ASSIGNED // LANES

    play(scene)


def test_a_partition_is_in_one_round_at_a_time_and_in_order() -> None:
    async def scene(at: Scene) -> None:
        await at.put(0)
        await at.begun(1)
        await at.put(0, 0)
        await at.stays(1)
        at.rounds.held[0].set_result(None)
        assert (await at.begun(2))[1] == [(0, 0), (0, 1)]

    play(scene)


def test_no_more_rounds_than_lanes() -> None:
    async def scene(at: Scene) -> None:
        for number in range(LANES):
            await at.put(number)
            await at.begun(number + 1)
        await at.put(LANES)
        await at.stays(LANES)

    play(scene)


def test_what_others_want_done_waits_for_every_round_and_no_round_begins() -> None:
    async def scene(at: Scene) -> None:
        await at.put(0)
        await at.begun(1)
        seen: list[int] = []

        async def task() -> int:
            seen.append(sum(not each.done() for each in at.rounds.held))
            return 7

        asked = asyncio.create_task(at.checkpointer.between(task))
        await asyncio.sleep(0.01)
        await at.put(1)
        await at.stays(1)
        assert not asked.done()
        at.rounds.held[0].set_result(None)
        assert await asyncio.wait_for(asked, 5) == 7
        assert seen == [0]
        await at.begun(2)

    play(scene)


def test_draining_waits_for_every_round() -> None:
    async def scene(at: Scene) -> None:
        await at.put(0, 1, 2, 3)
        await at.begun(2)
        at.rounds.held[0].set_result(None)
        assert not await at.checkpointer.drain(0.05)
        at.rounds.held[1].set_result(None)
        assert await at.checkpointer.drain(5)

    play(scene)


def test_a_round_that_fails_ends_the_loop_with_its_error() -> None:
    async def run() -> None:
        at = Scene()
        assigned: Any = dict.fromkeys(range(ASSIGNED), _NoPartition())
        running = asyncio.create_task(at.checkpointer.run(lambda: assigned))
        await at.put(0, 1, 2, 3)
        await at.begun(2)
        at.rounds.held[0].set_exception(KafkaError("gone"))
        with pytest.raises(KafkaError, match="gone"):
            await asyncio.wait_for(running, 5)
        # The other one was ended with it.
        assert at.rounds.held[1].cancelled()

    asyncio.run(run())
