"""What is alive moves on, what is dead goes, and nothing older comes back."""

from collections.abc import Iterable

import pytest

from support.faulty_objects import FaultyObjects, Mishap
from support.memory_objects import MemoryObjects
from support.packs import (
    HOUR_MS,
    START_MS,
    collected,
    image,
    images,
    memory,
    pack_names,
    packs_in,
    turn,
)
from turnstate.schemas.errors import FencedError, UnavailableError
from turnstate.storage.cold.compaction import (
    compact,
    finish,
    live_by_key,
    live_bytes,
    plan,
)
from turnstate.storage.cold.manifest import Manifest, PackInfo
from turnstate.storage.cold.pointer import Pointer
from turnstate.storage.cold.store import Away, PackStore

OLD = START_MS - 2 * HOUR_MS


def info(image_bytes: int, created_ms: int = OLD) -> PackInfo:
    return PackInfo(image_bytes + 100, 1, image_bytes, 0, created_ms, 1)


def planned(packs: dict[str, PackInfo], live: dict[str, int], **more: object) -> object:
    return plan(Manifest(packs=packs), live, now_ms=START_MS, **more)  # type: ignore[arg-type]


def test_packs_of_which_less_than_half_is_alive_are_rewritten() -> None:
    packs = {name: info(100) for name in ("a", "b", "c", "d")}
    live = {"a": 50, "b": 49, "c": 10}

    assert planned(packs, live) == ["d", "c", "b"]
    assert planned(packs, live, live_ratio=0.2) == ["d", "c"]
    assert planned(packs, live, held={"d"}) == ["c", "b"]
    packs["c"] = info(100, START_MS - HOUR_MS + 1)
    assert planned(packs, live) == ["d", "b"]
    assert planned(packs, dict.fromkeys(packs, 100)) == []


def test_packs_without_images_and_small_ones_are_put_together() -> None:
    packs = {"a": info(0), "b": info(100), "c": info(900)}
    full = {"b": 100, "c": 900}

    assert planned(packs, full) == []
    assert planned(packs, {"b": 10, "c": 900}) == ["b", "a"]
    assert planned(packs, full, small_bytes=500) == ["a", "b"]
    assert planned({**packs, "d": info(0)}, full) == ["a", "d"]


def alive(pointers: Iterable[Pointer]) -> frozenset[Pointer]:
    return frozenset(pointers)


def test_what_is_alive_is_copied_and_what_is_dead_goes() -> None:
    objects = memory()
    store = packs_in(objects)
    pointers = store.write(images(40, 100))
    keep = alive(pointers[::5])
    old = pack_names(objects)
    made = compact(store, old, is_live=keep.__contains__)

    assert set(made.moved) == keep
    for before, after in made.moved.items():
        assert store.read(after) == store.read(before)
        assert store.find(made.keys[before]) in (before, after)
    assert made.copied_bytes == sum(pointer.length for pointer in keep)
    assert made.dropped_bytes == sum(p.length for p in pointers if p not in keep)
    finish(store, made)
    finish(store, made)
    assert set(store.manifests.latest().packs) == set(made.new)
    assert len(made.new) < len(old)
    assert store.find(b"key 1") is None
    turn(objects, 2 * HOUR_MS)
    assert collected(store).packs == sorted(old)
    assert all(store.read(pointer) for pointer in made.moved.values())


def test_a_pack_in_which_nothing_is_alive_just_leaves() -> None:
    objects = memory()
    store = packs_in(objects)
    pointers = store.write(images(3))
    made = compact(store, [pointers[0].pack], is_live=lambda _: False)

    assert (made.new, dict(made.moved)) == ([], {})
    finish(store, made)
    assert store.manifests.latest().packs == {}


def test_a_copy_is_not_newer_than_what_came_after_the_original() -> None:
    objects = memory()
    store = packs_in(objects)
    (old,) = store.write([image(b"k", 1)])
    (new,) = store.write([image(b"k", 2)])
    made = compact(store, [old.pack], is_live=alive([old]).__contains__)

    assert store.find(b"k") == new
    again = compact(store, made.new, is_live=alive(made.moved.values()).__contains__)
    assert list(again.moved) == list(made.moved.values())
    assert packs_in(objects, seed=1).find(b"k") == new


