"""Packs give their turns back, and whatever else claims to be one is refused."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstate.schemas.errors import InvalidInputError
from turnstate.schemas.limits import PACK_BYTES_MAX, PACK_TURNS_MAX
from turnstate.schemas.wire.packed import (
    is_packed,
    pack_turns,
    packed_bytes_max,
    unpack_turns,
)

START = b"\xc1\x01"

turns_lists = st.lists(
    st.binary(min_size=1).filter(lambda turn: not is_packed(turn)), min_size=1
)


@given(turns_lists)
def test_turns_come_back_in_order(turns: list[bytes]) -> None:
    packed = pack_turns(turns)
    assert turns == unpack_turns(packed)
    assert len(packed) <= packed_bytes_max(turns)


@given(st.binary())
def test_any_bytes_are_turns_or_refused(data: bytes) -> None:
    for value in (data, b"\xc1" + data, START + data):
        try:
            turns = unpack_turns(value)
        except InvalidInputError:
            continue  # and nothing else
        assert turns
        assert all(turns)


@given(turns_lists, st.data())
def test_a_cut_pack_is_refused(turns: list[bytes], data: st.DataObject) -> None:
    packed = pack_turns(turns)
    cut = packed[: data.draw(st.integers(0, len(packed) - 1))]
    with pytest.raises(InvalidInputError):
        unpack_turns(cut)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"{}",
        b"\xc1",
        b"\xc1\x02\x91\xc4\x01x",
        START,
        START + b"\x90",
        START + b"\x91\xc4\x00",
        START + b"\x91\xa1x\xff",
        START + b"\x91\xc4\x01x\x00",
        START + b"\x81\xc4\x01x\xc4\x01y",
        START + b"\x91\x91\xc4\x01x",
        START + b"\xdd\xff\xff\xff\xff",
        START + b"\x91\xc6\xff\xff\xff\xff",
        START + msgspec.msgpack.encode([START + b"\x91\xc4\x01x"]),
        START + msgspec.msgpack.encode([b"{}"] * (PACK_TURNS_MAX + 1)),
        START + msgspec.msgpack.encode([bytes(PACK_BYTES_MAX), b"{}"]),
        START + b"\x91" * 100_000,
    ],
)
def test_what_is_no_pack_is_refused(value: bytes) -> None:
    with pytest.raises(InvalidInputError) as caught:
        unpack_turns(value)
    assert caught.value.code == "pack"


def test_a_single_turn_may_be_longer_than_a_pack() -> None:
    turn = b"{" + b" " * PACK_BYTES_MAX + b"}"
    assert [turn] == unpack_turns(pack_turns([turn]))
    with pytest.raises(InvalidInputError):
        pack_turns([turn, turn])


def test_neither_nothing_nor_a_pack_is_packed() -> None:
    for turns in ([], [b""], [b"{}", pack_turns([b"{}"])]):
        with pytest.raises(InvalidInputError):
            pack_turns(turns)


def test_so_many_turns_fit_and_one_more_does_not() -> None:
    assert len(unpack_turns(pack_turns([b"{}"] * PACK_TURNS_MAX))) == PACK_TURNS_MAX
    with pytest.raises(InvalidInputError):
        pack_turns([b"{}"] * (PACK_TURNS_MAX + 1))
