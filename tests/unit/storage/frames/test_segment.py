"""Segments: everything in them comes back, and they are short."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from support.corpora import corpus_name, corpus_paths
from support.framed import frame, segment, turn_record, turn_records
from turnstate.schemas.clocks import Dot
from turnstate.schemas.errors import CorruptDataError
from turnstate.storage.frames import header
from turnstate.storage.frames import segment as module
from turnstate.storage.frames.chain import START_LINK
from turnstate.storage.frames.codec import decode_frame
from turnstate.storage.frames.operations import PositionRange
from turnstate.storage.frames.segment import (
    Contents,
    cuts,
    is_due,
    merged_positions,
    open_segment,
)

RECORDS = turn_records(64)
RANGE = PositionRange(b"log", 0, (0, 0), (63, 0))


def test_everything_comes_back() -> None:
    bases = {Dot("log", 3): b"branch state"}
    data = segment(
        RECORDS,
        after=100,
        start_head=b"a head",
        replaced_link=bytes(range(16)),
        positions=[RANGE],
        bases=bases,
    )

    found = open_segment(data)

    assert found.records() == RECORDS
    assert found.start_head == b"a head"
    assert found.replaced_link == bytes(range(16))
    assert found.positions == [RANGE]
    assert found.bases == bases
    assert (found.header.from_version, found.header.to_version) == (100, 164)
    assert found.header.codec_name == "lz4hc"


def test_one_version_is_read_without_the_others() -> None:
    found = open_segment(segment(RECORDS, after=100))

    assert [found.record(version) for version in range(101, 165)] == RECORDS
    for version in (100, 165):
        with pytest.raises(IndexError):
            found.record(version)


def test_records_of_any_bytes_are_kept() -> None:
    odd = turn_record(1).replace(b"\x01\x01\x80", b"\xcc\x01\x01\x80", 1)
    records = [b"", *turn_records(2), odd, b"\xff" * 70_000, turn_record(3)]

    assert open_segment(segment(records)).records() == records


def test_an_empty_segment_is_possible() -> None:
    assert open_segment(segment([])).records() == []


def test_a_frame_is_no_segment() -> None:
    with pytest.raises(CorruptDataError):
        open_segment(frame(decode_frame(segment(RECORDS))[1]))


def test_versions_and_operations_agree() -> None:
    body = decode_frame(segment(RECORDS))[1]
    with pytest.raises(CorruptDataError):
        open_segment(frame(body, kind=header.SEGMENT, to_version=63))


def test_another_body_is_corrupt() -> None:
    for body in (b"", b"\x90", b"\x91" * 5_000, RECORDS[0]):
        with pytest.raises(CorruptDataError):
            open_segment(frame(body, kind=header.SEGMENT))


def test_a_seal_that_does_not_read_back_is_not_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def never(_frame: bytes, _contents: Contents) -> bool:
        return False

    monkeypatch.setattr(module, "_reads_back", never)
    with pytest.raises(CorruptDataError) as caught:
        segment(RECORDS)

    assert "versions 0 to 64" in str(caught.value)


def test_a_segment_is_due_by_turns_or_bytes() -> None:
    assert not is_due(63, 65_535)
    assert is_due(64, 0)
    assert is_due(1, 65_536)


def test_many_records_are_cut_where_segments_are_due() -> None:
    big = [bytes(40_000)] * 5

    assert cuts([]) == []
    assert cuts([b""] * 64) == [64]
    assert cuts([b""] * 65) == [64, 65]
    assert cuts(big) == [2, 4, 5]


def test_positions_of_one_partition_become_one_range() -> None:
    ranges = [
        PositionRange(b"b", 0, (5, 0), (6, 0)),
        PositionRange(b"a", 1, (1, 0), (1, 0)),
        PositionRange(b"b", 0, (7, 1), (9, 2)),
    ]

    assert merged_positions(ranges) == [
        PositionRange(b"a", 1, (1, 0), (1, 0)),
        PositionRange(b"b", 0, (5, 0), (9, 2)),
    ]
    assert merged_positions([]) == []


def test_a_plain_dialogue_stands_in_less_than_its_records() -> None:
    size = len(segment(RECORDS))

    assert size < sum(map(len, RECORDS)) / 5


@pytest.mark.parametrize("path", corpus_paths(), ids=corpus_name)
def test_a_segment_of_real_turns_is_hardly_longer_than_their_text(path: Path) -> None:
    """Whole corpora: 0.74 of the text (docs/bench.md); bounds for a part each."""
    bound = {"taskmaster4": 2.7, "kdconv": 1.4, "sgd": 1.15}
    text = stored = 0
    sessions: dict[str, list[dict[str, Any]]] = {}
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            turn = json.loads(line)
            if turn["session"] not in sessions and len(sessions) == 20:
                break
            sessions.setdefault(turn["session"], []).append(turn)
    for turns in sessions.values():
        records = [corpus_record(at, turn) for at, turn in enumerate(turns, 1)]
        text += sum(len(turn["text"].encode()) for turn in turns)
        begin = 0
        for end in cuts(records):
            stored += len(segment(records[begin:end], after=begin))
            begin = end

    assert stored <= bound.get(corpus_name(path), 1.0) * text


def corpus_record(number: int, turn: dict[str, Any]) -> bytes:
    """Return a record with all that a line bears, its whole slots included."""
    told = {"services": turn["services"], "topic_switch": turn["topic_switch"]}
    known = {name: value for name, value in told.items() if value is not None}
    return turn_record(
        number,
        turn["text"],
        role=turn["role"],
        intent=turn["intent"],
        metadata=as_json(known) if known else None,
    )


def as_json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def test_a_first_segment_names_the_start_of_the_chain() -> None:
    assert open_segment(segment(RECORDS)).header.previous_link == START_LINK
    assert Contents([], b"", START_LINK).positions == ()