def test_what_left_stays_hidden_as_long_as_something_older_is_there() -> None:
    objects = memory()
    store = packs_in(objects)
    (first,) = store.write([image(b"k")])
    store.write([image(b"o")])
    store.write([Away(b"k", 1, 1), Away(b"stranger", 1, 1)])
    hiding = store.manifests.latest().newest_first()[0][0]
    made = compact(store, [hiding], is_live=live_by_key(store))
    finish(store, made)

    assert dict(made.moved) == {}
    assert [entry.key for entry in store.entries(made.new[0])] == [b"k"]
    assert packs_in(objects, seed=1).find(b"k") is None
    finish(store, compact(store, [first.pack], is_live=live_by_key(store)))
    gone = compact(store, made.new, is_live=live_by_key(store))
    finish(store, gone)
    assert gone.new == []
    assert store.find(b"k") is None
    assert store.find(b"o") is not None


def test_a_session_that_came_back_is_alive_and_what_hid_it_is_not_needed() -> None:
    store = packs_in(memory())
    store.write([image(b"k", 1)])
    store.write([Away(b"k", 1, 1)])
    (back,) = store.write([image(b"k", 1, 5)])
    names = list(store.manifests.latest().packs)
    made = compact(store, names, is_live=live_by_key(store))
    finish(store, made)

    assert list(made.moved) == [back]
    assert store.find(b"k") == made.moved[back]


def test_a_damaged_pack_stays_and_the_others_are_rewritten() -> None:
    objects = memory()
    store = packs_in(objects)
    (one,) = store.write([image(b"one", 1, 50)])
    two = store.write([image(b"two", 1, 50), image(b"three", 1, 50)])
    (lost,) = store.write([image(b"lost")])
    data, made_ms = objects.held[two[1].pack]
    at = two[1].offset + 3
    objects.held[two[1].pack] = (
        data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :],
        made_ms,
    )
    del objects.held[lost.pack]
    names = [one.pack, two[0].pack, lost.pack, "packs/gone already"]
    store = packs_in(objects, seed=1)
    made = compact(store, names, is_live=lambda _: True)

    assert set(made.damaged) == {two[0].pack, lost.pack}
    assert made.old == [one.pack]
    assert store.read(made.moved[one]) == image(b"one", 1, 50).data
    finish(store, made)
    assert set(store.manifests.latest().packs) == {two[0].pack, lost.pack, *made.new}


def test_images_stream_through_in_few_requests() -> None:
    """Neighbours are read together, whatever lies dead between them."""
    objects = memory()
    store = packs_in(objects, pack_bytes=1 << 20)
    pointers = store.write(images(500, 500))
    (old,) = pack_names(objects)
    before = objects.calls
    compact(store, [old], is_live=alive(pointers[::3]).__contains__)

    # Manifest twice, index, one range; create and read back; commit.
    assert objects.calls - before <= 10


def fails(objects: MemoryObjects, store: PackStore, call: int) -> bool:
    faulty = FaultyObjects(objects, {call: Mishap.LOST})
    broken = packs_in(faulty, objects.clock, seed=call)
    try:
        old = list(store.manifests.latest().packs)
        finish(broken, compact(broken, old, is_live=live_by_key(broken)))
    except UnavailableError:
        return True
    return False


def test_after_a_crash_at_any_call_everything_is_found_and_garbage_goes() -> None:
    call, failed = 1, True
    while failed:
        objects = memory()
        store = packs_in(objects)
        for version in (1, 2):
            store.write(images(12, 100, version))
        failed = fails(objects, store, call)
        again = packs_in(objects, seed=200)
        finish(
            again,
            compact(
                again, list(again.manifests.latest().packs), is_live=live_by_key(again)
            ),
        )
        turn(objects, 2 * HOUR_MS)
        collected(again)
        for each in images(12, 100, 2):
            pointer = again.find(each.key)
            assert pointer is not None
            assert again.read(pointer) == each.data
        assert set(pack_names(objects)) == set(again.manifests.latest().packs)
        call += 1
    assert call > 10


def test_who_was_overtaken_commits_nothing() -> None:
    objects = memory()
    store = packs_in(objects, epoch=1)
    pointers = store.write(images(3))
    packs_in(objects, seed=1).fence(2)
    with pytest.raises(FencedError):
        compact(store, [pointers[0].pack], is_live=lambda _: True)
    assert packs_in(objects, seed=2).find(b"key 0") == pointers[0]


def test_live_bytes_add_up() -> None:
    store = packs_in(memory())
    pointers = store.write(images(5, 10))
    assert live_bytes(iter(pointers)) == {
        pointers[0].pack: sum(pointer.length for pointer in pointers)
    }
