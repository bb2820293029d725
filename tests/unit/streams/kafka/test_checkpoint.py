"""A round folds what follows from what is folded, and nothing else."""

import asyncio
from collections.abc import Generator, Sequence
from pathlib import Path

import pytest

from support.changelogs import Owner, Topic
from support.round_bench import RoundBench, chunk
from turnstate.schemas.operation import Op
from turnstate.streams.clock import VirtualClock
from turnstate.streams.kafka.checkpoint import Checkpointer
from turnstate.streams.kafka.transport import Chunk


class Bench(RoundBench):
    """A checkpointer with one partition; what it sends is kept in lists."""

    def __init__(self, folder: Path) -> None:
        super().__init__(Owner(folder, Topic(), [], VirtualClock(1)))
        self.owner.take_over(1)
        self.checkpointer = Checkpointer(self.made_rounds())

    def rounds(self, *chunks: Chunk, owned: Sequence[bool] = ()) -> None:
        """Hand over chunks, one a round, and wait until each is done or dropped.

        Args:
            chunks: What is fetched.
            owned: Of each, whether the group confirms the worker meanwhile.
        """

        async def run() -> None:
            running = asyncio.create_task(self.checkpointer.run(dict))
            confirmed = owned or [True] * len(chunks)
            for each, self.owns in zip(chunks, confirmed, strict=True):
                await self.checkpointer.put(each)
                assert await self.checkpointer.drain(5)
            await self.checkpointer.close()
            await running

        asyncio.run(run())

    @property
    def folded(self) -> list[str]:
        """The ids of all turns that the session has, in order."""
        state = self.owner.state()
        if not state:
            return []
        ((_, records),) = state.values()
        return [str(Op.decode(record).turn_id) for record in records]


@pytest.fixture(name="bench")
def fixture_bench(tmp_path: Path) -> Generator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.owner.close()


def _ids(*offsets: int) -> list[str]:
    return [f"s-{offset}" for offset in offsets]


def test_chunks_that_follow_are_folded_and_done(bench: Bench) -> None:
    bench.rounds(chunk(0, 2), chunk(3, 5))
    assert bench.folded == _ids(*range(6))
    assert bench.done == [2, 5]
    assert not bench.again
    assert len(bench.sent["deltas"]) == 2


def test_a_chunk_behind_a_hole_waits_until_the_hole_was_read(bench: Bench) -> None:
    bench.rounds(chunk(0, 2), chunk(5, 7), chunk(3, 9))
    assert bench.again == [5]
    assert bench.done == [2, 9]
    assert bench.folded == _ids(*range(10))


def test_offsets_that_hold_no_records_are_no_hole(bench: Bench) -> None:
    bench.rounds(chunk(0, 2), chunk(4, 5, begin=3))
    assert bench.folded == _ids(0, 1, 2, 4, 5)
    assert not bench.again


def test_what_was_folded_comes_again_and_changes_nothing(bench: Bench) -> None:
    bench.rounds(chunk(0, 4), chunk(0, 2), chunk(2, 6))
    assert bench.folded == _ids(*range(7))
    assert bench.done == [4, 2, 6]


def test_a_round_that_was_given_up_is_a_hole_for_the_next(bench: Bench) -> None:
    bench.rounds(chunk(0, 2), chunk(3, 5), chunk(0, 6), owned=[False, True, True])
    assert bench.again == [3]
    assert bench.done == [6]
    assert bench.folded == _ids(*range(7))
