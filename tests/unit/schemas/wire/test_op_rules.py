"""Each operation carries what it needs, and nothing that it cannot do."""

from typing import Any

import pytest
from msgspec import Raw

from support.drafted import draft, refused, turn
from turnstate.schemas.turn import Slots, Stamp, Tags
from turnstate.schemas.wire.json import draft_from_json, turn_to_json

STAMP = Stamp(("eu", 2), 5, {"eu": 1}, 1)


OPERATIONS: list[dict[str, Any]] = [
    {"op": "edit", "target": "u1", "content": "x"},
    {"op": "edit", "target": "@eu:1", "content": None},
    {"op": "edit", "target": "u1", "content": [], "user": "me", "turn_id": "e1"},
    {"op": "redact", "target": "u1", "parent": None, "content": None},
    {"op": "rollback", "to": {"log": 3}},
    {"op": "rollback", "to": {}, "branch": "b"},
    {"op": "rollback", "parent": "u1"},
    {"op": "rollback", "parent": None},
    {"op": "fork", "branch": "b"},
    {"op": "fork", "branch": "b", "target": "u1"},
    {"op": "fork", "branch": "b", "to": {"log": [1, 2, 4, 4]}},
    {"op": "fork", "branch": "b", "parent": ["u1", "u2"]},
    {"op": "end"},
    {"op": "end", "to": "s2", "branch": "b"},
    {"op": "erase"},
    {"op": "erase", "incarnation": 2, "request_id": "r"},
]


@pytest.mark.parametrize("fields", OPERATIONS, ids=str)
def test_an_operation_is_let_in(fields: dict[str, Any]) -> None:
    given = draft(**fields)

    assert given.body.op == fields["op"]
    assert draft_from_json(turn_to_json(turn(**fields))) == given


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"op": "merge"}, "op"),
        ({"op": ""}, "op"),
        ({"op": "x" * 10_000}, "op"),
        ({"op": 7}, "op"),
        ({"op": ["edit"]}, "op"),
        ({"op": "turn"}, "op"),
        ({"target": "u1"}, "target"),
        ({"to": "s2"}, "to"),
        ({"op": "edit", "content": "x"}, "target"),
        ({"op": "edit", "target": "u1"}, "content"),
        ({"op": "edit", "target": "", "content": "x"}, "target"),
        ({"op": "edit", "target": "@x", "content": "x"}, "target"),
        ({"op": "redact"}, "target"),
        ({"op": "redact", "target": "u1", "content": "x"}, "content"),
        ({"op": "redact", "target": "u1", "to": "s2"}, "to"),
        ({"op": "rollback"}, "to"),
        ({"op": "rollback", "to": "s2"}, "to"),
        ({"op": "rollback", "to": {"log": -1}}, "to.log"),
        ({"op": "rollback", "to": {"": 1}}, "to"),
        ({"op": "rollback", "to": {}, "parent": "u1"}, "parent"),
        ({"op": "rollback", "to": {}, "content": "x"}, "content"),
        ({"op": "rollback", "to": {}, "target": "u1"}, "target"),
        ({"op": "fork"}, "branch"),
        ({"op": "fork", "branch": "main"}, "branch"),
        ({"op": "fork", "branch": "b", "to": "s2"}, "to"),
        ({"op": "fork", "branch": "b", "to": {}, "target": "u1"}, "to"),
        ({"op": "end", "to": {"log": 1}}, "to"),
        ({"op": "end", "to": ""}, "to"),
        ({"op": "end", "target": "u1"}, "target"),
        ({"op": "erase", "stamp": STAMP}, "stamp"),
        ({"op": "erase", "incarnation": 0}, "incarnation"),
        ({"op": "erase", "incarnation": True}, "incarnation"),
        ({"op": "end", "incarnation": 1}, "incarnation"),
    ],
    ids=str,
)
def test_an_operation_at_fault_is_refused(fields: dict[str, Any], field: str) -> None:
    error = refused(**fields)

    assert error.field == field
    assert (error.code == "unknown_op") == (field == "op")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("slots", Slots({"a": Raw(b"1")})),
        ("tags", Tags(["a"])),
        ("usage", {"a": 1}),
        ("action", "inform"),
        ("tool_calls", Raw(b"[]")),
        ("tool_call_id", "c"),
        ("continues", "u0"),
    ],
)
@pytest.mark.parametrize("fields", OPERATIONS, ids=str)
def test_no_operation_carries_what_only_turns_do(
    fields: dict[str, Any], field: str, value: Any
) -> None:
    assert refused(**fields, **{field: value}).field == field


def test_an_edit_has_no_parent() -> None:
    edit = {"op": "edit", "target": "u1", "content": "x"}

    assert refused(**edit, parent="u1").field == "parent"
