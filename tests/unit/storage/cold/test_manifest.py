"""Creating the next manifest is the commit: nothing is lost, nobody stale gets in."""

from functools import partial
from random import Random

import pytest
from msgspec.structs import replace

from support.faulty_objects import FaultyObjects, Mishap
from support.memory_objects import MemoryObjects
from support.packs import HOUR_MS, START_MS, memory
from turnstate.schemas.errors import (
    CorruptDataError,
    FencedError,
    UnavailableError,
)
from turnstate.storage.cold.manifest import (
    RECENT,
    Manifest,
    Manifests,
    PackInfo,
    decode_manifest,
    encode_manifest,
    with_live_bytes,
    with_packs,
    with_pin,
    without_packs,
    without_pin,
)
from turnstate.storage.cold.names import pack_name
from turnstate.storage.cold.objects import ObjectStore

INFO = PackInfo(100, 2, 80, 80, START_MS, 0)


def name_of(number: int, time_ms: int = START_MS) -> str:
    return pack_name(0, time_ms, number.to_bytes(10))


def manifests(objects: ObjectStore, seed: int = 0) -> Manifests:
    return Manifests(objects, Random(seed).randbytes)


def commit(of: Manifests, number: int, epoch: int = 0) -> Manifest:
    return of.commit(with_packs({name_of(number): INFO}), epoch=epoch)


def test_an_empty_tier_has_manifest_0() -> None:
    assert manifests(memory()).latest() == Manifest()


def test_packs_come_in_one_after_another() -> None:
    objects = memory()
    first = manifests(objects)
    commit(first, 1)
    second = manifests(objects, 1)
    commit(second, 2)
    found = commit(first, 3)

    assert found == second.latest() == manifests(objects).latest()
    assert (found.number, found.previous) == (3, 2)
    assert [name for name, _ in found.newest_first()] == [
        name_of(3),
        name_of(2),
        name_of(1),
    ]
    assert [found.packs[name_of(n)].order for n in (1, 2, 3)] == [1, 2, 3]


def test_of_two_at_once_both_come_in() -> None:
    objects = memory()
    other = manifests(objects, 1)
    for call in range(1, 4):
        objects.interrupt({call: partial(commit, other, 10 + call)})
        commit(manifests(objects), call)

    assert set(manifests(objects).latest().packs) == {
        name_of(n) for n in (1, 2, 3, 11, 12, 13)
    }


def test_a_smaller_epoch_is_fenced() -> None:
    objects = memory()
    old, new = manifests(objects), manifests(objects, 1)
    commit(old, 1, epoch=3)
    new.commit(lambda manifest: manifest, epoch=4)

    with pytest.raises(FencedError, match="epoch 4"):
        commit(old, 2, epoch=3)
    assert set(commit(new, 3, epoch=4).packs) == {name_of(1), name_of(3)}


def test_a_change_of_nothing_writes_nothing() -> None:
    objects = memory()
    of = manifests(objects)
    commit(of, 1)
    before = dict(objects.held)
    of.commit(lambda manifest: manifest, epoch=0)
    of.commit(without_packs(["packs/other"]), epoch=0)

    assert objects.held == before


def test_pins_live_bytes_and_packs_come_and_go() -> None:
    of = manifests(memory())
    commit(of, 1)
    of.commit(with_pin("checkpoint", None), epoch=0)
    of.commit(with_pin("reader", START_MS + HOUR_MS), epoch=0)
    commit(of, 2)
    of.commit(with_live_bytes({name_of(2): 7}), epoch=0)
    found = of.commit(without_packs([name_of(1)]), epoch=0)

    assert found.packs[name_of(2)].live_bytes == 7
    assert found.pinned(START_MS + 2 * HOUR_MS) == {name_of(1)}
    found = of.commit(without_pin("checkpoint"), epoch=0)
    assert found.pinned(START_MS) == {name_of(1)}
    assert found.pinned(START_MS + HOUR_MS) == set()


