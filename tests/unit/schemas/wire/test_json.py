"""Turns come in and go out as JSON, known fields typed, unknown ones kept."""

import json
from typing import Any

import msgspec
import pytest
from msgspec import UNSET, Raw

from support.corpora import corpus_lines, corpus_paths
from turnstate.schemas.errors import InvalidInputError
from turnstate.schemas.limits import JSON_DEPTH_MAX
from turnstate.schemas.turn import Slots, Stamp, Tags, Turn
from turnstate.schemas.wire import json as wire_json
from turnstate.schemas.wire.json import (
    RAW_BYTES_MAX,
    draft_from_json,
    turn_from_json,
    turn_to_json,
)

HEAD = b'{"tenant":"t","session":"s","role":"user"'


def refused(raw: bytes) -> InvalidInputError:
    with pytest.raises(InvalidInputError) as caught:
        draft_from_json(raw)
    return caught.value


def full_turn() -> Turn:
    return Turn(
        tenant="t",
        session="s",
        role="assistant",
        turn_id="u1",
        content=[Raw(b'{"type":"text","text":"hi"}'), Raw(b"[1, 2]")],
        tool_calls=Raw(b'[{"id":"c","function":{"name":"f","arguments":"{"}}]'),
        tool_call_id="c0",
        name="n",
        slots=Slots({"a": Raw(b'"x"'), "b": Raw(b"[1]")}, ["c"]),
        tags=Tags(["x"], ["y"]),
        usage={"tokens": -3},
        intent="i",
        confidence=0.25,
        action="inform",
        parent=["@log:1", "u0"],
        branch="b",
        continues="u0",
        stage="draft",
        time="2024-05-01T12:00:00.123456789+02:00",
        user="me",
        metadata=Raw(b'{"k":1}'),
        request_id="r",
        if_version=3,
        stamp=Stamp(("eu", 2), 5, {"eu": 1, "us": [1, 2, 4, 4]}, 2),
    )


def test_what_we_write_is_taken_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(raw: bytes, turn: Turn | None) -> Turn:
        raise AssertionError(raw)

    monkeypatch.setattr(wire_json, "_turn_looked_at", slow)
    bare = Turn(tenant="t", session="s", role="user")

    for turn in (
        bare,
        full_turn(),
        bare.with_(content=None, parent=None),
        bare.with_(content=[], parent=[]),
        bare.with_(content='é😀\0\n\x7f"\\/'),
        bare.with_(op="rollback", to={}, confidence=1e-7, time=-1),
        bare.with_(op="end", to="s2", slots=Slots(), tags=Tags(), usage={}),
    ):
        assert turn == turn_from_json(turn_to_json(turn))


def test_any_spelling_gives_the_same_draft() -> None:
    spoken = turn_to_json(full_turn())
    value = json.loads(spoken)
    turned = dict(reversed(value.items()))

    for other in (
        json.dumps(value),
        json.dumps(value, indent=3),
        json.dumps(turned, ensure_ascii=True),
        "\ufeff" + json.dumps(turned),
        json.dumps(value | {"op": None, "to": None, "incarnation": None}),
    ):
        expected = draft_from_json(spoken, recorded=True)
        assert expected == draft_from_json(other.encode(), recorded=True)


def test_null_is_absent_but_for_content_and_parent() -> None:
    nulls = {
        name: None
        for name in Turn.__struct_fields__
        if name not in ("tenant", "session", "role", "extra", "content", "parent")
    }
    raw = json.dumps({"tenant": "t", "session": "s", "role": "user"} | nulls).encode()

    assert draft_from_json(raw) == draft_from_json(HEAD + b"}")
    assert turn_from_json(HEAD + b',"content":null,"parent":null}').content is None
    assert turn_from_json(HEAD + b"}").content is UNSET


def test_unknown_fields_are_kept_and_written_back() -> None:
    raw = HEAD + b',"mood" : {"b": 1, "a": "\\u00e9"},"extra":[1],"x":null}'

    turn = turn_from_json(raw)

    assert turn.extra == {
        "mood": '{"b":1,"a":"é"}'.encode(),
        "extra": b"[1]",
        "x": b"null",
    }
    assert turn == turn_from_json(turn_to_json(turn))
    assert draft_from_json(raw).body.extra == turn.extra
    assert turn_to_json(turn.with_(extra={})) == HEAD + b"}"


