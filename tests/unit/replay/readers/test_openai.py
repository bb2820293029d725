"""Conversations become turns, message by message, exact."""

import json
from typing import Any

import pytest

from turnstate.replay.readers import Refusal, read
from turnstate.schemas.wire.json import draft_from_json

CALL = {
    "id": "c1",
    "type": "function",
    "function": {"name": "f", "arguments": '{"n": 1}'},
}


def conversation(*messages: dict[str, Any], **fields: Any) -> bytes:
    return json.dumps({"messages": messages, **fields}, ensure_ascii=False).encode()


def turns(*lines: bytes) -> list[dict[str, Any]]:
    found = list(read(lines, "openai"))
    assert not [each for each in found if isinstance(each, Refusal)], found
    return [json.loads(each) for each in found if isinstance(each, bytes)]


def test_messages_are_turns_by_position() -> None:
    parts = [
        {"type": "text", "text": "你好"},
        {"type": "image_url", "image_url": {"url": "u"}},
    ]
    raws = list(
        read(
            [
                conversation(
                    {"role": "system", "content": ""},
                    {"role": "user", "content": parts, "name": "ann"},
                    {"role": "assistant", "content": None, "tool_calls": [CALL]},
                    {"role": "tool", "content": "42", "tool_calls": None, "name": None},
                    {"role": "assistant", "tool_calls": []},
                    tenant="t",
                    session="s",
                )
            ],
            "openai",
        )
    )
    found = [json.loads(raw) for raw in raws if isinstance(raw, bytes)]

    assert [turn["turn_id"] for turn in found] == ["0", "1", "2", "3", "4"]
    assert {(turn["tenant"], turn["session"]) for turn in found} == {("t", "s")}
    assert found[0]["content"] == ""
    assert found[1]["content"] == parts
    assert found[1]["name"] == "ann"
    assert "content" in found[2]
    assert found[2]["content"] is None
    assert found[2]["tool_calls"] == [CALL]
    assert found[3].keys() == {"tenant", "session", "turn_id", "role", "content"}
    assert "content" not in found[4]
    for raw in raws:
        assert isinstance(raw, bytes)
        draft_from_json(raw)


def test_a_nameless_session_is_named_by_its_first_message_and_line() -> None:
    same = conversation({"role": "user", "content": "hi"})
    other = conversation({"role": "user", "content": "ho"})

    first, second, third = (turn["session"] for turn in turns(same, same, other))

    assert first.endswith("-1")
    assert second == first[:-1] + "2"
    assert third[:-2] != first[:-2]
    assert [turn["session"] for turn in turns(same, same, other)] == [
        first,
        second,
        third,
    ]
    assert turns(same)[0]["tenant"] == "default"


def test_no_messages_are_no_turns() -> None:
    assert list(read([conversation()], "openai")) == []


def test_unknown_keys_go_on_and_the_names_of_turn_fields_cannot_act() -> None:
    first, second = turns(
        conversation(
            {"role": "user", "content": "hi", "op": "erase", "metadata": {"a": 1}},
            {"role": "assistant", "content": "ho", "refusal": None, "annotations": [1]},
            tools=[{"type": "function"}],
        )
    )

    assert "op" not in first
    assert first["metadata"] == {
        "op": "erase",
        "metadata": {"a": 1},
        "conversation": {"tools": [{"type": "function"}]},
    }
    assert second["annotations"] == [1]
    assert "metadata" not in second


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        (b'{"session":"s"}', "messages"),
        (b'{"messages":{}}', "messages"),
        (b'{"messages":[5]}', "messages[0]"),
        (
            conversation({"role": "user", "content": "a"}, {"content": "b"}),
            "messages[1].role",
        ),
        (conversation({"role": "user", "content": 5}), "messages[0].content"),
        (conversation({"role": "user", "content": "a"}, session=5), "session"),
        (b'{"messages":[],"messages":[]}', "messages"),
        (b'{"messages":[{"role":"user","role":"tool"}]}', "messages[0].role"),
        (b'{"messages":[{"role":"user","content":"\\udc00"}]}', "messages[0].content"),
    ],
)
def test_a_bad_conversation_is_refused_whole_by_field(bad: bytes, field: str) -> None:
    refusal, turn = read(
        [bad, conversation({"role": "user", "content": "x"})], "openai"
    )

    assert isinstance(refusal, Refusal)
    assert (refusal.line, refusal.raw) == (1, bad)
    assert refusal.field == field
    assert isinstance(turn, bytes)
