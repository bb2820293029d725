"""The header: readable alone, held against its limits before it is believed."""

from typing import Any

import pytest

from support.framed import SESSION, frame
from turnstate.schemas.errors import (
    CorruptDataError,
    InvalidInputError,
    UnknownVersionError,
)
from turnstate.storage.frames import header
from turnstate.storage.frames.header import (
    HEADER_BYTES,
    Header,
    decode_header,
    key_and_time,
)


def changed(**fields: Any) -> bytes:
    """Return a header with some fields changed, its checksum not corrected."""
    known = decode_header(frame())._replace(**fields)
    return header._LAYOUT.pack(*known)


def test_it_is_short_enough_to_stand_before_one_turn() -> None:
    assert HEADER_BYTES == 78


def test_every_field_comes_back() -> None:
    link = bytes(range(16))
    data = frame(
        b"x" * 300,
        kind=header.SEGMENT,
        incarnation=(1 << 53) - 1,
        from_version=7,
        to_version=(1 << 32) - 1,
        previous_link=link,
        key_id=65_535,
        time_ms=253_402_300_799_999,
    )

    found = decode_header(data)

    assert found.kind_name == "segment"
    assert found.codec_name == "lz4"
    assert found.session_hash == SESSION
    assert found.incarnation == (1 << 53) - 1
    assert (found.from_version, found.to_version) == (7, (1 << 32) - 1)
    assert found.previous_link == link
    assert (found.key_id, found.time_ms) == (65_535, 253_402_300_799_999)
    assert found.raw_length == 300
    assert found.frame_bytes == len(data)


def test_it_is_found_at_any_place() -> None:
    assert decode_header(b"before" + frame(), 6) == decode_header(frame())


@pytest.mark.parametrize("length", range(HEADER_BYTES))
def test_a_cut_header_is_corrupt(length: int) -> None:
    with pytest.raises(CorruptDataError):
        decode_header(frame()[:length])


def test_text_is_no_frame() -> None:
    with pytest.raises(CorruptDataError):
        decode_header(b'{"tenant": "t"}' + bytes(100))


def test_a_newer_format_is_refused_by_name() -> None:
    with pytest.raises(UnknownVersionError) as caught:
        decode_header(changed(format_version=2))

    assert "version 2" in str(caught.value)
    assert "upgrade" in str(caught.value)


def test_version_0_never_was() -> None:
    with pytest.raises(CorruptDataError) as caught:
        decode_header(changed(format_version=0))

    assert not isinstance(caught.value, UnknownVersionError)


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": 0},
        {"kind": 4},
        {"codec": 3},
        {"flags": 4},
        {"flags": header.DELTA | header.SHARED},
        {"flags": header.DELTA},
        {"dictionary_length": 9},
        {"from_version": 2},
        {"raw_length": 5},
        {"codec": header.LZ4, "body_length": 0},
        {"codec": header.LZ4, "raw_length": 4 * 255 + 1},
        {"codec": header.LZ4, "raw_length": 0xFFFF_FFFF, "body_length": 0xFFFF_FFFF},
    ],
    ids=str,
)
def test_a_field_that_contradicts_is_corrupt(fields: dict[str, Any]) -> None:
    with pytest.raises(CorruptDataError):
        decode_header(changed(**fields))


@pytest.mark.parametrize(("key_id", "time_ms"), [(65_536, 0), (-1, 0), (0, 1 << 48)])
def test_numbers_that_do_not_fit_are_refused(key_id: int, time_ms: int) -> None:
    with pytest.raises(InvalidInputError):
        key_and_time(key_id, time_ms)


def test_names_of_kind_and_codec_are_all_told() -> None:
    fields = decode_header(frame())

    for kind, name in header.KINDS.items():
        assert fields._replace(kind=kind).kind_name == name
    for codec, name in header.CODECS.items():
        assert fields._replace(codec=codec).codec_name == name
    delta: Header = fields._replace(codec=header.LZ4, flags=header.DELTA)
    assert delta.codec_name == "lz4+delta"
