"""Reading parts that overlap, are damaged, or miss: each version once, in order."""

import pytest

from support.framed import frame, frames_of, segment, turn_records
from turnstate.schemas.clocks import Dot
from turnstate.schemas.errors import ChecksumError, CorruptDataError
from turnstate.storage.frames import header
from turnstate.storage.frames.operations import encode_operations
from turnstate.storage.frames.reader import read_operations

RECORDS = turn_records(12)
FRAMES = frames_of(RECORDS, [2, 3, 1, 6])
DELTAS = frames_of(RECORDS, [2, 3, 1, 6], with_dictionary=True)
SEGMENT = segment(RECORDS[:5])
SINCE = frames_of(RECORDS[5:], [1, 6], after=5, with_dictionary=True)
"""As an owner writes: a dictionary reaches back to the last seal only."""


def damaged(part: bytes) -> bytes:
    return part[:-1] + bytes((part[-1] ^ 1,))


@pytest.mark.parametrize(
    "parts",
    [
        FRAMES,
        FRAMES[::-1],
        FRAMES * 2,
        [SEGMENT, *FRAMES[2:]],
        [SEGMENT, *FRAMES],
        [*FRAMES, SEGMENT],
        [*frames_of(RECORDS, [4, 4, 4]), *FRAMES],
        DELTAS,
        [SEGMENT, *DELTAS],
        [SEGMENT, *SINCE],
    ],
    ids=range(10),
)
def test_each_version_comes_once_in_order(parts: list[bytes]) -> None:
    reading = read_operations(parts)

    assert reading.records == RECORDS
    assert reading.version == 12
    assert reading.faults == []
    assert reading.required() is reading


@pytest.mark.parametrize("parts", [FRAMES, DELTAS, [SEGMENT, *SINCE]])
@pytest.mark.parametrize("after", [0, 1, 2, 5, 11, 12])
@pytest.mark.parametrize("up_to", [0, 1, 4, 5, 12, None])
def test_a_span_of_versions_can_be_asked_for(
    parts: list[bytes], after: int, up_to: int | None
) -> None:
    reading = read_operations(parts, after=after, up_to=up_to)

    assert reading.records == RECORDS[after:up_to]
    assert reading.missing_after is None


def test_delta_frames_are_deltas() -> None:
    assert any(header.decode_header(part).flags & header.DELTA for part in DELTAS)


def test_parts_that_are_known_are_not_decoded() -> None:
    reading = read_operations([damaged(SEGMENT), *FRAMES[2:]], after=5)

    assert reading.records == RECORDS[5:]
    assert reading.faults == []


def test_a_torn_tail_tells_the_last_good_version() -> None:
    for torn in (damaged(FRAMES[3]), FRAMES[3][:-5], FRAMES[3][:40], b""):
        reading = read_operations([*FRAMES[:3], torn])

        assert reading.records == RECORDS[:6]
        assert reading.missing_after == reading.version == 6
        with pytest.raises(CorruptDataError) as caught:
            reading.required()
        assert caught.value.field == "version 7"
        assert caught.value.hint


def test_a_damaged_part_is_not_missed_where_others_have_its_versions() -> None:
    reading = read_operations([damaged(SEGMENT), *FRAMES])

    assert reading.records == RECORDS
    assert [type(fault) for fault in reading.faults] == [ChecksumError]
    assert reading.missing_after is None


def test_a_hole_is_told() -> None:
    reading = read_operations([FRAMES[0], *FRAMES[2:]])

    assert reading.records == RECORDS[:2]
    assert reading.missing_after == 2
    assert "versions 3 to 5" in str(reading.faults[0])


def test_a_hole_above_what_is_asked_for_does_not_matter() -> None:
    reading = read_operations([FRAMES[0], FRAMES[3], b"torn"], up_to=2)

    assert reading.records == RECORDS[:2]
    assert reading.missing_after is None


def test_nothing_is_a_reading() -> None:
    reading = read_operations([], after=3)

    assert (reading.records, reading.version, reading.missing_after) == ([], 3, None)


def test_a_delta_frame_without_what_it_needs_is_a_fault() -> None:
    reading = read_operations(DELTAS[3:], after=6)

    assert reading.records == []
    assert reading.missing_after == 6


def test_other_sessions_and_heads_are_no_part() -> None:
    head = frame(b"", kind=header.HEAD, to_version=0)
    strange = frame(encode_operations([b"x"]), session_hash=bytes(8))
    later = frame(encode_operations([b"x"]), incarnation=2)

    reading = read_operations([*FRAMES, head, strange, later])

    assert reading.records == RECORDS
    assert len(reading.faults) == 3


def test_a_frame_that_holds_another_number_of_operations_is_a_fault() -> None:
    reading = read_operations([frame(encode_operations([b"x", b"y"]))])

    assert reading.records == []
    assert reading.missing_after == 0


def test_what_stands_beside_is_collected() -> None:
    one = frame(encode_operations([b"x"], bases={Dot("a", 1): b"1"}))
    other = segment([b"y"], after=1, bases={Dot("b", 1): b"2"})

    reading = read_operations([one, other])

    assert reading.bases == {Dot("a", 1): b"1", Dot("b", 1): b"2"}
    assert [span.first for span in read_operations(FRAMES).positions] == [
        (0, 0),
        (2, 0),
        (5, 0),
        (6, 0),
    ]
