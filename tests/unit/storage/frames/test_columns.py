"""Taking records apart: what a run is, and what must stand whole."""

from typing import Any
from uuid import UUID

import msgspec
import pytest

from support.framed import turn_record, turn_records
from turnstate.schemas.clocks import Dot
from turnstate.schemas.operation import Body, Op, encode_body
from turnstate.storage.frames.column_reader import ColumnReader
from turnstate.storage.frames.columns import NO_TEXT, NULL_TEXT, columns_of

UUIDS = bytes(15) + b"\x05\x80" + bytes(15)


def stamped(counter: int, **fields: Any) -> bytes:
    body = Body(role="user", content="hi")
    usual: dict[str, Any] = {
        "dot": Dot("log", counter),
        "lamport": counter,
        "seen": {"log": counter - 1},
        "incarnation": 1,
        "parents": (Dot("log", counter - 1),),
    }
    return Op.stamped(body, encode_body(body), **{**usual, **fields}).record


def test_a_plain_dialogue_is_one_run() -> None:
    columns = columns_of(turn_records(70))

    assert [(run.count, run.counter, run.ids) for run in columns.runs] == [(70, 1, 0)]
    assert columns.whole == []
    assert columns.roles == ["user", "assistant"]
    assert set(columns.times[1:]) == {2_500}


@pytest.mark.parametrize(
    "departure",
    [
        {"dot": Dot("eu", 3)},
        {"lamport": 9},
        {"seen": {"log": 1}},
        {"seen": {"log": 2, "eu": 1}},
        {"seen": {"eu": 1}},
        {"seen": {}},
        {"incarnation": 2},
        {"parents": ()},
        {"parents": ("an id",)},
        {"parents": (Dot("log", 1),)},
        {"parents": (Dot("log", 2), Dot("log", 1))},
        {"branch": "other"},
        {"dot": Dot("log", 4)},
    ],
    ids=str,
)
def test_what_does_not_follow_begins_a_run(departure: dict[str, Any]) -> None:
    columns = columns_of([stamped(1), stamped(2), stamped(3, **departure)])

    assert [run.count for run in columns.runs] == [2, 1]
    assert columns.whole == []


def test_a_run_goes_on_in_a_session_that_others_wrote_to() -> None:
    seen = {"eu": (1, 1, 3, 4)}
    columns = columns_of(
        [stamped(counter, seen={**seen, "log": counter - 1}) for counter in (5, 6, 7)]
    )

    assert [run.count for run in columns.runs] == [3]


@pytest.mark.parametrize(
    ("ids", "stored"),
    [
        (["0", "1", "2"], 0),
        (["9", "10", "11"], 9),
        ([None, None, None], None),
        (["t-9", "t-10", "t-11"], {"t-": 9}),
        (["t0"], {"t": 0}),
        (["00", "01", "02"], ["00", "01", "02"]),
        (["08", "09", "10"], ["08", "09", "10"]),
        (["9" * 30], {"9" * 15: 999_999_999_999_999}),
        (["9" * 30, "x"], ["9" * 30, "x"]),
        (["0", "2", "3"], ["0", "2", "3"]),
        ([None, "1", "2"], [None, "1", "2"]),
        (["1", None, "3"], ["1", None, "3"]),
        (["", "1"], ["", "1"]),
        ([""], [""]),
        (["\u0663", "\u0664"], ["\u0663", "\u0664"]),
        ([str(UUID(int=5)), str(UUID(int=1 << 127))], UUIDS),
        ([str(UUID(int=123))], UUID(int=123).bytes),
        ([str(UUID(int=5)), None], [str(UUID(int=5)), None]),
        ([str(UUID(int=11)).upper()], [str(UUID(int=11)).upper()]),
        (["-" * 36], ["-" * 36]),
        (["z" * 36], ["z" * 36]),
    ],
)
def test_ids_are_counted_where_they_count(
    ids: list[str | None], stored: object
) -> None:
    records = [stamped(at, turn_id=name) for at, name in enumerate(ids, 1)]

    columns = columns_of(records)

    assert [run.ids for run in columns.runs] == [stored]
    assert ColumnReader(columns).records() == records


def test_times_are_differences_where_they_are_numbers() -> None:
    times = [1_000, None, 3_000, "2024-01-01T00:00:00Z", 2_500]
    records = [stamped(at, time=time) for at, time in enumerate(times, 1)]

    assert columns_of(records).times == [1_000, None, 2_000, times[3], -500]


def test_the_three_kinds_of_content_are_told_apart() -> None:
    texts: list[object] = ["é", "", None, msgspec.UNSET]
    records = [turn_record(at, content=text) for at, text in enumerate(texts, 1)]
    columns = columns_of(records)

    assert columns.lengths == [2, 0, NULL_TEXT, NO_TEXT]
    assert columns.texts == "é".encode()


@pytest.mark.parametrize(
    "record",
    [
        b"",
        b"no record",
        b"\x90",
        turn_record(1)[:-1],
        turn_record(1) + b"\0",
        msgspec.msgpack.encode(("log", 1, 1, {}, 1, (), None, None, None, {"r": "u"})),
        msgspec.msgpack.encode(("log", 1, 1, {}, 1, (), None, None, None, {"c": "u"})),
        msgspec.msgpack.encode(("log", 1, 1, {}, 1, (), None, None, None, [])),
    ],
)
def test_what_has_another_shape_stands_whole(record: bytes) -> None:
    columns = columns_of([turn_record(1), record, turn_record(2)])

    assert columns.whole == [(1, record)]
    assert [run.count for run in columns.runs] == [2]


def test_places_may_be_named_that_stand_whole() -> None:
    records = turn_records(3)

    assert columns_of(records, {0, 2}).whole == [(0, records[0]), (2, records[2])]


def test_roles_beyond_a_byte_stand_whole() -> None:
    records = [turn_record(at, role=f"role {at}") for at in range(1, 260)]
    columns = columns_of(records)

    assert len(columns.roles) == 256
    assert [place for place, _ in columns.whole] == [256, 257, 258]
