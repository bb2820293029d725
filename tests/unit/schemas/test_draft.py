"""A draft is a turn that was checked: each field at fault is refused by name."""

from typing import Any

import pytest
from msgspec import UNSET, Raw

from support.drafted import draft, refused, slots, stamped, tags, turn
from turnstate.schemas.draft import draft_from_turn, turn_from_op
from turnstate.schemas.errors import InvalidInputError
from turnstate.schemas.ids import SessionName
from turnstate.schemas.limits import (
    COUNTER_MAX,
    ID_BYTES_MAX,
    RECORD_BYTES_MAX,
    TIME_MS_ABS_MAX,
    USAGE_ABS_MAX,
)
from turnstate.schemas.operation import Op, encode_body
from turnstate.schemas.turn import Slots, Stamp, Tags
from turnstate.schemas.wire.json import draft_from_json, turn_to_json

STAMP = Stamp(("eu", 2), 5, {"eu": 1}, 1)


def test_a_bare_turn_is_a_draft_with_nothing_in_it() -> None:
    given = draft()

    assert given.name == SessionName("t", "s")
    assert given.key == given.name.key()
    assert given.parents is UNSET
    assert given.body.content is UNSET
    assert given.body_bytes == encode_body(given.body)
    assert (given.branch, given.stamp, given.time, given.turn_id) == (None,) * 4


IDS = ("tenant", "session", "turn_id", "role", "branch", "user", "request_id")


@pytest.mark.parametrize("field", [*IDS, "continues"])
@pytest.mark.parametrize(
    "value", ["", "a\0b", "x" * (ID_BYTES_MAX + 1), "é" * 257, "\ud83d", 7, b"x", ["x"]]
)
def test_a_bad_id_is_refused_by_name(field: str, value: Any) -> None:
    assert refused(**{field: value}).field == field


@pytest.mark.parametrize("field", ["tenant", "session", "role"])
def test_a_needed_field_may_not_be_none(field: str) -> None:
    assert refused(**{field: None}).field == field


@pytest.mark.parametrize("value", ["x" * ID_BYTES_MAX, "é" * 256, "../a b#%*{}", "\n"])
def test_an_id_is_any_text_that_fits(value: str) -> None:
    given = draft(**dict.fromkeys(IDS, value))

    assert (given.turn_id, given.name.session, given.body.role) == (value,) * 3


def test_normal_forms_are_two_ids() -> None:
    assert draft(session="é").key != draft(session="e\u0301").key


def test_a_turn_id_does_not_look_like_an_address() -> None:
    assert refused(turn_id="@log:1").field == "turn_id"


def test_main_is_the_branch_that_is_meant_without_one() -> None:
    assert draft(branch="main") == draft()
    assert draft(branch="b").branch == "b"


TEXTS = ("content", "tool_call_id", "name", "intent", "action", "stage")


@pytest.mark.parametrize("field", TEXTS)
def test_text_is_exact(field: str) -> None:
    for text in ("", "a\0b", ' \\\\\\"', "e\u0301 👨‍👩‍👧‍👦🏽", "x" * 10_000):
        assert getattr(draft(**{field: text}).body, field) == text


@pytest.mark.parametrize("field", TEXTS)
def test_half_a_character_is_refused_by_name(field: str) -> None:
    error = refused(**{field: "half \ud83d"})

    assert (error.code, error.field) == ("lone_surrogate", field)


@pytest.mark.parametrize("field", TEXTS)
def test_what_is_no_text_is_refused_by_name(field: str) -> None:
    for value in (7, b"x", {"a": 1}, 1.5):
        assert refused(**{field: value}).field == field


