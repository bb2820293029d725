"""Garbage goes, and nothing that is young, needed, pinned or pointed to does."""

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
from turnstate.storage.cold.collection import collect, erase_packs
from turnstate.storage.cold.compaction import compact, finish
from turnstate.storage.cold.lease import Leases
from turnstate.storage.cold.manifest import with_pin, without_packs, without_pin
from turnstate.storage.cold.names import pack_name
from turnstate.storage.cold.store import PackStore


def orphan(objects: MemoryObjects, store: PackStore) -> str:
    """Write a pack that a crash keeps out of the manifest."""
    before = set(pack_names(objects))
    with pytest.raises(UnavailableError):
        packs_in(
            FaultyObjects(objects, {4: Mishap.REFUSED}),
            objects.clock,
            seed=objects.calls,
        ).write([image(b"orphan")])
    (name,) = set(pack_names(objects)) - before
    return name


def test_an_orphan_goes_once_it_is_old_enough() -> None:
    objects = memory()
    store = packs_in(objects)
    (kept,) = store.write([image(b"k")])
    name = orphan(objects, store)
    young = collected(store)
    assert (young.packs, young.kept["young"]) == ([], 1)
    turn(objects, HOUR_MS + 1)
    done = collected(store)
    assert done.packs == [name]
    assert done.pack_bytes > 0
    assert done.boundary_ms == START_MS + 1
    assert pack_names(objects) == [kept.pack]
    assert collected(store).packs == []


def test_what_is_referenced_or_pinned_stays() -> None:
    objects = memory()
    store = packs_in(objects)
    first, second = (store.write([image(b"%d" % n)])[0] for n in (1, 2))
    store.commit(with_pin("checkpoint", START_MS + 5 * HOUR_MS))
    store.commit(without_packs([first.pack, second.pack]))
    turn(objects, 2 * HOUR_MS)
    assert collected(store).kept["pinned"] == 2
    turn(objects, 4 * HOUR_MS)
    done = collected(store, first.pack)
    assert done.packs == [second.pack]
    assert done.kept["referenced"] == 1
    assert store.manifests.latest().pins == {}
    assert store.read(first) == image(b"1").data


def test_a_pin_without_end_stays_until_it_is_taken_away() -> None:
    objects = memory()
    store = packs_in(objects)
    (pointer,) = store.write([image(b"k")])
    store.commit(with_pin("savepoint", None))
    store.commit(without_packs([pointer.pack]))
    turn(objects, 10_000 * HOUR_MS)
    assert collected(store).packs == []
    store.commit(without_pin("savepoint"))
    assert collected(store).packs == [pointer.pack]


def test_a_dry_run_says_the_same_and_does_nothing() -> None:
    objects = memory()
    store = packs_in(objects)
    for number in range(30):
        store.write([image(b"%d" % number)])
    orphan(objects, store)
    turn(objects, 2 * HOUR_MS)
    before = dict(objects.held)
    dry = collected(store, dry_run=True)
    assert objects.held == before
    real = collected(store)
    assert real._replace(is_dry_run=True, manifests=dry.manifests) == dry
    assert dry.manifests == 30 - 16
    assert real.manifests == 31 - 16


def test_what_is_no_pack_is_left_alone() -> None:
    objects = memory()
    store = packs_in(objects)
    objects.create("packs/README", b"an operator's note")
    turn(objects, 100 * HOUR_MS)
    assert collected(store).kept["foreign"] == 1
    assert "packs/README" in objects.held


def test_a_pack_is_young_by_its_name_and_by_the_time_of_the_store() -> None:
    objects = memory()
    store = packs_in(objects)
    objects.create(pack_name(0, START_MS + 9 * HOUR_MS, bytes(10)), b"named late")
    turn(objects, 8 * HOUR_MS)
    objects.create(pack_name(0, START_MS, bytes(10)), b"made late")
    assert collected(store).packs == []


def test_old_manifests_and_leases_go_but_for_the_newest() -> None:
    objects = memory()
    store = packs_in(objects)
    leases = Leases(objects, bytes)
    lease = leases.take("one", START_MS)
    for number in range(20):
        store.write([image(b"%d" % number)])
        lease = leases.renew(lease, START_MS)
    assert collected(store, newest_kept=3).manifests == 0
    turn(objects, 2 * HOUR_MS)
    done = collected(store, newest_kept=3)
    assert (done.manifests, done.leases) == (19, 18)
    assert packs_in(objects, seed=1).find(b"7") is not None
    assert leases.latest() == lease


def test_a_clock_that_stepped_ahead_deletes_nothing_that_is_needed() -> None:
    objects = memory()
    store = packs_in(objects)
    (pointer,) = store.write([image(b"k")])
    name = orphan(objects, store)
    turn(objects, 1_000 * HOUR_MS)
    collected(store)
    turn(objects, -1_000 * HOUR_MS)
    (later,) = store.write([image(b"later")])
    late = orphan(objects, store)
    assert collected(store).packs == []
    assert set(pack_names(objects)) == {pointer.pack, later.pack, late}
    assert name not in objects.held


def test_references_are_asked_for_after_the_boundary_is_committed() -> None:
    objects = memory()
    store = packs_in(objects)
    name = orphan(objects, store)
    turn(objects, 2 * HOUR_MS)

    def referenced() -> frozenset[str]:
        boundary = packs_in(objects, seed=5).manifests.latest().boundary_ms
        assert boundary == START_MS + HOUR_MS
        assert name in objects.held
        return frozenset()

    assert collect(store, referenced=referenced).packs == [name]


def test_who_was_overtaken_deletes_nothing() -> None:
    objects = memory()
    store = packs_in(objects, epoch=1)
    name = orphan(objects, store)
    turn(objects, 2 * HOUR_MS)
    packs_in(objects, seed=1).fence(2)
    with pytest.raises(FencedError):
        collected(store)
    assert name in objects.held


def test_erasing_takes_bytes_past_age_and_pins() -> None:
    objects = memory()
    store = packs_in(objects)
    pointers = store.write(images(4, 50))
    store.commit(with_pin("checkpoint", None))
    secret = image(b"key 2", 1, 50).data[-40:]
    old = pack_names(objects)
    made = compact(store, old, is_live=lambda each: each != pointers[2])
    finish(store, made)
    assert any(secret in data for data, _ in objects.held.values())
    erase_packs(store, old)
    erase_packs(store, old)
    assert not any(secret in data for data, _ in objects.held.values())
    assert not any(b"key 2" in data for data, _ in objects.held.values())
    assert store.manifests.latest().pins["checkpoint"].packs == []
    assert store.find(b"key 2") is None
    assert store.read(made.moved[pointers[1]]) == image(b"key 1", 1, 50).data
