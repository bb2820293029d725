"""Laws of protobuf: a turn is the same turn in either form, garbage is refused."""

import json
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st

from support.corpora import corpus_name
from support.drafted import stamped
from support.protobuf_wire import as_protobuf, fields_of, held
from support.wire_turns import spelled, spoken_turns, stamps
from turnstate.replay.readers import read
from turnstate.replay.readers.lines import lines_of_open, opened
from turnstate.replay.samples import sample_paths
from turnstate.schemas.draft import draft_from_turn, turn_from_op
from turnstate.schemas.errors import InvalidInputError
from turnstate.schemas.operation import encode_body
from turnstate.schemas.turn import Turn
from turnstate.schemas.wire.json import draft_from_json, turn_from_json, turn_to_json
from turnstate.schemas.wire.proto.turnstate_pb2 import Turn as Message
from turnstate.schemas.wire.protobuf import (
    draft_from_protobuf,
    turn_from_protobuf,
    turn_to_protobuf,
)
from turnstate.schemas.wire.protobuf_walk import TURN, checked
from turnstate.schemas.wire.turn_bytes import (
    FIRST_BYTES,
    draft_from_bytes,
    session_key_in,
)

ODD: tuple[Any, ...] = (5, -1, 1.5, "\ud83d", [], [5], {}, {"a": 5}, object())
"""Values that no field takes, or only some."""

NEVER_FIRST = frozenset(b' \t\n\r{["-0123456789tfnNI\x1f\x89\x93\xc1\xef\xfe\xff')
"""What begins JSON, a byte order mark, gzip, a frame, a recorded or packed one."""


def refusal(call: Callable[[], object]) -> InvalidInputError | None:
    """Return how a call was refused; any other error is a failure."""
    try:
        call()
    except InvalidInputError as error:
        return error
    return None


@given(spoken_turns())
def test_a_turn_is_the_same_in_both_forms(value: dict[str, Any]) -> None:
    line = spelled(value)
    turn = turn_from_json(line)
    raw = turn_to_protobuf(turn)

    draft = draft_from_protobuf(raw)

    assert draft == draft_from_json(line)
    assert draft == draft_from_bytes(raw) == draft_from_bytes(raw, "text/plain")
    assert draft == draft_from_turn(turn_from_protobuf(raw))
    assert draft.key == (session_key_in(raw) or draft.key)


@given(spoken_turns(), stamps)
def test_an_operation_has_one_record_in_both_forms(
    value: dict[str, Any], stamp: dict[str, Any]
) -> None:
    nodes = value.get("op") in (None, "rollback", "fork")
    value = ({"parent": None} if nodes else {}) | value | {"stamp": stamp}
    line = spelled(value)
    raw = turn_to_protobuf(turn_from_json(line))

    told = stamped(draft_from_json(line, recorded=True))
    found = stamped(draft_from_protobuf(raw, recorded=True))

    assert found.record == told.record
    assert found.content_hash == told.content_hash
    name = draft_from_json(line, recorded=True).name
    again = turn_to_protobuf(turn_from_op(name, told))
    assert stamped(draft_from_protobuf(again, recorded=True)).record == told.record


@given(spoken_turns())
def test_a_turn_survives_both_forms(value: dict[str, Any]) -> None:
    turn = turn_from_json(spelled(value))
    raw = turn_to_protobuf(turn)

    back = turn_from_protobuf(raw)

    written = turn_to_protobuf(back)  # its JSON is canonical now
    assert turn_to_protobuf(turn_from_protobuf(written)) == written
    assert draft_from_json(turn_to_json(back)) == draft_from_turn(turn)


@given(spoken_turns())
def test_a_turn_written_by_hand_is_the_same(value: dict[str, Any]) -> None:
    line = spelled(value)

    assert draft_from_protobuf(as_protobuf(line)) == draft_from_json(line)


@given(spoken_turns(), st.randoms(use_true_random=False))
def test_the_order_of_fields_leaves_no_trace(
    value: dict[str, Any], chance: Random
) -> None:
    raw = turn_to_protobuf(turn_from_json(spelled(value)))
    fields = fields_of(raw)
    assert b"".join(fields) == raw
    chance.shuffle(fields)

    assert draft_from_protobuf(b"".join(fields)) == draft_from_protobuf(raw)


