"""Laws of the wire: garbage is refused by name, one value has one form."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import UNSET

from support.wire_turns import (
    addresses,
    heads,
    spelled,
    spoken_turns,
    stamps,
    turn_ids,
    values,
)
from turnstate.schemas.draft import Draft, draft_from_turn, turn_from_op
from turnstate.schemas.errors import InvalidInputError
from turnstate.schemas.limits import JSON_DEPTH_MAX
from turnstate.schemas.operation import Op, encode_body
from turnstate.schemas.turn import Turn
from turnstate.schemas.wire.canonical import canonical_json
from turnstate.schemas.wire.json import draft_from_json, turn_from_json, turn_to_json
from turnstate.schemas.wire.scan import is_too_deep, scan


def refusal(call: Callable[[], object]) -> InvalidInputError | None:
    """Return how a call was refused; any other error is a failure."""
    try:
        call()
    except InvalidInputError as error:
        return error
    return None


def stamped(draft: Draft) -> Op:
    assert draft.stamp is not None
    assert draft.parents is not UNSET
    return Op.stamped(
        draft.body,
        draft.body_bytes,
        dot=draft.stamp.dot,
        lamport=draft.stamp.lamport,
        seen=draft.stamp.seen,
        incarnation=draft.stamp.incarnation,
        parents=draft.parents,
        branch=draft.branch or "main",
        turn_id=draft.turn_id,
        time=draft.time,
    )


@given(st.binary(max_size=60))
@example(b"")
@example(b"\xef\xbb\xbf")
@example(b'"metadata":' + b"[" * 5_000)
def test_any_bytes_are_a_draft_or_refused(garbage: bytes) -> None:
    head = b'{"tenant":"t","session":"s","role":"user",'
    for raw in (garbage, head + garbage, head + garbage + b"}"):
        error = refusal(partial(draft_from_json, raw))
        assert error is None or error.code


@given(spoken_turns(), st.data())
def test_a_damaged_turn_is_a_draft_or_refused(
    value: dict[str, Any], data: st.DataObject
) -> None:
    raw = bytearray(spelled(value, ensure_ascii=data.draw(st.booleans())))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(raw) - 1))
        piece = data.draw(
            st.sampled_from(
                [
                    b"",
                    b'"',
                    b"\\",
                    b"[",
                    b"}",
                    b",",
                    b"1e999",
                    b"\\ud83d",
                    b"\xff",
                    b"\0",
                ]
            )
            | st.binary(max_size=3)
        )
        raw[at : at + data.draw(st.integers(0, 2))] = piece
        raw = raw or bytearray(b" ")
    try:
        draft = draft_from_json(bytes(raw))
    except InvalidInputError:
        return
    assert draft.body_bytes == encode_body(draft.body)


FIELD_NAMES = Turn.__struct_fields__
scalars = st.sampled_from(
    [None, True, 0, -1, 1.5, 2**64, "", "x", "@log:1", [], {}, [None], {"a": None}]
)


@given(heads, st.dictionaries(st.sampled_from(FIELD_NAMES), scalars, max_size=5))
def test_fields_of_any_type_are_a_draft_or_refused_by_name(
    head: dict[str, Any], odd: dict[str, Any]
) -> None:
    error = refusal(lambda: draft_from_json(spelled(head | odd)))

    if error is not None:
        assert error.field is not None
        assert error.field.split(".")[0].split("[")[0] in FIELD_NAMES


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(FIELD_NAMES, scalars)))
def test_a_turn_built_of_anything_is_a_draft_or_refused(fields: dict[str, Any]) -> None:
    built: dict[str, Any] = {"tenant": "t", "session": "s", "role": "user"} | fields
    turn = Turn(**built)

    error = refusal(lambda: draft_from_turn(turn))

    assert error is None or error.field or "extra" in error.message


@given(spoken_turns())
def test_the_spelling_of_a_turn_leaves_no_trace(value: dict[str, Any]) -> None:
    draft = draft_from_json(spelled(value))

    turned = dict(reversed(value.items()))
    assert draft == draft_from_json(spelled(value, ensure_ascii=False, indent=1))
    assert draft == draft_from_json(spelled(turned, separators=(",", ":")))


@given(spoken_turns())
def test_a_turn_survives_being_read_and_written(value: dict[str, Any]) -> None:
    turn = turn_from_json(spelled(value))

    again = turn_from_json(turn_to_json(turn))
    assert turn_to_json(again) == turn_to_json(turn)
    assert draft_from_turn(again) == draft_from_turn(turn)


@given(spoken_turns())
def test_text_and_integers_are_exact(value: dict[str, Any]) -> None:
    body = draft_from_json(spelled(value)).body

    for name in ("tool_call_id", "name", "intent", "action", "stage", "user"):
        assert getattr(body, name) == value.get(name)
    if "mood" in value:
        assert body.extra
        assert json.loads(body.extra["mood"]) == value["mood"]
    if isinstance(value.get("content"), list):
        assert body.parts
        assert json.loads(body.parts) == value["content"]
    elif body.op in (None, "edit"):
        assert body.content == value.get("content", UNSET)
    if value.get("tool_calls") is not None:
        assert body.tool_calls
        assert json.loads(body.tool_calls) == value["tool_calls"]


@given(spoken_turns(), stamps, st.lists(addresses, max_size=2), turn_ids)
def test_stamped_and_unstamped_copies_have_one_content_hash(
    value: dict[str, Any], stamp: dict[str, Any], parents: list[str], turn_id: str
) -> None:
    value = {name: value[name] for name in value if name != "parent"}
    if "target" in value and not value["target"].startswith("@"):
        value["target"] = "@eu:1"
    plain = draft_from_json(spelled(value))
    more: dict[str, Any] = {"stamp": stamp, "turn_id": turn_id, "time": 7}
    if value.get("op") not in ("edit", "redact", "end"):
        more["parent"] = parents
    if value.get("op") != "fork":
        more["branch"] = "elsewhere"

    assert plain.content_hash == draft_from_json(spelled(value | more)).content_hash


@given(spoken_turns(), stamps)
def test_an_operation_survives_its_wire_form(
    value: dict[str, Any], stamp: dict[str, Any]
) -> None:
    nodes = value.get("op") in (None, "rollback", "fork")
    value = ({"parent": None} if nodes else {}) | value | {"stamp": stamp}
    draft = draft_from_json(spelled(value), recorded=True)
    op = stamped(draft)

    wire = turn_to_json(turn_from_op(draft.name, op))
    again = draft_from_json(wire, recorded=True)

    assert stamped(again).record == op.record
    assert turn_to_json(turn_from_op(draft.name, Op.decode(op.record))) == wire


@given(values, st.booleans())
def test_canonical_is_idempotent_and_means_the_same(
    value: Any, ascii_only: bool
) -> None:
    raw = spelled(value, ensure_ascii=ascii_only, indent=2)

    canonical = canonical_json(raw, field="metadata", depth=1)

    scan(canonical)
    assert json.loads(canonical) == value
    assert canonical == canonical_json(canonical, field="metadata", depth=1)
    assert canonical == canonical_json(b" " * 600 + raw, field="metadata", depth=1)


@given(st.binary(max_size=40) | values.map(spelled))
def test_the_scan_and_the_canonical_form_agree(raw: bytes) -> None:
    scanned = refusal(lambda: scan(raw, field="x", depth=1))
    formed = refusal(lambda: canonical_json(raw, field="x", depth=1))

    assert (scanned is None) == (formed is None)
    if scanned and formed:
        assert (scanned.code, scanned.field) == (formed.code, formed.field)


@given(values, st.integers(0, JSON_DEPTH_MAX))
def test_the_quick_look_at_depth_and_the_scan_agree(value: Any, around: int) -> None:
    raw = spelled([value, "[{"] + [[]] * 64, indent=1)

    error = refusal(partial(scan, raw, depth=around))

    assert is_too_deep(raw, around) == (error is not None and error.code == "too_deep")


@given(st.binary(max_size=40))
def test_what_the_scan_lets_through_other_readers_read(raw: bytes) -> None:
    try:
        scan(raw)
    except InvalidInputError:
        return
    json.loads(raw.decode())
    msgspec.json.decode(raw, type=msgspec.Raw)
