"""Jobs on packs: what is dead goes, what is pointed to stays, damaged or not."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from support.cooling import Cooling, real_lines
from support.memory_objects import MemoryObjects
from turnstate.schemas.errors import FencedError, UnavailableError
from turnstate.schemas.ids import SessionName
from turnstate.storage.cold.lease import TTL_MS
from turnstate.streams.clock import VirtualClock
from turnstate.streams.tiers.packs import collect_garbage, compact_packs

SESSIONS = 12
NOW_MS = 1_800_000_000_000


@pytest.fixture(name="world")
def fixture_world(tmp_path: Path) -> Iterator[Cooling]:
    clock = VirtualClock(NOW_MS)
    objects = MemoryObjects(clock.now_ms)
    # Less than two usual sessions: several packs, and none that is small.
    with Cooling(tmp_path, objects, clock=clock, cold_pack_bytes=4096) as world:
        world.publish(real_lines(SESSIONS))
        world.cool()
        yield world


def held(world: Cooling) -> MemoryObjects:
    assert isinstance(world.objects, MemoryObjects)
    return world.objects


def wake(world: Cooling, *names: SessionName) -> None:
    for name in names:
        assert world.job().move(name.key(), "warm").moved


def pack_of(world: Cooling, name: SessionName) -> str:
    return world.cold()[name.key()].pointer.pack


def test_nothing_dead_nothing_done(world: Cooling) -> None:
    names = world.pack_names()
    assert len(names) > 2
    assert world.compact()["rewritten"] == 0
    assert world.collect()["packs"] == 0
    assert world.pack_names() == names
    assert list(world.unsaid()) == []


def test_packs_that_are_mostly_dead_are_rewritten_and_then_collected(
    world: Cooling,
) -> None:
    said = world.told()
    wake(world, *world.names()[::2], *world.names()[1::4])
    left = world.tiers()["cold"]
    assert left
    before = world.pack_names()
    done = world.compact()

    assert done["rewritten"]
    assert done["damaged"] == {}
    assert done["bytes_live"] < done["bytes_before"]
    assert before < world.pack_names()
    collected = world.collect()
    assert collected["packs"] == done["rewritten"]
    assert collected["bytes"] == done["bytes_before"]
    assert list(world.unsaid()) == []
    assert world.tiers()["cold"] == left
    assert world.told() == said
    assert world.store.verify()["bad"] == []


def test_what_is_all_dead_goes_unread_though_it_is_damaged_or_gone(
    world: Cooling,
) -> None:
    wake(world, *world.names())
    torn, gone, *_ = sorted(world.pack_names())
    data, made_ms = held(world).held[torn]
    held(world).held[torn] = (data[: len(data) // 2], made_ms)
    held(world).delete([gone])
    done = world.compact()

    assert done["damaged"] == {}
    assert done["new_packs"] == 0
    world.collect()
    assert world.pack_names() == set()
    assert list(world.unsaid()) == []


def test_a_damaged_pack_with_something_alive_stays_and_is_named(
    world: Cooling,
) -> None:
    said = world.told()
    pack = next(p for p in sorted(world.pack_names()) if len(names_in(world, p)) > 1)
    # The smallest one alone is less than half of its pack.
    first, *others = names_in(world, pack)
    wake(world, *others)
    pointer = world.cold()[first.key()].pointer
    data, made_ms = held(world).held[pack]
    at = pointer.offset + pointer.length - 1
    held(world).held[pack] = (
        data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :],
        made_ms,
    )
    assert list(world.compact()["damaged"]) == [pack]
    assert pack in world.packs().manifests.latest().packs
    world.collect()
    assert pack in world.pack_names()
    (bad,) = world.store.verify()["bad"]
    assert (bad["tenant"], bad["session"], bad["tier"]) == (*first, "cold")
    held(world).held[pack] = (data, made_ms)
    world.use(world.packs())
    assert world.told() == said


def names_in(world: Cooling, pack: str) -> list[SessionName]:
    lengths = {
        key: cold.pointer.length
        for key, cold in world.cold().items()
        if cold.pointer.pack == pack
    }
    return [SessionName.from_key(key) for key in sorted(lengths, key=lengths.get)]  # type: ignore[arg-type]


def test_a_dry_run_says_what_would_be_done_and_does_nothing(world: Cooling) -> None:
    wake(world, *world.names()[:9])
    packs = world.packs()
    lease = world.lease(packs)
    before = dict(held(world).held)
    dry = compact_packs(world.store, packs, lease, min_age_ms=0, dry_run=True)
    assert dry["dry_run"]
    assert dry["rewritten"]
    assert held(world).held == before
    done = compact_packs(world.store, packs, lease, min_age_ms=0)
    same = ("packs", "rewritten", "bytes_before", "bytes_live")
    assert [dry[name] for name in same] == [done[name] for name in same]
    world.clock.advance(1000)
    before = dict(held(world).held)
    dry = collect_garbage(world.store, packs, lease, min_age_ms=0, dry_run=True)
    assert held(world).held == before
    done = collect_garbage(world.store, packs, lease, min_age_ms=0)
    went = {name for name in before if name.startswith("packs/")} - world.pack_names()
    assert dry["packs"] == done["packs"] == len(went) > 0


def test_young_packs_stay(world: Cooling) -> None:
    wake(world, *world.names())
    packs = world.packs()
    lease = world.lease(packs)
    hour_ms = 3_600_000
    done = compact_packs(world.store, packs, lease, min_age_ms=hour_ms)
    assert done["rewritten"] == 0
    world.clock.advance(hour_ms)
    assert compact_packs(world.store, packs, lease, min_age_ms=hour_ms)["rewritten"]
    assert collect_garbage(world.store, packs, lease, min_age_ms=2 * hour_ms) | {
        "manifests": 0,
        "leases": 0,
    } == {
        "packs": 0,
        "bytes": 0,
        "manifests": 0,
        "leases": 0,
        "kept": {
            "young": len(world.pack_names()),
            "pinned": 0,
            "referenced": 0,
            "foreign": 0,
        },
        "dry_run": False,
    }
    world.clock.advance(hour_ms)
    collect_garbage(world.store, packs, lease, min_age_ms=hour_ms)
    assert world.pack_names() == set()


@pytest.mark.parametrize("job", [compact_packs, collect_garbage])
def test_a_lease_that_another_holds_stops_it(world: Cooling, job: object) -> None:
    assert callable(job)
    wake(world, *world.names())
    before = world.pack_names()
    with world.lease(world.packs(), "another").held():
        packs = world.packs()
        with pytest.raises(UnavailableError) as raised:
            job(world.store, packs, world.lease(packs), min_age_ms=0)
    assert raised.value.code == "leased"
    assert world.pack_names() == before


def test_a_compaction_that_is_overtaken_leaves_every_pointer_right(
    world: Cooling,
) -> None:
    said = world.told()
    wake(world, *world.names()[::2], *world.names()[1::4])
    objects = held(world)
    calls = objects.calls

    def overtake() -> None:
        world.clock.advance(2 * TTL_MS)
        with world.lease(world.packs(), "other").held() as token:
            list(world.store.call("tier_pointers", token=token))

    world.compact()
    took = objects.calls - calls
    for at in range(1, took + 4):
        wake(world, *(SessionName.from_key(key) for key in list(world.cold())[:2]))
        world.cool()
        wake(world, *world.names()[at % 3 :: 2])
        objects.interrupt({at: overtake})
        with suppress(FencedError, UnavailableError):
            world.compact()
        objects.interrupts.clear()
        world.cool()
    assert world.told() == said
    for _ in range(2):
        world.compact()
        world.collect()
    assert list(world.unsaid()) == []
    assert world.told() == said