def test_a_pack_from_before_the_boundary_is_refused() -> None:
    of = manifests(memory())
    commit(of, 1)
    of.commit(lambda m: replace(m, boundary_ms=START_MS + 1), epoch=0)
    with pytest.raises(UnavailableError) as caught:
        commit(of, 2)

    assert caught.value.code == "collected"
    assert set(of.latest().packs) == {name_of(1)}
    late = with_packs({name_of(3, START_MS + 1): INFO})
    assert len(of.commit(late, epoch=0).packs) == 2


def collect_all_but_newest(objects: MemoryObjects) -> None:
    """Remove old manifests, as garbage collection does."""
    objects.delete(sorted(objects.held)[:-1])


def test_a_number_that_is_free_because_it_is_old_holds_nothing() -> None:
    """A writer sleeps between reading and creating; its number was collected."""
    objects = memory()
    other = manifests(objects, 1)
    commit(other, 1)

    def meanwhile() -> None:
        for number in range(2, 9):
            commit(other, number)
        collect_all_but_newest(objects)

    slow = manifests(objects)
    slow.latest()
    objects.interrupt({2: meanwhile})
    commit(slow, 50)

    assert set(manifests(objects).latest().packs) == {
        name_of(n) for n in (*range(1, 9), 50)
    }


def test_a_commit_that_is_too_late_to_tell_says_so() -> None:
    objects = memory()
    other = manifests(objects, 1)
    commit(other, 1)

    def meanwhile() -> None:
        for number in range(2, RECENT + 4):
            commit(other, number)
        collect_all_but_newest(objects)

    slow = manifests(objects)
    slow.latest()
    objects.interrupt({2: meanwhile})
    with pytest.raises(UnavailableError) as caught:
        commit(slow, 500)
    assert caught.value.code == "contended"
    assert len(manifests(objects).latest().packs) == RECENT + 3


def test_another_commit_right_behind_is_no_lost_race() -> None:
    objects = memory()
    other = manifests(objects, 1)
    of = manifests(objects)
    objects.interrupt({3: partial(commit, other, 2)})
    commit(of, 1)

    assert set(of.latest().packs) == {name_of(1), name_of(2)}
    assert len(objects.held) == 2


def test_a_reader_passes_over_manifests_that_were_just_collected() -> None:
    objects = memory()
    other = manifests(objects, 1)
    commit(other, 1)

    def meanwhile() -> None:
        commit(other, 2)
        collect_all_but_newest(objects)

    objects.interrupt({2: meanwhile})
    assert manifests(objects).latest().number == 2


@pytest.mark.parametrize("mishap", [Mishap.REFUSED, Mishap.LOST])
@pytest.mark.parametrize("call", [1, 2, 3])
def test_after_any_failed_call_the_tier_is_whole(mishap: Mishap, call: int) -> None:
    objects = memory()
    commit(manifests(objects), 1)
    with pytest.raises(UnavailableError):
        commit(manifests(FaultyObjects(objects, {call: mishap}), 1), 2)

    found = set(commit(manifests(objects, 2), 3).packs)
    assert {name_of(1), name_of(3)} <= found <= {name_of(n) for n in (1, 2, 3)}


def test_a_manifest_is_one_list_and_one_read() -> None:
    objects = memory()
    for number in range(1, 4):
        commit(manifests(objects, number), number)
    of = manifests(objects)
    before = objects.calls
    of.latest()
    assert objects.calls - before == 2
    of.latest()
    assert objects.calls - before == 3


def test_equal_manifests_are_equal_bytes_and_others_are_refused() -> None:
    found = Manifest(3, 1, packs={"b": INFO, "a": INFO})
    assert decode_manifest(encode_manifest(found), "it") == found
    same = replace(found, packs={"a": INFO, "b": INFO})
    assert encode_manifest(same) == encode_manifest(found)
    with pytest.raises(CorruptDataError, match="it is no manifest"):
        decode_manifest(b'{"number":"3"}', "it")


def test_many_lost_races_end() -> None:
    objects = memory()
    other = manifests(objects, 1)
    of = manifests(objects)

    def change(manifest: Manifest) -> Manifest:
        commit(other, other.latest().number + 1)
        return replace(manifest, order=manifest.order + 1)

    with pytest.raises(UnavailableError) as caught:
        of.commit(change, epoch=0)
    assert caught.value.code == "contended"
