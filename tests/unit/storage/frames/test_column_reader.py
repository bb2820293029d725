"""Giving records back from columns, bit for bit, and refusing columns that lie."""

from typing import Any

import msgspec
import pytest

from support.framed import turn_record, turn_records
from turnstate.schemas.errors import CorruptDataError
from turnstate.schemas.operation import Op
from turnstate.storage.frames.column_reader import ColumnReader, gives_back
from turnstate.storage.frames.columns import Columns, columns_of

COLUMNS = columns_of(turn_records(5))

ODD = [
    turn_record(1, content=None),
    turn_record(2, content=msgspec.UNSET),
    turn_record(3, content="长" * 90_000),
    turn_record(4, content="x" * 300, tool_calls=b"[{}]", tool_call_id="c"),
    turn_record(5, slot_set={f"slot {n}": b"1" for n in range(40)}),
    turn_record(6, usage={"tokens": -3}, confidence=0.5, extra={"new": b"{}"}),
    turn_record(7, role="x" * 40, metadata=None),
    Op.decode(turn_record(8, slot_set={"secret": b"1"})).stub().record,
]


def read(columns: Columns) -> list[bytes]:
    stored = msgspec.msgpack.encode(columns)
    return ColumnReader(msgspec.msgpack.decode(stored, type=Columns)).records()


@pytest.mark.parametrize("records", [[], turn_records(1), turn_records(130), ODD])
def test_records_come_back_bit_for_bit(records: list[bytes]) -> None:
    columns = columns_of(records)

    assert columns.whole == []
    assert read(columns) == records


def test_whole_records_come_back_in_their_place() -> None:
    records = [
        b"first",
        *turn_records(2),
        b"middle",
        b"middle",
        turn_record(3),
        b"last",
    ]

    assert read(columns_of(records)) == records


def test_one_record_comes_back_without_the_others() -> None:
    records = [*turn_records(3), b"whole", *ODD[3:], b"whole too"]
    reader = ColumnReader(columns_of(records))

    assert [reader.record(place) for place in range(reader.count)] == records
    for place in (-1, reader.count):
        with pytest.raises(IndexError):
            reader.record(place)


def test_a_record_is_asked_whether_columns_give_it_back() -> None:
    assert gives_back(turn_record(3))
    assert gives_back(b"whole")
    wide = turn_record(1).replace(b"\x01\x01\x80", b"\xcc\x01\x01\x80", 1)
    assert Op.decode(wide).dot == Op.decode(turn_record(1)).dot
    assert not gives_back(wide)


@pytest.mark.parametrize(
    "changes",
    [
        {"runs": []},
        {"runs": COLUMNS.runs * 2},
        {"runs": [msgspec.structs.replace(COLUMNS.runs[0], ids=["1"])]},
        {"runs": [msgspec.structs.replace(COLUMNS.runs[0], ids=bytes(79))]},
        {"runs": [msgspec.structs.replace(COLUMNS.runs[0], ids=bytes(64))]},
        {"runs": [msgspec.structs.replace(COLUMNS.runs[0], ids={})]},
        {"runs": [msgspec.structs.replace(COLUMNS.runs[0], ids={"a": 1, "b": 2})]},
        {"runs": [msgspec.structs.replace(COLUMNS.runs[0], count=6)]},
        {
            "runs": [
                msgspec.structs.replace(COLUMNS.runs[0], count=count)
                for count in (6, -1)
            ]
        },
        {"times": []},
        {"roles": ["user"]},
        {"role_of": b""},
        {"rests": []},
        {"lengths": [0] * 5},
        {"lengths": [-3] * 5},
        {"texts": b""},
        {"whole": [(9, b"")]},
        {"whole": [(-1, b"")]},
        {"whole": [(0, b""), (0, b"")]},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_columns_that_contradict_one_another_are_corrupt(
    changes: dict[str, Any],
) -> None:
    columns = msgspec.structs.replace(COLUMNS, **changes)

    with pytest.raises(CorruptDataError):
        ColumnReader(columns)


def test_a_rest_that_is_no_map_is_corrupt() -> None:
    rests = [*COLUMNS.rests[:4], msgspec.Raw(b"\x01")]
    reader = ColumnReader(msgspec.structs.replace(COLUMNS, rests=rests))

    with pytest.raises(CorruptDataError):
        reader.records()
