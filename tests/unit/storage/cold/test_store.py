"""Sessions are found by pointer and by key, in few requests, and never wrong ones."""

from functools import partial
from typing import Any

import pytest

from support.faulty_objects import FaultyObjects, Mishap
from support.packs import (
    HOUR_MS,
    Turned,
    collected,
    image,
    images,
    memory,
    pack_names,
    packs_in,
    turn,
)
from turnstate.schemas.errors import (
    ChecksumError,
    CorruptDataError,
    FencedError,
    InvalidInputError,
    NotFoundError,
    UnavailableError,
)
from turnstate.storage.cold.counting import CountingObjects
from turnstate.storage.cold.manifest import Manifest, without_packs
from turnstate.storage.cold.store import Away
from turnstate.storage.session_image import decode_front, decode_image


def test_every_image_is_read_by_its_pointer_and_found_by_its_key() -> None:
    objects = memory()
    store = packs_in(objects)
    wanted = images(60, 100)
    pointers = store.write(iter(wanted))
    again = packs_in(objects, seed=1)

    assert len(pack_names(objects)) > 3
    for each, pointer in zip(wanted, pointers, strict=True):
        assert store.read(pointer) == again.read(pointer) == each.data
        assert store.find(each.key) == again.find(each.key) == pointer
        front, _ = decode_front(store.read_front(pointer))
        assert front.key == each.key
    assert again.find(b"nobody") is None
    assert store.write([]) == []


def test_one_session_is_one_request_by_pointer_and_few_by_key() -> None:
    objects = memory()
    pointers = packs_in(objects).write(images(60, 100))
    store = packs_in(objects, seed=1)
    begin = objects.calls
    store.read_front(pointers[7])
    assert objects.calls - begin == 1
    store.read(pointers[7])
    assert objects.calls - begin == 2
    begin = objects.calls
    newest = pointers[-1]
    assert store.find(b"key 59") == newest
    # The newest manifest (list, read), the newest pack's footer.
    assert objects.calls - begin == 3
    begin = objects.calls
    assert store.find(b"key 58") is not None
    assert objects.calls - begin == 1


def test_filters_spare_the_indexes_of_other_packs() -> None:
    objects = memory()
    for number in range(20):
        packs_in(objects, seed=number).write(
            [image(b"%d %d" % (number, each)) for each in range(10)]
        )
    store = packs_in(objects, seed=99)
    assert store.find(b"0 3") is not None
    looks = store.looks
    assert looks.packs == 20
    assert looks.spared >= 17
    assert looks.spared + looks.misled == 19


def test_a_large_footer_takes_filter_and_index_apart() -> None:
    """64 KiB of a pack's end hold the filter, not the index of 3 000 sessions."""
    objects = memory()
    counted = CountingObjects(objects)
    writer = packs_in(counted, objects.clock, pack_bytes=8 << 20)
    writer.write(images(3000))
    store = packs_in(counted, objects.clock, seed=1, pack_bytes=8 << 20)
    before = counted.traffic()["read"].requests
    assert store.find(b"nobody at all") is None
    assert counted.traffic()["read"].requests - before == 2
    assert store.find(b"key 2999") is not None
    assert counted.traffic()["read"].requests - before == 3


def test_the_later_image_of_a_session_counts() -> None:
    store = packs_in(memory())
    first, second = store.write([image(b"k", 1), image(b"k", 2)])
    assert store.find(b"k") == second
    assert first.pack != second.pack
    (third,) = store.write([image(b"k", 1, 9)])
    assert store.find(b"k") == third
    assert decode_image(store.read(first)).version == 1


def test_a_session_that_left_is_hidden_until_it_comes_back() -> None:
    objects = memory()
    store = packs_in(objects)
    store.write([image(b"k"), image(b"other")])
    store.write([Away(b"k", 1, 1)])
    other = packs_in(objects, seed=1)
    assert store.find(b"k") is None
    assert other.find(b"k") is None
    assert other.find(b"other") is not None
    assert set(other.newest()) == {b"other"}
    (back,) = store.write([image(b"k")])
    assert other.find(b"k") == back


def test_all_or_none_of_the_images_come_in() -> None:
    objects = memory()

    def failing() -> Any:
        yield from images(50, 100)
        raise RuntimeError

    store = packs_in(objects)
    with pytest.raises(RuntimeError):
        store.write(failing())
    assert pack_names(objects)
    assert store.find(b"key 0") is None


def test_unless_is_asked_about_the_manifest_that_they_come_into() -> None:
    objects = memory()
    asked: list[int] = []

    def unless(manifest: Manifest) -> None:
        asked.append(manifest.number)
        if manifest.number == 1:
            raise FencedError("no")

    other = packs_in(objects, seed=1)
    store = packs_in(objects)
    objects.interrupt({5: partial(other.write, [image(b"o")])})
    with pytest.raises(FencedError):
        store.write([image(b"k")], unless=unless)
    assert asked[-1] == 1
    assert store.find(b"k") is None


