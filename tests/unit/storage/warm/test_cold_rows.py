"""The pointer that stands where a head stood: no head reads as one, none as a head."""

from random import Random

import msgspec
import pytest

from turnstate.schemas.dialogue.head import EMPTY_HEAD, digest
from turnstate.schemas.errors import ChecksumError, CorruptDataError
from turnstate.schemas.position import Position
from turnstate.storage.cold.pointer import Pointer
from turnstate.storage.frames.native import crc32c
from turnstate.storage.stored_head import (
    StoredHead,
    decode_stored_head,
    encode_stored_head,
)
from turnstate.storage.warm.cold_rows import (
    ColdHead,
    cold_head,
    decode_cold_head,
    encode_cold_head,
    is_cold_row,
)

POINTER = Pointer("packs/0/x.pack", 8, 5000, 300, 77, 2, 41)
STORED = StoredHead(
    head=msgspec.structs.replace(EMPTY_HEAD, incarnation=2, version=41, turn_count=40),
    position=Position(b"the log", 0, 99),
    arrived_ms=1_700_000_000_000,
    sealed_version=41,
    text_bytes=12_345,
    owner="anna",
)


def a_cold_head() -> ColdHead:
    return cold_head(STORED, POINTER, 1_800_000_000_000)


def test_it_says_of_the_session_what_lists_show() -> None:
    cold = a_cold_head()

    assert (cold.incarnation, cold.version, cold.pointer) == (2, 41, POINTER)
    assert (cold.turn_count, cold.text_bytes, cold.owner) == (40, 12_345, "anna")
    assert cold.digest == digest(STORED.head)
    assert (cold.arrived_ms, cold.cooled_ms) == (1_700_000_000_000, 1_800_000_000_000)
    assert cold.position == STORED.position


@pytest.mark.parametrize(
    "cold", [a_cold_head(), ColdHead(POINTER, b"", 0, 0, 0, 0)], ids=["full", "bare"]
)
def test_what_is_encoded_comes_back(cold: ColdHead) -> None:
    row = encode_cold_head(cold)
    assert is_cold_row(row)
    assert decode_cold_head(row) == cold


def test_no_head_is_taken_for_a_pointer_and_no_pointer_for_a_head() -> None:
    assert not is_cold_row(encode_stored_head(STORED))
    assert not is_cold_row(encode_stored_head(StoredHead()))
    with pytest.raises(CorruptDataError):
        decode_stored_head(encode_cold_head(a_cold_head()))


@pytest.mark.parametrize("row", [b"", b"\xc1", b"1234", b"123\xc1"])
def test_a_row_too_short_is_no_pointer(row: bytes) -> None:
    assert not is_cold_row(row)


def test_every_flipped_bit_is_found() -> None:
    row = encode_cold_head(a_cold_head())
    for at in range(len(row)):
        bit = 1 << Random(at).randrange(8)
        flipped = row[:at] + bytes([row[at] ^ bit]) + row[at + 1 :]
        with pytest.raises(ChecksumError):
            decode_cold_head(flipped)


@pytest.mark.parametrize("length", [0, 3, 4, 5, 30])
def test_a_cut_row_is_damage(length: int) -> None:
    with pytest.raises(CorruptDataError):
        decode_cold_head(encode_cold_head(a_cold_head())[:length])


@pytest.mark.parametrize(
    "told", [b"", b"\xc0", msgspec.msgpack.encode([1, 2]), b"\x91" * 5000 + b"\xc0"]
)
def test_something_else_under_the_mark_is_damage(told: bytes) -> None:
    data = b"\xc1" + told
    with pytest.raises(CorruptDataError):
        decode_cold_head(crc32c(data).to_bytes(4, "little") + data)
