"""Frames to bytes and back, and what is said of bytes that are no frame."""

import os
from typing import Any

import pytest

from support.framed import frame, turn_records
from turnstate.schemas.errors import (
    ChecksumError,
    CorruptDataError,
    InvalidInputError,
    UnknownVersionError,
)
from turnstate.storage.frames import codec, header
from turnstate.storage.frames.codec import (
    SMALL,
    decode_frame,
    dictionary_of,
    session_hash,
)
from turnstate.storage.frames.dictionary import NEWEST
from turnstate.storage.frames.header import HEADER_BYTES
from turnstate.storage.frames.native import crc32c

RECORDS = turn_records(40)
DICTIONARY = dictionary_of(b"".join(RECORDS[:-1]))


def test_a_body_comes_back() -> None:
    body = b"".join(RECORDS)

    found, decoded = decode_frame(frame(body))

    assert decoded == body
    assert found.codec == header.LZ4
    assert found.body_length < found.raw_length == len(body)


def test_the_level_changes_bytes_only() -> None:
    body = b"".join(RECORDS)

    found, decoded = decode_frame(frame(body, level=SMALL))

    assert decoded == body
    assert found.codec_name == "lz4hc"
    assert found.body_length <= decode_frame(frame(body))[0].body_length


@pytest.mark.parametrize("level", [codec.FAST, SMALL])
@pytest.mark.parametrize("dictionary", [b"", DICTIONARY, NEWEST], ids=len)
def test_what_lz4_would_grow_stays_raw_and_needs_no_dictionary(
    level: int, dictionary: bytes
) -> None:
    body = bytes(range(0, 256, 3))
    data = frame(body, level=level, dictionary=dictionary)

    found, decoded = decode_frame(data)

    assert decoded == body
    assert found.codec_name == "raw"
    assert data.endswith(body)
    assert found.dictionary_length == 0


def test_an_empty_body_is_a_body() -> None:
    assert decode_frame(frame(b""))[1] == b""


def test_a_dictionary_makes_a_delta_that_needs_it() -> None:
    data = frame(RECORDS[-1], dictionary=DICTIONARY)

    found, decoded = decode_frame(data, dictionary=DICTIONARY)

    assert decoded == RECORDS[-1]
    assert found.codec_name == "lz4+delta"
    assert len(data) < len(frame(RECORDS[-1])) - 40


def test_a_delta_finds_its_dictionary_at_the_end_of_what_precedes() -> None:
    data = frame(RECORDS[-1], dictionary=DICTIONARY)

    assert decode_frame(data, dictionary=b"older" + DICTIONARY)[1] == RECORDS[-1]


@pytest.mark.parametrize("wrong", [b"", DICTIONARY[1:], DICTIONARY[:-1] + b"!"])
def test_another_dictionary_is_refused_by_name(wrong: bytes) -> None:
    data = frame(RECORDS[-1], dictionary=DICTIONARY)

    with pytest.raises(ChecksumError) as caught:
        decode_frame(data, dictionary=wrong)

    assert caught.value.code == "wrong_dictionary"


def test_a_dictionary_that_is_not_needed_is_ignored() -> None:
    assert decode_frame(frame(RECORDS[0]), dictionary=b"any")[1] == RECORDS[0]


def test_the_dictionary_of_the_format_needs_no_one_to_bring_it() -> None:
    data = frame(RECORDS[0], dictionary=NEWEST)

    found, decoded = decode_frame(data)

    assert decoded == RECORDS[0]
    assert found.flags == header.SHARED
    assert len(data) < len(frame(RECORDS[0]))


def test_a_dictionary_of_a_newer_format_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = frame(RECORDS[0], dictionary=NEWEST)
    monkeypatch.setattr(codec, "SHARED", {})

    with pytest.raises(UnknownVersionError):
        decode_frame(data)


def test_bytes_of_chance_are_written_in_full() -> None:
    body = os.urandom(4_000) + b"a" * 100

    found, decoded = decode_frame(frame(body, dictionary=DICTIONARY))

    assert decoded == body
    assert found.flags == 0


def test_the_dictionary_is_the_end_of_the_records() -> None:
    records = bytes(20_000) + b"end"

    assert dictionary_of(records) == records[-16_384:]
    assert dictionary_of(b"few") == b"few"


@pytest.mark.parametrize(
    "numbers",
    [
        {"to_version": 1 << 32},
        {"from_version": -1},
        {"incarnation": 1 << 64},
        {"key_id": 1 << 16},
        {"time_ms": -1},
    ],
    ids=str,
)
def test_numbers_without_room_are_refused(numbers: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        frame(**numbers)


def test_a_body_above_the_limit_is_refused() -> None:
    with pytest.raises(InvalidInputError) as caught:
        frame(bytes(header.RAW_BYTES_MAX + 1))

    assert caught.value.field == "body"


@pytest.mark.parametrize("dictionary", [b"", DICTIONARY, NEWEST], ids=len)
def test_every_flipped_bit_is_found(dictionary: bytes) -> None:
    data = frame(RECORDS[-1], dictionary=dictionary)

    for place in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[place] ^= 1 << bit
            with pytest.raises(CorruptDataError):
                decode_frame(bytes(flipped), dictionary=dictionary)


def test_every_cut_and_every_addition_is_found() -> None:
    data = frame(b"".join(RECORDS[:3]))

    for length in range(len(data)):
        with pytest.raises(CorruptDataError):
            decode_frame(data[:length])
    with pytest.raises(CorruptDataError):
        decode_frame(data + b"\0")


def sealed_again(data: bytes, **fields: Any) -> bytes:
    """Return a frame with other fields and a checksum that fits them."""
    known = header.decode_header(data)._replace(**fields)
    checked = header.pack(*known[:-1])
    body = data[HEADER_BYTES:]
    checksum = crc32c(checked + body)
    return checked + checksum.to_bytes(4, "little") + body


@pytest.mark.parametrize(
    "fields",
    [
        {"raw_length": 10},
        {"raw_length": 5_000},
        {"raw_checksum": 0},
        {"codec": header.LZ4HC, "raw_length": 255},
    ],
    ids=str,
)
def test_a_lie_with_a_fitting_checksum_is_found(fields: dict[str, Any]) -> None:
    data = frame(b"".join(RECORDS))

    with pytest.raises(CorruptDataError):
        decode_frame(sealed_again(data, **fields))


def test_a_body_that_is_no_lz4_is_found() -> None:
    body = bytes(range(200))
    raw = frame(body)

    with pytest.raises(CorruptDataError):
        decode_frame(sealed_again(raw, codec=header.LZ4))


def test_sessions_have_their_own_hash() -> None:
    assert session_hash(b"\x00\x01ts") != session_hash(b"\x00\x02ts")
    assert len(session_hash(b"")) == 8
