"""A round needs a cold session: it comes back, is waited for, or known for damaged."""

import asyncio
import os
from collections.abc import Generator
from pathlib import Path

import pytest

from support.changelogs import Owner, Topic
from support.round_bench import RoundBench, chunk
from turnstate.schemas.errors import UnavailableError
from turnstate.storage.cold.directory import DirectoryObjects
from turnstate.storage.cold.store import PackStore
from turnstate.storage.moves.journal import Plan
from turnstate.storage.moves.owner import Copied
from turnstate.storage.session_image import encode_image
from turnstate.streams.clock import VirtualClock
from turnstate.streams.kafka.partition_moves import PartitionMoves


class Away(DirectoryObjects):
    """A folder that cannot be reached now and then."""

    is_away = False

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """Read, unless it is away."""
        if self.is_away:
            raise UnavailableError("the folder is away")
        return super().read(name, start, length)


class Bench(RoundBench):
    """Rounds of one partition with a cold tier in a folder."""

    def __init__(self, folder: Path) -> None:
        clock = VirtualClock(1_700_000_000_000)
        self.objects = Away(folder / "cold")
        self.packs = PackStore(self.objects, clock=clock.now_ms, chance=os.urandom)
        super().__init__(
            Owner(folder / "store", Topic(), [], clock, self.packs)
        )
        self.owner.take_over(1)
        self.partition = self.owner.partition
        self.rounds = self.made_rounds()
        self.moves = PartitionMoves(self.partition, self.rounds, clock.now_ms)

    async def fold(self, offset: int, session: str = "s") -> None:
        """Fold one turn."""
        await self.rounds.run([chunk(offset, offset, session=session)])

    async def cool(self) -> list[bytes]:
        """Send every session to the cold tier, as a job does."""
        copied = await self.copied()
        return await self.moves.flip(copied)

    async def copied(self) -> list[Copied]:
        """Carry moves to where the copies are verified, and no further."""
        plans: list[Plan] = []
        for key in self.owner.keys(cold=False):
            head = self.partition.head_here(key)
            assert head is not None
            at = (head.head.incarnation, head.head.version)
            plans.append(Plan(key, *at, "warm", "cold", 1))
        await self.moves.plan(plans)
        assert await self.moves.unfinished(2) == sorted(plans, key=lambda each: each.id)
        found = await self.moves.images(plans)
        images = [image for image in found if image is not None]
        pointers = self.packs.write(map(encode_image, images))
        return [
            Copied(plan, image.row, pointer)
            for plan, image, pointer in zip(plans, images, pointers, strict=True)
        ]

    def versions(self) -> dict[str, int]:
        """Return the version of every session, cold ones from below."""
        state = self.owner.state()
        return {key[3:].decode(): len(ops) for key, (_, ops) in state.items()}


@pytest.fixture(name="bench")
def fixture_bench(tmp_path: Path) -> Generator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.owner.close()
    assert not bench.again, "no turn was missing"


def test_a_turn_of_a_cold_session_brings_it_back(bench: Bench) -> None:
    async def scenario() -> None:
        for offset in range(4):
            await bench.fold(offset, f"s{offset % 2}")
        assert len(await bench.cool()) == 2
        assert await bench.moves.unfinished(2) == []
        await bench.fold(4, "s0")
        assert [key[-2:] for key in bench.owner.keys(cold=True)] == [b"s1"]

    asyncio.run(scenario())
    assert bench.versions() == {"s0": 3, "s1": 2}
    assert bench.done == [0, 1, 2, 3, 4]


def test_what_another_epoch_handed_out_is_not_flipped(bench: Bench) -> None:
    async def scenario() -> None:
        await bench.fold(0)
        copied = await bench.copied()
        claim = bench.partition.claim(1)
        bench.partition.apply([(100, claim.value)])
        assert bench.partition.restored(changed=False)
        assert await bench.moves.flip(copied) == []
        assert await bench.moves.unfinished(2) == []
        assert bench.owner.keys(cold=True) == []
        # Nor is what nobody handed out, or what has moved on since.
        assert await bench.moves.flip(copied) == []
        copied = await bench.copied()
        await bench.fold(1)
        assert await bench.moves.flip(copied) == []

    asyncio.run(scenario())
    assert bench.versions() == {"s": 2}


def test_a_move_of_who_is_no_owner_any_more_is_not_made(bench: Bench) -> None:
    async def scenario() -> None:
        await bench.fold(0)
        copied = await bench.copied()
        bench.owns, bench.rounds.draining = False, True
        with pytest.raises(UnavailableError, match="another worker's"):
            await bench.moves.flip(copied)
        assert bench.owner.keys(cold=True) == []

    asyncio.run(scenario())
    assert bench.versions() == {"s": 1}


def test_while_the_cold_tier_is_away_a_round_waits_and_can_be_given_up(
    bench: Bench,
) -> None:
    async def scenario() -> None:
        await bench.fold(0)
        await bench.cool()
        bench.objects.is_away = True
        waiting = asyncio.create_task(bench.fold(1))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        assert bench.done == [0]
        bench.rounds.draining = True
        await asyncio.wait_for(waiting, 2)
        assert bench.done == [0]
        bench.rounds.draining = False
        waiting = asyncio.create_task(bench.fold(1))
        await asyncio.sleep(0.2)
        bench.objects.is_away = False
        await asyncio.wait_for(waiting, 5)

    asyncio.run(scenario())
    assert bench.done == [0, 1]
    assert bench.versions() == {"s": 2}
    assert not bench.sent.get("dead-letters")
    assert "turnstate_cold_waits_total 0.0" not in bench.metrics.text()


def test_turns_of_a_session_that_cannot_be_read_are_letters_and_others_go_on(
    bench: Bench,
) -> None:
    async def scenario() -> None:
        await bench.fold(0, "bad")
        await bench.cool()
        (name,) = bench.packs.manifests.latest().packs
        data = bench.objects.read(name)
        bench.objects.delete([name])
        await bench.fold(1, "bad")
        await bench.fold(2, "good")
        (letter,) = bench.sent["dead-letters"]
        told = dict(letter[2])
        assert (told["reason"], told["offset"]) == (b"cold_damaged", b"1")
        # Once its pack is back, the session is as good as any.
        bench.objects.create(name, data)
        await bench.fold(3, "bad")

    asyncio.run(scenario())
    assert bench.done == [0, 1, 2, 3]
    assert bench.versions() == {"bad": 2, "good": 1}
