"""Protobuf turns: what is malformed is refused by field, as JSON would be."""

from typing import Any

import pytest
from msgspec import UNSET, Raw

from support.drafted import turn
from support.protobuf_wire import double, held, number, signed, varint
from turnstate.schemas.errors import InvalidInputError
from turnstate.schemas.limits import JSON_DEPTH_MAX
from turnstate.schemas.turn import OPERATIONS, Slots, Stamp, Tags
from turnstate.schemas.wire import protobuf
from turnstate.schemas.wire.json import (
    RAW_BYTES_MAX,
    draft_from_json,
    turn_from_json,
    turn_to_json,
)
from turnstate.schemas.wire.proto.turnstate_pb2 import Operation
from turnstate.schemas.wire.protobuf import (
    UNKNOWN_FIELDS,
    draft_from_protobuf,
    turn_from_protobuf,
    turn_to_protobuf,
)
from turnstate.schemas.wire.turn_bytes import (
    draft_from_bytes,
    is_protobuf,
    session_key_in,
)

HEAD = held(2, b"t") + held(3, b"s") + held(5, b"user")
DOT = held(1, held(1, b"eu") + number(2, 1))
STAMP = DOT + number(2, 1)
WRONG = varint(7 << 3 | 5) + b"\0\0\0\0"
"""A content of wire type 5."""


def refused(raw: bytes) -> InvalidInputError:
    """Return how a message is refused."""
    with pytest.raises(InvalidInputError) as caught:
        draft_from_protobuf(raw)
    assert caught.value.hint
    return caught.value


def entry(at: int, key: bytes, value: bytes) -> bytes:
    """Return an entry of a map to bytes or messages."""
    return held(at, held(1, key) + held(2, value))


def full_turn(**changes: Any) -> Any:
    """Return a turn with every field that goes with the others."""
    return turn(
        turn_id="u1",
        content=[Raw(b'{"type":"text","text":"a"}'), Raw(b"1")],
        tool_calls=Raw(b'[{"id":"c1","function":{"arguments":"{"}}]'),
        tool_call_id="",
        name="n",
        slots=Slots({"a": Raw(b"123456789012345678901234567890")}, ["b", "c"]),
        tags=Tags(["x"], ["y"]),
        usage={"in": -3, "out": 2**53 - 1},
        intent="i",
        confidence=0.1,
        action="offer",
        parent=["@eu:1", "@us:2"],
        branch="b",
        continues="u0",
        stage="p",
        time=-5,
        user="w",
        metadata=Raw(b'{"n":1}'),
        request_id="r",
        if_version=0,
        stamp=Stamp(("eu", 2), 7, {"us": [1, 2, 4, 9], "eu": 1}, 3),
        extra={"mood": b"1"},
    ).with_(**changes)


def test_every_field_is_read_as_it_was_written() -> None:
    for given in (
        full_turn(),
        full_turn(content=None, parent=None, time="2024-05-01T12:00:00Z"),
        full_turn(content="é\0😀", parent="@eu:1"),
        full_turn(content="", parent=[], stamp=None),
        turn(content=UNSET, parent=UNSET),
        turn(content=[]),
        turn(op="end", to="s2"),
        turn(op="rollback", to={"a": 0, "b": [1, 1, 3, 4]}),
        turn(op="rollback", to={}),
        turn(op="erase", incarnation=2),
        turn(time="", if_version=2**53),
    ):
        assert turn_from_protobuf(turn_to_protobuf(given)) == given