def test_content_is_absent_or_null_or_text_or_parts() -> None:
    kinds: list[dict[str, Any]] = [
        {},
        {"content": None},
        {"content": ""},
        {"content": "[]"},
        {"content": []},
        {"content": [Raw(b"{}")]},
    ]
    hashes = {draft(**fields).content_hash for fields in kinds}

    assert len(hashes) == 6
    assert draft(content=[]).body.parts == b"[]"
    assert draft(content=[Raw(b' {"a" : 1}'), Raw(b'"x"')]).body.parts == (
        b'[{"a":1},"x"]'
    )


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"content": [{"type": "text"}]}, "content[0]"),
        ({"content": [Raw(b"1"), Raw(b"NaN")]}, "content[1]"),
        ({"metadata": {"a": 1}}, "metadata"),
        ({"metadata": Raw(b"{")}, "metadata"),
        ({"tool_calls": []}, "tool_calls"),
        ({"tool_calls": Raw(b"{}")}, "tool_calls"),
        ({"tool_calls": Raw(b"[{}]")}, "tool_calls[0].function"),
        ({"slots": {"set": {}}}, "slots"),
        ({"slots": slots([])}, "slots.set"),
        ({"slots": slots({"a": "x"})}, "slots.set.a"),
        ({"slots": slots({"a": Raw(b"1e999")})}, "slots.set.a"),
        ({"slots": slots({"": Raw(b"1")})}, "slots.set"),
        ({"slots": slots({"a\0": Raw(b"1")})}, "slots.set"),
        ({"slots": slots({"\ud83d": Raw(b"1")})}, "slots.set"),
        ({"slots": slots({7: Raw(b"1")})}, "slots.set"),
        ({"slots": slots(None, "ab")}, "slots.delete"),
        ({"slots": slots(None, [""])}, "slots.delete"),
        ({"slots": slots(None, [7])}, "slots.delete"),
        ({"tags": ["a"]}, "tags"),
        ({"tags": tags(["x" * 513])}, "tags.add"),
        ({"tags": tags(None, ["\0"])}, "tags.remove"),
        ({"tags": tags({"a": 1})}, "tags.add"),
        ({"usage": 7}, "usage"),
        ({"usage": {"": 1}}, "usage"),
        ({"usage": {"a": True}}, "usage.a"),
        ({"usage": {"a": 1.0}}, "usage.a"),
        ({"usage": {"a": USAGE_ABS_MAX + 1}}, "usage.a"),
        ({"usage": {"a": -USAGE_ABS_MAX - 1}}, "usage.a"),
        ({"confidence": float("nan")}, "confidence"),
        ({"confidence": float("-inf")}, "confidence"),
        ({"confidence": 10**400}, "confidence"),
        ({"confidence": True}, "confidence"),
        ({"confidence": "high"}, "confidence"),
        ({"if_version": -1}, "if_version"),
        ({"if_version": True}, "if_version"),
        ({"if_version": COUNTER_MAX + 1}, "if_version"),
        ({"incarnation": 1}, "incarnation"),
        ({"extra": {"role": b"1"}}, "role"),
        ({"extra": {"mood": b"NaN"}}, "mood"),
        ({"extra": {"hidden": b"[]"}}, "hidden"),
    ],
)
def test_the_field_at_fault_is_named(fields: dict[str, Any], field: str) -> None:
    assert refused(**fields).field == field


def test_extra_that_is_no_json_bytes_is_refused() -> None:
    wrong: list[Any] = [[], {"a": "1"}, {7: b"1"}]
    for extra in wrong:
        refused(extra=extra)
    assert refused(extra={"\ud83d": b"1"}).code == "lone_surrogate"


def test_what_means_nothing_leaves_no_trace() -> None:
    empty = draft(
        slots=Slots({"a": Raw(b"null")}, []),
        tags=Tags([], []),
        usage={},
        metadata=Raw(b" null"),
        tool_calls=Raw(b"null"),
        extra={},
    )

    assert empty == draft(slots=Slots(), tags=Tags()) == draft()


def test_the_order_of_sets_leaves_no_trace() -> None:
    first = draft(
        slots=Slots({"a": Raw(b"1"), "b": Raw(b"2")}, ["d", "c", "d"]),
        tags=Tags(["y", "x"], ["q", "p", "p"]),
        usage={"m": 1, "n": 2},
        extra={"e": b"1", "f": b"2"},
    )
    second = draft(
        slots=Slots({"b": Raw(b" 2"), "a": Raw(b"1 ")}, ["c", "d"]),
        tags=Tags(["x", "y", "x"], ["p", "q"]),
        usage={"n": 2, "m": 1},
        extra={"f": b"2", "e": b"1"},
    )

    assert first.body_bytes == second.body_bytes
    assert first.content_hash == second.content_hash


def test_an_integer_confidence_is_the_number() -> None:
    assert draft(confidence=1).body_bytes == draft(confidence=1.0).body_bytes


TIMES = (
    "2024-05-01T12:00:00Z",
    "2024-05-01t12:00:00.123456789+02:00",
    "20240501T120000-0530",
    "2024-W18-3T12:00+00:00",
    0,
    -TIME_MS_ABS_MAX,
    TIME_MS_ABS_MAX,
)


@pytest.mark.parametrize("time", TIMES)
def test_a_time_is_kept_as_it_came(time: Any) -> None:
    assert draft(time=time).time == time


