"""Operations inside a frame body: whole, in order, with what stands beside."""

import pytest

from support.framed import turn_records
from turnstate.schemas.clocks import Dot
from turnstate.schemas.errors import CorruptDataError
from turnstate.storage.frames.operations import (
    FrameBody,
    PositionRange,
    decode_operations,
    encode_operations,
)

RANGE = PositionRange(b"log", 3, (5, 1), (9, 0))


def test_everything_comes_back() -> None:
    bases = {Dot("b", 2): b"state", Dot("a", 1): b""}

    body = decode_operations(encode_operations(turn_records(3), [RANGE], bases))

    assert body == FrameBody(turn_records(3), [RANGE], bases)


def test_nothing_is_a_body_too() -> None:
    assert decode_operations(encode_operations([])) == FrameBody([], [], {})


def test_equal_bases_have_equal_bytes() -> None:
    one, other = Dot("a", 1), Dot("b", 2)

    assert encode_operations([], (), {one: b"1", other: b"2"}) == encode_operations(
        [], (), {other: b"2", one: b"1"}
    )


@pytest.mark.parametrize(
    "body",
    [b"", b"\x90", b"\x93\x90\x90", b"\x93\x91\x01\x90\x90", b"\x91" * 9_999, b"\xdd"],
)
def test_other_bytes_are_corrupt(body: bytes) -> None:
    with pytest.raises(CorruptDataError):
        decode_operations(body)
