"""Packs give back what was put in, or say that they cannot; nothing needed goes."""

from contextlib import suppress
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.packs import image, memory, pack_names, packs_in
from turnstate.schemas.errors import CorruptDataError, FencedError, TurnstateError
from turnstate.storage.cold.bloom import Bloom
from turnstate.storage.cold.names import pack_name, pack_time_ms
from turnstate.storage.cold.pack import decode_pack, images_of
from turnstate.storage.session_image import EncodedImage

KEYS: Final = [b"key %d" % number for number in range(8)]
LIMITS: Final = st.sampled_from([1, 300, 1000, 4096, 1 << 20])

several_images = st.lists(
    st.builds(
        image, st.sampled_from(KEYS), st.integers(1, 9), st.sampled_from([0, 7, 600])
    ),
    max_size=12,
)


@given(st.lists(several_images, max_size=4), LIMITS)
def test_whatever_is_written_is_found_by_pointer_and_by_key(
    writes: list[list[EncodedImage]], pack_bytes: int
) -> None:
    objects = memory()
    newest: dict[bytes, bytes] = {}
    for number, several in enumerate(writes):
        store = packs_in(objects, seed=number, pack_bytes=pack_bytes)
        pointers = store.write(several)
        for each, pointer in zip(several, pointers, strict=True):
            assert store.read(pointer) == each.data
            assert store.read_front(pointer) == each.data[: each.front_bytes]
            newest[each.key] = each.data
    fresh = packs_in(objects, seed=99)
    for key in KEYS:
        found = fresh.find(key)
        assert (found and fresh.read(found)) == newest.get(key)
    assert fresh.newest().keys() == newest.keys()


@given(
    several_images.filter(bool),
    st.floats(0, 1, exclude_max=True),
    st.integers(0, 255),
)
def test_no_damage_gives_wrong_bytes(
    several: list[EncodedImage], where: float, bits: int
) -> None:
    """A flipped byte, or with no bits to flip a cut, at any place of any pack."""
    objects = memory()
    store = packs_in(objects, pack_bytes=1 << 20)
    pointers = store.write(several)
    name = pack_names(objects)[-1]
    data, made_ms = objects.held[name]
    at = int(where * len(data))
    damaged = data[:at] + bytes([data[at] ^ bits]) + data[at + 1 :]
    objects.held[name] = (damaged if bits else data[:at], made_ms)
    newest = {each.key: each.data for each in several}
    fresh = packs_in(objects, seed=1)
    for each, pointer in zip(several, pointers, strict=True):
        with suppress(CorruptDataError):
            assert fresh.read(pointer) == each.data
        with suppress(CorruptDataError):
            assert fresh.read_front(pointer) == each.data[: each.front_bytes]
        with suppress(CorruptDataError):
            found = fresh.find(each.key)
            assert found is not None
            assert fresh.read(found) == newest[each.key]
    with suppress(CorruptDataError):
        pack = decode_pack(objects.held[name][0])
        assert [(e.key, d) for e, d in images_of(pack)] == [
            (each.key, each.data)
            for each, pointer in zip(several, pointers, strict=True)
            if pointer.pack == name
        ]


@given(st.binary(max_size=200))
def test_other_bytes_are_no_pack(data: bytes) -> None:
    with pytest.raises(CorruptDataError):
        decode_pack(data)


@given(
    st.integers(1, 12),
    st.sampled_from([(0, 0), (1, 1), (1, 2), (2, 1)]),
)
def test_of_two_that_write_at_once_no_pack_is_lost(
    call: int, epochs: tuple[int, int]
) -> None:
    """The second acts between any two calls of the first."""
    objects = memory()
    first = packs_in(objects, epoch=epochs[0])
    second = packs_in(objects, seed=1, epoch=epochs[1])
    written: dict[bytes, bytes] = {}
    fenced: list[Exception] = []

    def write(store: Any, each: EncodedImage) -> None:
        try:
            (pointer,) = store.write([each])
        except FencedError as error:
            fenced.append(error)
        else:
            assert store.read(pointer) == each.data
            written[each.key] = each.data

    objects.interrupt({call: lambda: write(second, image(b"second"))})
    write(first, image(b"first"))
    write(first, image(b"more"))
    fresh = packs_in(objects, seed=2)
    for key, data in written.items():
        found = fresh.find(key)
        assert found is not None
        assert fresh.read(found) == data
    if epochs[0] == epochs[1]:
        assert not fenced
    assert len(written) + len(fenced) >= 2


@given(st.sets(st.binary(min_size=1, max_size=20), max_size=60))
def test_a_filter_forgets_no_key(keys: set[bytes]) -> None:
    bloom = Bloom.of(keys)
    assert all(bloom.may_hold(key) for key in keys)
    assert Bloom.of(sorted(keys)).bits == bloom.bits


@given(
    st.integers(0, 10**20 - 1),
    st.integers(0, (1 << 48) - 1),
    st.binary(min_size=10, max_size=10),
)
def test_the_name_of_a_pack_tells_its_time(
    epoch: int, time_ms: int, chance: bytes
) -> None:
    name = pack_name(epoch, time_ms, chance)
    assert pack_time_ms(name) == time_ms
    later = pack_name(epoch, min(time_ms + 1, (1 << 48) - 1), b"\xff" * 10)
    assert name <= later


@given(st.text(max_size=60))
def test_a_name_that_is_no_packs_is_refused_by_our_own_error(name: str) -> None:
    with suppress(TurnstateError):
        pack_time_ms("packs/" + name)
