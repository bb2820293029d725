"""Frames hold what was put in, and nothing but `CorruptDataError` comes of garbage."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.framed import frame, frames_of, segment, turn_records
from support.strategies import Drawn, worlds
from turnstate.schemas.clocks import Dot
from turnstate.schemas.errors import BrokenChainError, CorruptDataError
from turnstate.schemas.operation import Body, Op, encode_body
from turnstate.storage.frames import header
from turnstate.storage.frames.chain import link_of, verify_chain
from turnstate.storage.frames.codec import (
    FAST,
    SMALL,
    decode_frame,
    dictionary_of,
)
from turnstate.storage.frames.column_reader import gives_back
from turnstate.storage.frames.columns import columns_of
from turnstate.storage.frames.dictionary import NEWEST
from turnstate.storage.frames.header import HEADER_BYTES, decode_header
from turnstate.storage.frames.native import crc32c
from turnstate.storage.frames.operations import (
    PositionRange,
    decode_operations,
    encode_operations,
)
from turnstate.storage.frames.segment import Segment, open_segment

BODIES = st.one_of(
    st.binary(max_size=2_000),
    st.lists(st.sampled_from(turn_records(30)), max_size=20).map(b"".join),
    st.builds(bytes, st.integers(0, 5_000)),
)
DICTIONARIES = st.one_of(
    st.just(b""), st.just(NEWEST), BODIES.map(dictionary_of).filter(bool)
)
RECORDS = turn_records(14)
WHOLE = frames_of(RECORDS, [3, 1, 6, 4])
TEXTS = st.text(st.characters(codec="utf-8"), max_size=400)
JSON = st.sampled_from([b"1", b'"a"', b'{"services":["a"]}', b"[]"])
NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40)
COUNTERS = st.integers(1, (1 << 53) - 1)
TURN_IDS = st.one_of(
    st.none(),
    NAMES,
    st.integers(0, 99).map(str),
    st.integers(0, 1 << 80).map("t{}".format),
    st.uuids().map(str),
)
SPANS = st.one_of(COUNTERS, st.lists(COUNTERS, min_size=2, max_size=6))


@st.composite
def odd_records(draw: st.DrawFn) -> bytes:
    """Draw a record with any fields, as no honest owner would stamp it."""
    optional: dict[str, Any] = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "content": st.one_of(st.none(), TEXTS),
                "parts": JSON,
                "tool_calls": JSON,
                "name": NAMES,
                "slot_set": st.dictionaries(NAMES, JSON, max_size=20),
                "slot_delete": st.lists(NAMES, max_size=3),
                "usage": st.dictionaries(NAMES, st.integers(-9, 1 << 53), max_size=2),
                "confidence": st.floats(allow_nan=False, allow_infinity=False),
                "metadata": JSON,
                "extra": st.dictionaries(NAMES, JSON, max_size=2),
            },
        )
    )
    body = Body(role=draw(NAMES), **optional)
    replica = draw(st.sampled_from(["log", "eu", "长"]))
    dots = st.builds(Dot, st.sampled_from(["log", "eu"]), COUNTERS)
    return Op.stamped(
        body,
        encode_body(body),
        dot=Dot(replica, draw(COUNTERS)),
        lamport=draw(COUNTERS),
        seen=draw(st.dictionaries(st.sampled_from(["log", "eu", "us"]), SPANS)),  # type: ignore[arg-type]
        incarnation=draw(COUNTERS),
        parents=tuple(draw(st.lists(st.one_of(dots, NAMES), max_size=3))),
        branch=draw(NAMES),
        turn_id=draw(TURN_IDS),
        time=draw(
            st.one_of(st.none(), NAMES, st.integers(-(10**15), 253_402_300_799_999))
        ),
    ).record


@given(BODIES, DICTIONARIES, st.sampled_from([FAST, SMALL]))
def test_decode_inverts_encode(body: bytes, dictionary: bytes, level: int) -> None:
    data = frame(body, dictionary=dictionary, level=level)

    found, decoded = decode_frame(data, dictionary=dictionary)

    assert decoded == body
    assert len(data) <= HEADER_BYTES + len(body)
    assert found.raw_length == len(body)


@given(BODIES, st.data())
def test_a_damaged_frame_is_never_decoded(body: bytes, data: st.DataObject) -> None:
    whole = frame(body, dictionary=data.draw(DICTIONARIES))
    begin = data.draw(st.integers(0, len(whole) - 1))
    end = data.draw(st.integers(begin, len(whole)))
    changed = whole[:begin] + data.draw(st.binary(max_size=8)) + whole[end:]

    if changed != whole:
        with pytest.raises(CorruptDataError):
            decode_frame(changed)


@given(st.binary(max_size=300), st.booleans())
def test_garbage_is_corrupt_whether_or_not_it_starts_as_a_frame(
    garbage: bytes, dressed: bool
) -> None:
    data = header.MAGIC + b"\x01" + garbage if dressed else garbage

    with pytest.raises(CorruptDataError):
        decode_frame(data)


@given(st.binary(max_size=200), st.integers(0, (1 << 32) - 1), st.integers(0, 3))
def test_a_fitting_checksum_makes_garbage_no_truer(
    body: bytes, raw_length: int, codec: int
) -> None:
    fields = decode_header(frame())._replace(
        codec=codec, raw_length=raw_length, body_length=len(body)
    )
    checked = header.pack(*fields[:-1])
    data = checked + crc32c(checked + body).to_bytes(4, "little") + body

    with pytest.raises(CorruptDataError):
        decode_frame(data)


@given(st.binary(max_size=400))
def test_bodies_of_garbage_are_corrupt(body: bytes) -> None:
    for begin in (b"", b"\x93", b"\x95\xc4\x00\xc4\x00\x90\x90\x98"):
        with suppress(CorruptDataError):
            decode_operations(begin + body)
        with suppress(CorruptDataError):
            Segment(decode_header(frame()), begin + body).records()


@given(st.data())
def test_a_segment_body_that_was_changed_gives_records_or_is_corrupt(
    data: st.DataObject,
) -> None:
    body = bytearray(decode_frame(segment(RECORDS))[1])
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = Segment(decode_header(segment(RECORDS)), bytes(body))
        assert len(found.records()) == len(RECORDS)
        assert [found.record(at) for at in range(1, 15)] == found.records()
    except CorruptDataError:
        pass


@given(st.lists(st.binary(max_size=40), max_size=8), st.data())
def test_operations_come_back(records: list[bytes], data: st.DataObject) -> None:
    places = st.tuples(st.integers(0, 1 << 60), st.integers(0, 99))
    ranges = st.builds(PositionRange, st.binary(), st.integers(0, 99), places, places)
    positions = data.draw(st.lists(ranges, max_size=3))
    bases = data.draw(
        st.dictionaries(st.builds(Dot, st.text(max_size=3), COUNTERS), st.binary())
    )

    found = decode_operations(encode_operations(records, positions, bases))

    assert found == (records, positions, bases)


@given(worlds())
def test_a_segment_gives_back_any_world_bit_for_bit(world: Drawn) -> None:
    records = [op.record for op in world.ops]
    found = open_segment(segment(records, after=3))

    assert found.records() == records
    assert [found.record(4 + at) for at in range(len(records))] == records
    assert columns_of(records).whole == [], "canonical records need not stand whole"


@given(st.lists(st.one_of(odd_records(), st.binary(max_size=60)), max_size=8))
def test_a_segment_gives_back_any_record_bit_for_bit(records: list[bytes]) -> None:
    found = open_segment(segment(records))

    assert found.records() == records
    assert [found.record(1 + at) for at in range(len(records))] == records


@given(odd_records())
def test_any_canonical_record_is_taken_apart(record: bytes) -> None:
    assert columns_of([record]).whole == []
    assert gives_back(record)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=5), st.booleans())
def test_sealing_changes_no_operation(sizes: list[int], with_dictionary: bool) -> None:
    records = RECORDS[: sum(sizes)]
    sizes = sizes if sum(sizes) <= 14 else [len(records)]
    frames = frames_of(records, sizes, with_dictionary=with_dictionary)

    sealed = segment(records, replaced_link=link_of(frames[-1]))

    assert open_segment(sealed).records() == records
    assert verify_chain(frames).hex() == open_segment(sealed).replaced_link.hex()


@given(st.permutations(WHOLE), st.integers(0, 4))
def test_no_other_list_of_frames_has_the_newest_link(
    frames: list[bytes], length: int
) -> None:
    listed = frames[:length]
    newest = link_of(WHOLE[-1])

    if listed == WHOLE:
        assert verify_chain(listed, newest_link=newest) == newest
    else:
        with pytest.raises(BrokenChainError):
            verify_chain(listed, newest_link=newest)