def test_a_field_called_extra_is_as_unknown_as_any() -> None:
    for value in (b'{"a":"YQ=="}', b"null", b"3", b'{"role":"system"}'):
        turn = turn_from_json(HEAD + b',"extra":' + value + b"}")
        assert turn.extra == {"extra": value}
        assert turn.role == "user"
    hidden = turn_from_json(HEAD + b',"e\\u0078tra":{"a":"YQ=="}}')
    assert hidden.extra == {"extra": b'{"a":"YQ=="}'}


def test_unknown_names_inside_are_refused() -> None:
    for field, inner in (
        ("slots.sett", b'"slots":{"sett":{"a":1}}'),
        ("tags.added", b'"tags":{"added":["a"]}'),
        ("stamp.vector", b'"stamp":{"dot":["a",1],"lamport":1,"vector":{}}'),
    ):
        error = refused(HEAD + b"," + inner + b"}")
        assert (error.code, error.field) == ("unknown_field", field)


@pytest.mark.parametrize(
    ("inner", "code", "field"),
    [
        (b'"content":"\\ud83d"', "lone_surrogate", "content"),
        (b'"content":"\xed\xa0\xbd"', "lone_surrogate", "content"),
        (b'"metadata":{"a":["\\udc00"]}', "lone_surrogate", "metadata.a[0]"),
        (b'"mood":"\\ud83d\\ud83d"', "lone_surrogate", "mood"),
        (b'"content":"\xff"', "not_utf8", "content"),
        (b'"metadata":"\xff"', "not_utf8", "metadata"),
        (b'"content":"a","content":"b"', "doubled_key", "content"),
        (b'"content":"a","c\\u006fntent":"a"', "doubled_key", "content"),
        (b'"slots":{"set":{"a":1,"a":1}}', "doubled_key", "slots.set.a"),
        (b'"slots":{"set":{"a":{"b":1,"b":1}}}', "doubled_key", "slots.set.a.b"),
        (b'"usage":{"n":1,"n":1}', "doubled_key", "usage.n"),
        (
            b'"stamp":{"dot":["a",1],"dot":["b",1],"lamport":1}',
            "doubled_key",
            "stamp.dot",
        ),
        (b'"mood":{"a":1,"a":1}', "doubled_key", "mood.a"),
        (b'"metadata":{"a":1,"a":1}', "doubled_key", "metadata.a"),
        (b'"content":[{"a":1,"a":1}]', "doubled_key", "content[0].a"),
        (b'"confidence":NaN', "number", "confidence"),
        (b'"confidence":1e999', "number", "confidence"),
        (b'"metadata":{"a":1e999}', "number", "metadata.a"),
        (b'"metadata":-Infinity', "number", "metadata"),
        (b'"mood":1e999', "number", "mood"),
        (b'"time":1e999', "number", "time"),
        (b'"usage":{"a":1.5}', "invalid", "usage"),
        (b'"usage":{"a":true}', "invalid", "usage"),
        (b'"usage":{"a":%s}' % (b"9" * 5000), "invalid", "usage"),
        (b'"usage":{"a":18446744073709551616}', "invalid", "usage.a"),
        (b'"time":1.5', "invalid", "time"),
        (b'"time":true', "invalid", "time"),
        (b'"role":"user"', "doubled_key", "role"),
        (b'"content":1', "invalid", "content"),
        (b'"content":{}', "invalid", "content"),
        (b'"turn_id":7', "invalid", "turn_id"),
        (b'"parent":[1]', "invalid", "parent[0]"),
        (b'"slots":[]', "invalid", "slots"),
        (b'"slots":{"set":[]}', "invalid", "slots.set"),
        (b'"slots":{"delete":[null]}', "invalid", "slots.delete[0]"),
        (b'"stamp":{"dot":["a",1]}', "invalid", "stamp.lamport"),
        (b'"stamp":{"dot":["a"],"lamport":1}', "invalid", "stamp.dot"),
        (b'"stamp":7', "invalid", "stamp"),
        (b'"tool_calls":{}', "invalid", "tool_calls"),
        (b'"hidden":["00","00",[],[]]', "invalid", "hidden"),
    ],
)
def test_the_field_at_fault_is_named(inner: bytes, code: str, field: str) -> None:
    error = refused(HEAD + b"," + inner + b"}")

    assert (code, field) == (error.code, error.field)
    assert error.hint