def test_a_damaged_or_swapped_image_is_told() -> None:
    objects = memory()
    store = packs_in(objects)
    pointer, other = store.write([image(b"k", 1, 50), image(b"other", 1, 50)])
    faulty = packs_in(
        FaultyObjects(objects, {1: Mishap.SWAPPED, 2: Mishap.TORN, 3: Mishap.TORN}),
        objects.clock,
    )
    with pytest.raises(ChecksumError):
        faulty.read(pointer)
    with pytest.raises(ChecksumError):
        faulty.read(pointer)
    with pytest.raises(CorruptDataError):
        faulty.read_front(pointer)
    elsewhere = type(pointer)(
        other.pack, other.offset, other.length, other.front_bytes, other.crc, 1, 9
    )
    with pytest.raises(CorruptDataError, match="another image"):
        store.read_front(elsewhere)
    data, made_ms = objects.held[pointer.pack]
    objects.held[pointer.pack] = (data[: pointer.offset + 5], made_ms)
    with pytest.raises(ChecksumError):
        store.read_range(pointer, 0, 20)
    del objects.held[pointer.pack]
    with pytest.raises(NotFoundError):
        store.read(pointer)


def test_every_byte_of_a_front_counts() -> None:
    """Its checksum does not cover the version before it: a 0 there was read as 1."""
    objects = memory()
    store = packs_in(objects)
    (pointer,) = store.write([image(b"k")])
    data, made_ms = objects.held[pointer.pack]
    for at in range(pointer.offset, pointer.offset + pointer.front_bytes):
        damaged = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        objects.held[pointer.pack] = (damaged, made_ms)
        with pytest.raises(CorruptDataError):
            store.read_front(pointer)


def test_a_pack_that_is_lost_is_told_by_name() -> None:
    objects = memory()
    (pointer,) = packs_in(objects).write([image(b"k")])
    del objects.held[pointer.pack]
    with pytest.raises(CorruptDataError, match=pointer.pack):
        packs_in(objects, seed=1).find(b"k")


def test_a_reader_goes_on_where_packs_go_meanwhile() -> None:
    """Compacted, and collected, between its manifest and its read of a footer."""
    objects = memory()
    writer = packs_in(objects, seed=1)
    (old,) = writer.write([image(b"k")])

    def meanwhile() -> None:
        (new,) = writer.write([image(b"k")])
        writer.commit(without_packs([old.pack]))
        assert new.pack != old.pack
        del objects.held[old.pack]

    objects.interrupt({3: meanwhile})
    found = packs_in(objects).find(b"k")
    assert found is not None
    assert found.pack in objects.held


def test_whoever_took_over_fences_the_others() -> None:
    objects = memory()
    old, new = packs_in(objects, epoch=1), packs_in(objects, seed=1)
    old.write([image(b"k")])
    new.fence(2)
    with pytest.raises(FencedError):
        old.write([image(b"other")])
    (pointer,) = new.write([image(b"more")])
    assert pointer.pack.startswith("packs/00000000000000000002-")
    with pytest.raises(FencedError):
        new.fence(1)


def test_a_writer_that_garbage_collection_has_passed_is_told_to_write_again() -> None:
    objects = memory()
    slow = packs_in(objects)
    collector = packs_in(objects, seed=1)
    collector.write([image(b"o")])

    def meanwhile() -> None:
        turn(objects, 3 * HOUR_MS)
        assert len(collected(collector).packs) == 1

    objects.interrupt({5: meanwhile})
    with pytest.raises(UnavailableError) as caught:
        slow.write([image(b"k")])
    assert caught.value.code == "collected"
    (pointer,) = slow.write([image(b"k")])
    assert slow.read(pointer) == image(b"k").data


def test_a_clock_that_is_behind_the_boundary_still_writes() -> None:
    objects = memory()
    ahead = packs_in(objects)
    turn(objects, 100 * HOUR_MS)
    collected(ahead)
    behind = packs_in(objects, Turned(), seed=1)
    (pointer,) = behind.write([image(b"k")])
    assert ahead.find(b"k") == pointer
    collected(ahead)
    assert ahead.read(pointer)


@pytest.mark.parametrize("pack_bytes", [0, -1, (64 << 20) + 1])
def test_the_limit_of_a_pack_is_checked(pack_bytes: int) -> None:
    with pytest.raises(InvalidInputError) as caught:
        packs_in(memory(), pack_bytes=pack_bytes)
    assert caught.value.field == "pack_bytes"