def test_what_we_write_is_not_walked(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(raw: bytes, shape: object) -> bytes:
        raise AssertionError(raw)

    written = turn_to_protobuf(full_turn())
    monkeypatch.setattr(protobuf, "checked", slow)

    assert draft_from_protobuf(written).turn_id == "u1"


def test_operations_have_their_numbers() -> None:
    assert [Operation.Value(f"OPERATION_{name.upper()}") for name in OPERATIONS] == [
        *range(1, 1 + len(OPERATIONS))
    ]
    assert draft_from_protobuf(HEAD + number(32, 0)).body.op is None


def test_nothing_is_null_but_for_content_and_parent() -> None:
    empty = held(9, b"") + held(24, b"") + held(10, b"null") + held(15, b"null")

    assert draft_from_protobuf(HEAD + empty) == draft_from_protobuf(HEAD)
    assert draft_from_protobuf(HEAD).body.content is UNSET
    assert draft_from_protobuf(HEAD).parents is UNSET
    nulls = draft_from_protobuf(HEAD + held(17, b"") + held(18, b""))
    assert (nulls.body.content, nulls.parents) == (None, ())
    assert draft_from_protobuf(HEAD + held(11, b"")).parents == ()


@pytest.mark.parametrize(
    ("more", "code", "field"),
    [
        # Malformed.
        (b"\x12", "doubled_key", "tenant"),
        (b"\x3a", "not_protobuf", "content"),
        (b"\x3a\x05hi", "not_protobuf", "content"),
        (b"\x3a\xff\xff\xff\xff\x07hi", "not_protobuf", "content"),
        (b"\x3a" + b"\xff" * 9 + b"\x01", "not_protobuf", "content"),
        (b"\x3a" + b"\xff" * 10, "not_protobuf", "content"),
        (varint(13 << 3) + b"\xff" * 9 + b"\x02", "not_protobuf", "time"),
        (varint(13 << 3) + b"\xff" * 11, "not_protobuf", "time"),
        (varint(20 << 3 | 1) + b"1234", "not_protobuf", "confidence"),
        (held(9, entry(1, b"a", b"1")[:-1]), "not_protobuf", "slots.set"),
        (held(14, DOT + b"\x10"), "not_protobuf", "stamp.lamport"),
        (b"\x00\x00", "not_protobuf", None),
        (b"\x0b\x0c", "not_protobuf", None),
        (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00", "not_protobuf", None),
        (b"\x80", "not_protobuf", None),
        # Of a wrong type.
        (WRONG, "invalid", "content"),
        (number(8, 1), "invalid", "turn_id"),
        (number(9, 1), "invalid", "slots"),
        (held(13, b"1"), "invalid", "time"),
        (held(20, b"1"), "invalid", "confidence"),
        (held(31, b"1"), "invalid", "if_version"),
        (held(32, b"edit"), "invalid", "op"),
        (held(9, number(2, 1)), "invalid", "slots.delete"),
        (held(25, held(1, b"n") + held(2, b"1")), "invalid", "usage"),
        (held(14, held(1, number(1, 1)) + number(2, 1)), "invalid", "stamp.dot[0]"),
        (held(14, held(1, held(2, b"1")) + number(2, 1)), "invalid", "stamp.dot[1]"),
        (held(11, number(1, 1)), "invalid", "parent"),
        # Given twice, or two of a choice.
        (held(5, b"user"), "doubled_key", "role"),
        (held(7, b"a") + held(7, b"a"), "doubled_key", "content"),
        (held(7, b"a") + held(17, b""), "doubled_key", "content"),
        (held(11, held(1, b"a")) + held(18, b""), "doubled_key", "parent"),
        (held(9, b"") + held(9, b""), "doubled_key", "slots"),
        (
            held(9, entry(1, b"a", b"1") + entry(1, b"a", b"2")),
            "doubled_key",
            "slots.set.a",
        ),
        (held(25, held(1, b"n")) + held(25, held(1, b"n")), "doubled_key", "usage.n"),
        (held(25, held(1, b"n") + held(1, b"n")), "doubled_key", "usage"),
        (held(14, DOT + DOT + number(2, 1)), "doubled_key", "stamp.dot"),
        (
            held(14, STAMP + entry(3, b"us", number(1, 4) + held(2, b""))),
            "doubled_key",
            "stamp.seen.us",
        ),
        (entry(37, b"a", b"1") + entry(37, b"a", b"1"), "doubled_key", "a"),
        (held(10, b'{"a":1,"a":1}'), "doubled_key", "metadata.a"),
        # Text.
        (held(7, b"\xff"), "not_utf8", "content"),
        (held(7, b"\xc0\x80"), "not_utf8", "content"),
        (held(7, b"a\xed\xa0\xbd"), "lone_surrogate", "content"),
        (held(24, held(1, b"a") + held(1, b"\xff")), "not_utf8", "tags.add[1]"),
        (held(11, held(1, b"\xff")), "not_utf8", "parent[0]"),
        (held(9, entry(1, b"\xff", b"1")), "not_utf8", "slots.set"),
        (held(14, STAMP + entry(3, b"\xff", b"")), "not_utf8", "stamp.seen"),
        (entry(37, b"\xff", b"1"), "not_utf8", None),
        (held(9, entry(1, b"a", b'"\xff"')), "not_utf8", "slots.set.a"),
        # What is not known, inside.
        (held(9, number(9, 1)), "unknown_field", "slots.#9"),
        (held(14, STAMP + number(9, 1)), "unknown_field", "stamp.#9"),
        (held(17, number(1, 1)), "unknown_field", "content.#1"),
        (held(25, held(1, b"n") + number(3, 1)), "unknown_field", "usage"),
        # What JSON refuses.
        (held(10, b""), "not_json", "metadata"),
        (held(10, b"1 2"), "not_json", "metadata"),
        (held(10, b'{"a":NaN}'), "number", "metadata.a"),
        (held(16, held(1, b"1e999")), "number", "content[0]"),
        (held(16, held(1, b'"\\ud83d"')), "lone_surrogate", "content[0]"),
        (double(20, float("nan")), "number", "confidence"),
        (double(20, float("-inf")), "number", "confidence"),
        (held(10, b"[" * 100_000), "too_deep", "metadata" + "[0]" * 63),
        (entry(37, b"mood", b'{"a":' * 100), "too_deep", "mood" + ".a" * 63),
        (held(15, b"{}"), "invalid", "tool_calls"),
        (entry(37, b"role", b"1"), "invalid", "role"),
        (entry(37, b"hidden", b"1"), "invalid", "hidden"),
        (number(32, 7), "unknown_op", "op"),
        (number(32, -1), "unknown_op", "op"),
        (number(31, 1 << 53), "invalid", "if_version"),
        (number(31, -1), "invalid", "if_version"),
        (signed(13, 1 << 60), "invalid", "time"),
        (held(12, b"today"), "invalid", "time"),
        (held(25, held(1, b"n") + signed(2, 1 << 53)), "invalid", "usage.n"),
        (held(25, b""), "invalid", "usage"),
        (held(9, entry(1, b"", b"1")), "invalid", "slots.set"),
        (held(34, b"s"), "invalid", "to"),
        (held(14, number(2, 1)), "invalid", "stamp.dot"),
        (held(14, DOT), "invalid", "stamp.lamport"),
        (held(14, held(1, number(2, 1)) + number(2, 1)), "invalid", "stamp.dot[0]"),
        (held(14, held(1, held(1, b"a")) + number(2, 1)), "invalid", "stamp.dot[1]"),
        (held(14, held(1, b"") + number(2, 1)), "invalid", "stamp.dot[0]"),
        (held(14, STAMP + entry(3, b"us", b"")), "invalid", "stamp.seen.us"),
        (
            held(14, STAMP + entry(3, b"us", held(2, held(1, b"\x03\x01")))),
            "invalid",
            "stamp.seen.us",
        ),
    ],
)
def test_the_field_at_fault_is_named(more: bytes, code: str, field: str | None) -> None:
    error = refused(HEAD + more)

    assert (error.code, error.field) == (code, field)


@pytest.mark.parametrize(("at", "field"), [(2, "tenant"), (3, "session"), (5, "role")])
def test_a_missing_field_is_named(at: int, field: str) -> None:
    parts = {2: held(2, b"t"), 3: held(3, b"s"), 5: held(5, b"user")}
    del parts[at]

    assert refused(b"".join(parts.values())).field == field
    assert refused(b"").field == "tenant"


def test_size_is_looked_at_first() -> None:
    error = refused(HEAD + held(7, b"x" * RAW_BYTES_MAX))
    assert (error.code, error.field) == ("too_large", "record")
    assert refused(HEAD + held(7, b"x" * (1 << 20))).code == "too_large"
    assert refused(HEAD + held(99, b"x" * (1 << 20))).code == "too_large"


def test_depth_within_the_limit_is_kept() -> None:
    nested = b"[" * (JSON_DEPTH_MAX - 1) + b"]" * (JSON_DEPTH_MAX - 1)

    assert draft_from_protobuf(HEAD + held(10, nested)).body.metadata == nested
    part = nested[1:-1]
    assert draft_from_protobuf(HEAD + held(16, held(1, part))).body.parts


def test_numbers_come_packed_or_one_by_one() -> None:
    packed = held(1, varint(1) + varint(2) + varint(4) + varint(4))
    single = number(1, 1) + number(1, 2) + number(1, 4) + number(1, 4)
    drafts = [
        draft_from_protobuf(
            HEAD + held(18, b"") + held(14, STAMP + entry(3, b"us", held(2, bounds)))
        )
        for bounds in (packed, single, single[:4] + held(1, b"\x04\x04"))
    ]

    assert drafts[0] == drafts[1] == drafts[2]
    assert drafts[0].stamp
    assert drafts[0].stamp.seen == {"us": (1, 2, 4, 4)}
    broken = entry(3, b"us", held(2, held(1, b"\x80")))
    assert refused(HEAD + held(14, STAMP + broken)).field == "stamp.seen.us[0]"


def test_a_map_may_have_its_value_first() -> None:
    turned = held(9, held(1, held(2, b"1") + held(1, b"a")))

    assert draft_from_protobuf(HEAD + turned).body.slot_set == {"a": b"1"}


def test_fields_of_a_newer_producer_ride_along_in_json_too() -> None:
    newer = number(99, 5) + held(40, b"x") + double(41, 1.0)
    found = turn_from_protobuf(newer + HEAD)

    assert found.extra
    assert list(found.extra) == [UNKNOWN_FIELDS]
    assert turn_to_protobuf(turn_from_json(turn_to_json(found))) == HEAD + newer


@pytest.mark.parametrize(
    "value",
    [b"1", b'"x"', b'"EgF4"', b'"AAAA"', b'"mAYF="', b"{}", b'""', b'"\\ud83d"'],
)
def test_a_json_field_of_that_name_overrides_nothing(value: bytes) -> None:
    """`EgF4` is a second tenant."""
    written = turn_to_protobuf(turn(extra={UNKNOWN_FIELDS: value}))

    assert written == HEAD + entry(37, UNKNOWN_FIELDS.encode(), value)
    error = refused(written + number(99, 5))
    assert (error.code, error.field) == ("doubled_key", UNKNOWN_FIELDS)


def test_json_in_bytes_cannot_break_out_of_its_field() -> None:
    with pytest.raises(InvalidInputError) as caught:
        turn_from_protobuf(HEAD + held(10, b'1,"tenant":"other"'))

    assert caught.value.field == "metadata"
    for at, field in ((15, "tool_calls"), (10, "metadata")):
        with pytest.raises(InvalidInputError) as caught:
            turn_from_protobuf(HEAD + held(at, b"}"))
        assert caught.value.field == field


@pytest.mark.parametrize(
    ("fields", "field", "code"),
    [
        ({"content": 5}, "content", "invalid"),
        ({"content": "\ud83d"}, "content", "lone_surrogate"),
        ({"confidence": float("nan")}, "confidence", "number"),
        ({"op": "explode"}, "op", "unknown_op"),
        ({"if_version": -1}, "if_version", "invalid"),
        ({"usage": {"n": 1 << 63}}, "usage", "invalid"),
        ({"time": 1 << 63}, "time", "invalid"),
        ({"slots": 5}, "slots", "invalid"),
    ],
)
def test_what_cannot_be_written_is_named(
    fields: dict[str, Any], field: str, code: str
) -> None:
    with pytest.raises(InvalidInputError) as caught:
        turn_to_protobuf(turn(**fields))

    assert (caught.value.field, caught.value.code) == (field, code)


def test_the_header_decides_else_the_first_byte() -> None:
    line = b'{"tenant":"t","session":"s","role":"user"}'
    for kind in (None, "application/json", "text/plain", " Application/JSON;q=1", ""):
        assert draft_from_bytes(line, kind) == draft_from_json(line)
    shuffled = held(5, b"user") + held(3, b"s") + held(2, b"t")
    for kind in ("application/x-protobuf", "application/protobuf; m=Turn"):
        assert draft_from_bytes(HEAD, kind) == draft_from_json(line)
        assert draft_from_bytes(shuffled, kind) == draft_from_json(line)
    assert draft_from_bytes(HEAD) == draft_from_bytes(HEAD, "text/plain")
    assert not is_protobuf(shuffled)
    for raw, kind, code in (
        (line, "application/x-protobuf", "not_protobuf"),
        (HEAD, "application/json", "not_json"),
        (b"", None, "not_json"),
        (shuffled, None, "not_json"),
    ):
        with pytest.raises(InvalidInputError) as caught:
            draft_from_bytes(raw, kind)
        assert caught.value.code == code


def test_the_session_is_found_without_the_rest() -> None:
    assert session_key_in(HEAD) == draft_from_protobuf(HEAD).key
    assert session_key_in(HEAD + b"\xff\xff") == draft_from_protobuf(HEAD).key
    long = held(2, b"t" * 200) + held(3, b"s")
    for raw in (b"", b"\x12", b"\x12\x01t", b"\x12\x01t\x1a\x05s", long, b"\x12\x00"):
        assert session_key_in(raw) is None
    for raw in (held(2, b"\xff") + held(3, b"s"), held(2, b"t") + held(3, b"\xff")):
        assert session_key_in(raw) is None