@pytest.mark.parametrize("missing", ["tenant", "session", "role"])
def test_a_missing_field_is_named(missing: str) -> None:
    value: dict[str, Any] = {"tenant": "t", "session": "s", "role": "user"}
    del value[missing]

    assert refused(json.dumps(value).encode()).field == missing
    assert refused(json.dumps(value | {missing: None}).encode()).field == missing


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b" ",
        b"null",
        b"[]",
        b"7",
        b'"x"',
        b"{",
        HEAD,
        HEAD + b"}}",
        HEAD + b"}" + HEAD + b"}",
        b"\xff\xfe{\x00}\x00",
        b"\x00" * 9,
        b"\xef\xbb\xbf",
        b"\xef\xbb\xbf\xef\xbb\xbf" + HEAD + b"}",
        HEAD[:-1] + b'\x00"}',
    ],
)
def test_what_is_no_object_is_refused(raw: bytes) -> None:
    assert refused(raw).code == "not_json"


@pytest.mark.parametrize("field", [b"metadata", b"mood", b"content", b"tenant"])
@pytest.mark.parametrize("levels", [64, 127, 256, 1_100, 10_000, 100_000])
def test_depth_is_refused_in_every_field(field: bytes, levels: int) -> None:
    open_ended = HEAD + b',"' + field + b'":' + b"[" * levels
    for raw in (open_ended, open_ended + b"]" * levels + b"}"):
        assert refused(raw).code == "too_deep" or (
            field == b"tenant" and refused(raw).code == "doubled_key"
        )


def test_depth_at_the_limit_is_kept() -> None:
    levels = JSON_DEPTH_MAX - 1
    nested = b"[" * levels + b"]" * levels

    assert (
        draft_from_json(HEAD + b',"metadata":' + nested + b"}").body.metadata == nested
    )
    assert draft_from_json(HEAD + b',"mood":' + nested + b"}").body.extra == {
        "mood": nested
    }
    part = nested[1:-1]
    content = b',"content":[' + part + b"]}"
    assert draft_from_json(HEAD + content).body.parts == b"[" + part + b"]"


def test_an_input_of_sixteen_mebibytes_is_refused_unread() -> None:
    error = refused(b"[" * (RAW_BYTES_MAX + 1))

    assert (error.code, error.field) == ("too_large", "record")


def test_what_can_only_be_too_large_is_not_searched_for_faults() -> None:
    error = refused(HEAD + b',"metadata":[' + b"1," * (4 << 20) + b"x]}")

    assert (error.code, error.field) == ("too_large", "record")
    doubled = HEAD + b',"metadata":{"a":"%s","a":1}}' % (b"x" * (7 << 20))
    assert refused(doubled).code == "too_large"
    assert refused(HEAD + b" " * (7 << 20) + b"x}").code == "not_json"


def test_nothing_is_written_that_is_no_json() -> None:
    bare = Turn(tenant="t", session="s", role="user")
    for turn, code in (
        (bare.with_(confidence=float("nan")), "number"),
        (bare.with_(content="\ud83d"), "lone_surrogate"),
        (bare.with_(extra={"\ud83d": b"1"}), "lone_surrogate"),
    ):
        with pytest.raises(InvalidInputError) as caught:
            turn_to_json(turn)
        assert caught.value.code == code


@pytest.mark.parametrize("path", corpus_paths(), ids=lambda path: path.name)
def test_every_turn_of_the_corpora_comes_back_as_it_went_in(path: Any) -> None:
    for line in corpus_lines(path)[:400]:
        turn = Turn(
            tenant=line["tenant"],
            session=line["session"],
            role=line["role"],
            turn_id=str(line["turn"]),
            content=line["text"],
            time=line["ts_ms"],
            metadata=Raw(msgspec.json.encode(line["services"])),
        )
        raw = turn_to_json(turn)
        draft = draft_from_json(raw)
        spelled = draft_from_json(json.dumps(json.loads(raw)).encode())

        assert line["text"] == draft.body.content
        assert draft.time == line["ts_ms"]
        assert spelled == draft
