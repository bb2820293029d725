"""The stateless fallback: a pure function of the request, and marked as one."""

import json
from typing import Any

import msgspec
import pytest

from support.commands import SHAPES
from turnstate.agents.fallback import REQUEST_BYTES_MAX, fallback_state
from turnstate.schemas.dialogue.phases import default_graph
from turnstate.schemas.errors import InvalidInputError


def _state(request: Any) -> dict[str, Any]:
    raw = request if isinstance(request, bytes) else json.dumps(request).encode()
    answer = fallback_state(raw, default_graph())
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(answer))
    return found


CHAT = {
    "messages": [
        {"role": "system", "content": "You book tables."},
        {"role": "user", "content": "北京, for two"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "book", "arguments": "{}"},
                }
            ],
        },
    ]
}


def test_the_messages_of_a_chat_are_its_turns() -> None:
    state = _state(CHAT)
    assert state["fallback"] is True
    assert state["turns"] == CHAT["messages"]
    assert state["turn_count"] == 3
    assert [call["name"] for call in state["open_tool_calls"]] == ["book"]
    assert state["version"] is state["clock"] is state["digest"] is None
    assert state["refused"] == []


def test_it_has_every_key_that_a_state_has() -> None:
    assert set(SHAPES["state acme a"]) <= set(_state(CHAT))


def test_equal_requests_have_equal_answers() -> None:
    assert _state(CHAT) == _state(CHAT)


def test_turns_bring_slots_tags_and_usage() -> None:
    turn = {"tenant": "acme", "session": "s", "role": "user", "turn_id": "t1"}
    turns = [
        turn | {"slots": {"set": {"people": 2, "area": "north"}}, "usage": {"n": 3}},
        turn | {"turn_id": "t2", "slots": {"delete": ["area"]}, "usage": {"n": 4}},
        turn | {"turn_id": "t3", "tags": {"add": ["vip"]}},
    ]
    state = _state({"turns": turns})
    assert (state["tenant"], state["session"]) == ("acme", "s")
    assert state["slots"] == {"people": {"value": 2, "siblings": []}}
    assert state["tags"] == ["vip"]
    assert state["usage"] == {"n": 7}


def test_one_turn_is_a_request() -> None:
    turn = {"tenant": "acme", "session": "s", "role": "user", "content": "hi"}
    state = _state(turn)
    assert (state["turn_count"], state["turns"]) == (1, [turn])


def test_only_the_last_turns_are_shown_and_all_are_counted() -> None:
    messages = [{"role": "user", "content": str(at)} for at in range(100)]
    state = _state({"messages": messages})
    assert state["turn_count"] == 100
    assert state["turns"] == messages[-len(state["turns"]) :]
    assert len(state["turns"]) == 8


def test_a_bad_message_is_named_and_the_rest_goes_on() -> None:
    messages = [
        {"role": "user", "content": "hi"},
        "no message",
        {"content": "nobody says this"},
        {"role": "user", "op": "unknown"},
        {"role": "user", "content": "bye"},
    ]
    state = _state({"tenant": "acme", "session": "s", "messages": messages})
    assert [each["place"] for each in state["refused"]] == [
        "messages[1]",
        "messages[2]",
        "messages[3]",
    ]
    assert [turn["content"] for turn in state["turns"]] == ["hi", "bye"]


def test_a_turn_of_another_session_is_refused() -> None:
    turns = [
        {"tenant": "acme", "session": "s", "role": "user"},
        {"tenant": "acme", "session": "t", "role": "user"},
    ]
    state = _state({"turns": turns})
    assert [each["place"] for each in state["refused"]] == ["turns[1]"]


def test_nothing_was_said() -> None:
    state = _state({"messages": []})
    assert (state["turn_count"], state["turns"], state["phase"]) == (0, [], "open")


def test_an_empty_message_gets_no_stray_comma() -> None:
    state = _state(b'{"messages": [{}]}')
    assert [each["field"] for each in state["refused"]] == ["role"]


@pytest.mark.parametrize(
    "request_",
    [
        b"",
        b"null",
        b"[]",
        b'"text"',
        b'{"messages": 3}',
        b'{"messages": [], "turns": []}',
        b'{"messages": [], "messages": []}',
        b'{"messages": [' + b"[" * 70 + b"]" * 70 + b"]}",
        b" " * (REQUEST_BYTES_MAX + 1),
        b'{"messages": [{"role": "user", "content": 1e999}]}',
    ],
)
def test_what_is_no_request_is_refused(request_: bytes) -> None:
    with pytest.raises(InvalidInputError):
        fallback_state(request_, default_graph())