@given(spoken_turns())
def test_no_field_begins_as_something_else_does(value: dict[str, Any]) -> None:
    raw = turn_to_protobuf(turn_from_json(spelled(value)))

    assert raw[:1] in FIRST_BYTES
    assert not {field[0] for field in fields_of(raw)} & NEVER_FIRST


@given(spoken_turns(), st.binary(max_size=9), st.integers(38, 1 << 20))
def test_fields_of_a_newer_producer_are_kept(
    value: dict[str, Any], content: bytes, number: int
) -> None:
    raw = turn_to_protobuf(turn_from_json(spelled(value)))
    newer = turn_to_protobuf(turn_from_protobuf(raw)) + held(number, content)

    turn = turn_from_protobuf(newer)

    assert turn_to_protobuf(turn) == newer
    through_json = turn_from_json(turn_to_json(turn))
    assert turn_to_protobuf(through_json) == newer
    assert draft_from_protobuf(newer) == draft_from_turn(through_json)
    if "op" not in value:
        assert draft_from_protobuf(newer).body.extra


@given(st.binary(max_size=60))
@example(b"")
@example(b"\x0b\x0c")
@example(b"\x12" + b"\xff" * 11)
def test_any_bytes_are_a_turn_or_refused(garbage: bytes) -> None:
    for raw in (garbage, b"\x12\x01t\x1a\x01s\x2a\x01u" + garbage):
        error = refusal(partial(draft_from_protobuf, raw))
        assert error is None or (error.code and error.hint)
        session_key_in(raw)
        _library_reads_what_is_let_through(raw)


@given(spoken_turns(), st.none() | stamps, st.data())
def test_a_damaged_turn_is_a_turn_or_refused(
    value: dict[str, Any], stamp: dict[str, Any] | None, data: st.DataObject
) -> None:
    if stamp is not None:
        value = value | {"stamp": stamp}
    raw = bytearray(turn_to_protobuf(turn_from_json(spelled(value))))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(raw) - 1))
        piece = data.draw(st.binary(max_size=3))
        raw[at : at + data.draw(st.integers(0, 2))] = piece
        raw = raw or bytearray(b"\x12")
    _library_reads_what_is_let_through(bytes(raw))
    try:
        draft = draft_from_protobuf(bytes(raw), recorded=stamp is not None)
    except InvalidInputError:
        return
    assert draft.body_bytes == encode_body(draft.body)


def _library_reads_what_is_let_through(raw: bytes) -> None:
    """The walk is the stricter one, and what it lets through means one thing."""
    try:
        checked(raw, TURN)
    except InvalidInputError:
        return
    try:
        message = Message.FromString(raw)
    except DecodeError as error:  # pragma: no cover
        raise AssertionError("the walk let it through") from error
    fields = fields_of(message.SerializeToString(deterministic=True))
    again = Message.FromString(b"".join(reversed(fields)))
    assert again == message


@pytest.mark.parametrize("path", sample_paths(), ids=corpus_name)
def test_each_line_of_the_samples_is_the_same_in_both_forms(path: Any) -> None:
    with opened(path) as (file, name):
        lines = [
            line
            for line in read(lines_of_open(file, name), "corpus")
            if isinstance(line, bytes)
        ]
    assert lines
    for line in lines:
        turn = turn_from_json(line)
        draft = draft_from_protobuf(turn_to_protobuf(turn))
        assert draft == draft_from_json(line)
        back = turn_to_json(turn_from_protobuf(turn_to_protobuf(turn)))
        assert json.loads(back) == json.loads(line)


def test_a_turn_of_anything_is_written_or_refused_by_name() -> None:
    for field in Turn.__struct_fields__:
        for odd in ODD:
            built: dict[str, Any] = {"tenant": "t", "session": "s", "role": "user"}
            built[field] = odd
            turn = Turn(**built)
            error = refusal(partial(turn_to_protobuf, turn))
            assert error is None or error.field == field