@pytest.mark.parametrize(
    "time",
    [
        "",
        "2024-05-01",
        "2024-05-01T12:00:00",
        "2024-05-01 12:00:00Z",
        "2024-05-01x12:00:00Z",
        "2024-13-01T12:00:00Z",
        "yesterday",
        "2024-05-01T12:00:00." + "1" * 100 + "Z",
        "2024-05-01T12:00:00Z\0",
        "\ud83d",
        TIME_MS_ABS_MAX + 1,
        -TIME_MS_ABS_MAX - 1,
        10**30,
        True,
        1.5,
        b"0",
        {},
    ],
)
def test_a_time_that_cannot_be_read_is_refused(time: Any) -> None:
    assert refused(time=time).field == "time"


def test_the_largest_record_is_kept_and_one_byte_more_is_refused() -> None:
    around = len(draft(content="x" * 100_000).body_bytes) - 100_000
    room = RECORD_BYTES_MAX - around

    assert len(draft(content="x" * room).body_bytes) == RECORD_BYTES_MAX
    error = refused(content="x" * (room + 1))
    assert (error.code, error.field) == ("too_large", "content")
    assert "reference" in (error.hint or "")


def test_what_is_too_large_is_named() -> None:
    part = Raw(b'"' + b"x" * RECORD_BYTES_MAX + b'"')

    assert refused(content=[part]).field == "content"
    assert refused(metadata=part, content="hi").field == "record"


def test_stamped_and_unstamped_copies_have_one_content_hash() -> None:
    plain = draft(content="hi", turn_id="u", time=1)
    given = draft(content="hi", stamp=STAMP, parent="@eu:1", branch="b", time=2)

    assert given.content_hash == plain.content_hash


@pytest.mark.parametrize(
    "fields",
    [
        {"content": [Raw(b'{"a":1}')], "parent": ["u1", "@us:4"], "turn_id": "u2"},
        {"content": None, "parent": None, "branch": "b", "time": "2024-05-01T12:00Z"},
        {
            "slots": Slots({"a": Raw(b"1")}, ["b"]),
            "tags": Tags(["x"]),
            "parent": "@u:1",
        },
        {"op": "edit", "target": "u1", "content": "not yet", "time": 5},
        {"op": "rollback", "to": {"us": [1, 1, 3, 4], "log": 2}, "parent": "@us:4"},
        {"op": "rollback", "to": {}, "parent": None},
        {"op": "fork", "branch": "b", "target": "u1", "parent": "@us:1"},
        {"op": "end", "to": "s2"},
        {"extra": {"mood": b'"x"', "extra": b"1"}, "parent": None},
    ],
    ids="+".join,
)
def test_an_operation_comes_back_from_its_wire_form(fields: dict[str, Any]) -> None:
    name = SessionName("t", "s")
    stamp = Stamp(("eu", 7), 9, {"eu": 6, "us": [1, 1, 3, 4]}, 2)
    op = stamped(draft_from_turn(turn(**fields, stamp=stamp), recorded=True))

    spoken = turn_to_json(turn_from_op(name, op))
    again = draft_from_json(spoken, recorded=True)

    assert stamped(again).record == op.record
    assert again.name == name
    assert turn_from_op(name, Op.decode(op.record)) == turn_from_op(name, op)


def test_a_stub_comes_back_from_its_wire_form() -> None:
    name = SessionName("t", "s")
    full = turn(
        stamp=STAMP,
        parent="@eu:1",
        content="secret",
        usage={"n": 1},
        action="inform",
        slots=Slots({"a": Raw(b"1")}),
        tags=Tags(["x"]),
        turn_id="u2",
    )
    stub = stamped(draft_from_turn(full)).stub()

    spoken = turn_to_json(turn_from_op(name, stub))
    again = stamped(draft_from_json(spoken, recorded=True))

    assert b"secret" not in spoken
    assert again.record == stub.record
    assert again.operation_hash == stub.operation_hash
    assert again.content_hash == stub.content_hash
    with pytest.raises(InvalidInputError) as caught:
        draft_from_json(spoken)
    assert caught.value.field == "hidden"


@pytest.mark.parametrize(
    "hidden",
    [
        b"7",
        b"[]",
        b'["","",[],[]]',
        b'["%s","zz",[],[]]' % (b"00" * 32),
        b'["%s","%s",["00"],[]]' % (b"00" * 32, b"00" * 8),
        b'["%s","%s",[],[]]' % (b"00" * 31, b"00" * 8),
    ],
)
def test_a_stub_that_is_none_is_refused(hidden: bytes) -> None:
    odd = turn(stamp=STAMP, parent=None, extra={"hidden": hidden})
    with pytest.raises(InvalidInputError) as caught:
        draft_from_turn(odd, recorded=True)

    assert caught.value.field == "hidden"
