"""Packs over a real folder and a real S3 server: found, compacted, collected, raced."""

import os
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from support.cold_tiers import now_ms
from support.object_stores import s3_objects
from support.packs import image, images
from turnstate.schemas.errors import FencedError, UnavailableError
from turnstate.storage.cold.collection import collect
from turnstate.storage.cold.compaction import compact, finish, live_bytes, plan
from turnstate.storage.cold.counting import CountingObjects
from turnstate.storage.cold.directory import DirectoryObjects
from turnstate.storage.cold.lease import Leases
from turnstate.storage.cold.objects import ObjectStore
from turnstate.storage.cold.store import PackStore

LIMIT: Final = 256 << 10
"""Of a pack: small, so that there are many."""


@pytest.fixture(name="objects", params=["directory", "s3"])
def fixture_objects(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[ObjectStore]:
    """Give each kind of store in turn, empty."""
    if request.param == "directory":
        yield DirectoryObjects(tmp_path / "objects")
        return
    objects = s3_objects(request.getfixturevalue("s3_server"))
    yield objects
    objects.close()


def packs(objects: ObjectStore, epoch: int = 0, pack_bytes: int = LIMIT) -> PackStore:
    return PackStore(
        objects, clock=now_ms, chance=os.urandom, epoch=epoch, pack_bytes=pack_bytes
    )


def test_many_packs_are_found_compacted_and_collected(objects: ObjectStore) -> None:
    counted = CountingObjects(objects)
    store = packs(counted)
    wanted = {each.key: each.data for each in images(300, 20_000)}
    pointers = dict(zip(wanted, store.write(images(300, 20_000)), strict=True))
    assert len(store.manifests.latest().packs) >= 20
    before = counted.traffic()["read"].requests
    assert store.read(pointers[b"key 7"]) == wanted[b"key 7"]
    assert counted.traffic()["read"].requests - before == 1

    for key in (b"key 3", b"key 6", b"key 10"):
        (pointers[key],) = store.write([image(key, 2, 90)])
    dropped = [key for at, key in enumerate(pointers) if at % 5]
    for key in dropped:
        del pointers[key]
    live = frozenset(pointers.values())
    manifest = store.manifests.latest()
    # An age below zero takes what was made in this millisecond, too.
    names = plan(manifest, live_bytes(iter(live)), now_ms=now_ms(), min_age_ms=-1)
    assert len(names) >= 20
    made = compact(store, names, is_live=live.__contains__)
    for key, pointer in pointers.items():
        pointers[key] = made.moved.get(pointer, pointer)
    finish(store, made)

    done = collect(
        store,
        referenced=lambda: frozenset(each.pack for each in pointers.values()),
        min_age_ms=-2_000,
    )
    assert set(done.packs) >= set(names)
    there = {info.name for info in objects.list("packs/")}
    fresh = packs(objects)
    assert there == set(fresh.manifests.latest().packs)
    for key, pointer in pointers.items():
        assert fresh.find(key) == pointer
        assert fresh.read(pointer)
    assert fresh.find(dropped[0]) is None
    assert fresh.looks.spared > 0


def at_once(count: int, act: Callable[[int], object]) -> None:
    """Call something from so many threads that all start together."""
    gate = threading.Barrier(count)

    def run(number: int) -> None:
        gate.wait()
        act(number)

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(run, range(count)))


def test_all_that_commit_at_once_come_in(objects: ObjectStore) -> None:
    def write(number: int) -> None:
        store = packs(objects)
        for turn in range(3):
            store.write([image(b"%d %d" % (number, turn))])

    at_once(8, write)
    store = packs(objects)
    manifest = store.manifests.latest()
    assert len(manifest.packs) == manifest.number == 24
    assert sorted(info.order for info in manifest.packs.values()) == list(range(1, 25))
    for number in range(8):
        for turn in range(3):
            assert store.find(b"%d %d" % (number, turn)) is not None


def test_one_of_many_takes_the_lease_and_fences_who_had_it(
    objects: ObjectStore,
) -> None:
    leases = Leases(objects, os.urandom)
    old = leases.take("old", now_ms())
    before = packs(objects, old.token)
    before.write([image(b"before")])
    leases.release(old, now_ms())
    took: list[int] = []
    told: list[str] = []

    def take(number: int) -> None:
        try:
            lease = Leases(objects, os.urandom).take(f"job {number}", now_ms())
        except UnavailableError as error:
            told.append(error.code)
        else:
            took.append(lease.token)

    at_once(8, take)
    assert len(took) == 1
    assert told == ["leased"] * 7
    assert took[0] > old.token
    packs(objects).fence(took[0])
    with pytest.raises(FencedError):
        before.write([image(b"after")])


def test_a_compaction_holds_a_pack_and_not_all_of_them(tmp_path: Path) -> None:
    """24 MiB go through; the peak is some packs of 1 MiB and what is read at once."""
    store = packs(DirectoryObjects(tmp_path), pack_bytes=1 << 20)
    pointers = store.write(image(b"%d" % n, 1, 60_000) for n in range(400))
    live = frozenset(pointers)
    names = list(store.manifests.latest().packs)
    tracemalloc.start()
    made = compact(store, names, is_live=live.__contains__)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(made.moved) == 400
    assert made.copied_bytes > 24_000_000
    assert peak_bytes < 8 << 20
