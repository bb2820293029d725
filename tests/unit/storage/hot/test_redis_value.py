"""The value of a head in Redis says what it is, or that it is damaged."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.hot_sessions import changes
from turnstate.schemas.errors import (
    ChecksumError,
    CorruptDataError,
    UnknownVersionError,
)
from turnstate.storage.hot.redis_value import (
    HEADER_BYTES,
    HeadValue,
    decode_value,
    encode_stand,
    encode_value,
)

numbers = st.integers(0, (1 << 64) - 1)


def value_of(version: int) -> HeadValue:
    """Return the value of a session of two turns, announced as a version."""
    return HeadValue(
        3, 1, 1, version, b"8 bytes.", 1_000, 2_000, changes(count=2)[1].row
    )


def test_a_value_comes_back() -> None:
    found = decode_value(encode_value(value_of(2)))

    assert found == value_of(2)
    assert found.stored() == changes(count=2)[1].after


def test_the_scripts_know_where_its_parts_are() -> None:
    data = encode_value(value_of(2))

    assert HEADER_BYTES == 53
    assert data[13:29] == encode_stand(1, 2)
    assert data[29:37] == b"8 bytes."
    assert int.from_bytes(data[45:53], "big") == 2_000


@given(one=st.tuples(numbers, numbers), other=st.tuples(numbers, numbers))
def test_stands_compare_as_bytes(one: tuple[int, int], other: tuple[int, int]) -> None:
    assert (encode_stand(*one) < encode_stand(*other)) == (one < other)


def test_a_head_that_is_another_than_announced_is_corrupt() -> None:
    with pytest.raises(CorruptDataError, match="announced as version 7, and is"):
        value_of(7).stored()


def test_a_flipped_bit_is_found() -> None:
    data = bytearray(encode_value(value_of(2)))
    data[-1] ^= 1

    with pytest.raises(ChecksumError):
        decode_value(bytes(data)).stored()


@pytest.mark.parametrize("length", [0, 1, HEADER_BYTES - 1])
def test_a_cut_value_is_corrupt(length: int) -> None:
    with pytest.raises(CorruptDataError, match="cut"):
        decode_value(encode_value(value_of(2))[:length])


def test_another_layout_is_of_another_version() -> None:
    data = b"\x02" + encode_value(value_of(2))[1:]

    with pytest.raises(UnknownVersionError, match="layout 2"):
        decode_value(data)
