"""Numbers are exact or refused, depth has one limit, empty is not nothing."""

import json
from typing import Final

from hostile.cases import (
    accepted,
    call,
    case,
    contents,
    line,
    raw_line,
    refused,
)
from hostile.contract import OBJECTS, READ, STATE, OpenDoor

from turnstate.schemas.limits import JSON_DEPTH_MAX

INTEGERS: Final = (1234567890123456789, 2**53 + 1, 2**64, -(2**63) - 1, 10**400)


@case(7, READ)
def integers_of_any_size_are_exact(door: OpenDoor) -> None:
    """An integer comes back digit for digit, in every free-form value."""
    numbers = list(INTEGERS)
    arguments = json.dumps({"n": numbers})
    accepted(
        door,
        line(
            [{"type": "data", "n": numbers}],
            metadata={"n": numbers},
            slots={"set": {"n": numbers}},
            tool_calls=[call(arguments) | {"n": numbers}],
            mood=numbers,
        ),
    )
    (turn,) = door.turns()
    assert turn["content"] == [{"type": "data", "n": numbers}]
    assert turn["metadata"] == {"n": numbers}
    assert turn["slots"]["set"] == {"n": numbers}
    assert turn["tool_calls"] == [call(arguments) | {"n": numbers}]
    assert turn["mood"] == numbers


@case(7, STATE)
def integers_in_slots_are_exact_in_the_state(door: OpenDoor) -> None:
    """The state shows the integer that was written."""
    for number in INTEGERS:
        accepted(door, line(slots={"set": {"n": number}}))
        assert door.state()["slots"]["n"] == {"value": number, "siblings": []}


@case(7, READ)
def an_integer_that_few_readers_take_stops_none(door: OpenDoor) -> None:
    """More digits than Python converts: kept, and the session can still be read."""
    digits = b"7" * 5_000
    inner = b'"content":"x","metadata":{"n":%s},"slots":{"set":{"n":%s}}'
    accepted(door, raw_line(inner % (digits, digits)), line("y"))
    turns = door.turns()
    assert contents(turns) == ["x", "y"]
    assert str(turns[0]["metadata"]["n"]).encode() == digits


@case(7)
def a_number_that_is_none_is_refused(door: OpenDoor) -> None:
    """NaN, infinities and what no double holds are refused by name."""
    for token in (b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-1e999"):
        for field, inner in (
            ("metadata.a", b'"metadata":{"a":%s}'),
            ("slots.set.a[0]", b'"slots":{"set":{"a":[%s]}}'),
            ("content[0]", b'"content":[%s]'),
            ("confidence", b'"confidence":%s'),
            ("tool_calls[0].n", b'"tool_calls":[{"function":{"arguments":""},"n":%s}]'),
            ("mood", b'"mood":%s'),
        ):
            refused(door, "number", field, raw_line(inner % token))


@case(7)
def counts_that_are_none_are_refused(door: OpenDoor) -> None:
    """Usage is integers within 2^53; confidence a number; no booleans."""
    for value in (2**53, -(2**53), 2**64):
        refused(door, "invalid", "usage.n", line(usage={"n": value}))
    for amount in (1.5, True, "1", [1]):
        refused(door, "invalid", "usage", line(usage={"n": amount}))
    refused(door, "invalid", "confidence", line(confidence="high"))
    refused(door, "invalid", "if_version", line(if_version=-1))


def nested(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


@case(8, READ)
def depth_within_the_limit_is_kept(door: OpenDoor) -> None:
    """Up to the limit, the turn itself being the first level, depth is kept."""
    for levels in (12, JSON_DEPTH_MAX - 1):
        accepted(door, raw_line(b'"content":"","metadata":' + nested(levels)))
        assert door.turns()[-1]["metadata"] == json.loads(nested(levels))


@case(8, READ)
def depth_beyond_the_limit_is_refused(door: OpenDoor) -> None:
    """Beyond the limit: refused with the reason, and the next turn goes through."""
    for levels in (64, 65, 127, 128, 255, 256, 1_100, 10_000):
        for value in (nested(levels), b'{"a":' * levels + b"1" + b"}" * levels):
            for inner in (
                b'"metadata":%s',
                b'"mood":%s',
                b'"content":[%s]',
                b'"slots":{"set":{"a":%s}}',
            ):
                sent = door.send([raw_line(inner % value)])
                assert [each.code for each in sent.refusals] == ["too_deep"]
    accepted(door, line("on"))
    assert contents(door.turns()) == ["on"]


@case(8, OBJECTS)
def depth_where_none_belongs_is_refused(door: OpenDoor) -> None:
    """Depth is looked at before types are."""
    for levels in (64, 10_000):
        for value in (nested(levels), b'{"a":' * levels + b"1" + b"}" * levels):
            for field in (b"stamp", b"content"):
                sent = door.send([raw_line(b'"%s":%s' % (field, value))])
                assert [each.code for each in sent.refusals] == ["too_deep"]


@case(8, READ)
def depth_in_a_string_is_no_depth(door: OpenDoor) -> None:
    """Brackets in text and in arguments count for nothing."""
    text = "[" * 10_000
    accepted(door, line(text, tool_calls=[call(text)]))
    (turn,) = door.turns()
    assert turn["content"] == turn["tool_calls"][0]["function"]["arguments"] == text


@case(9, READ)
def null_content_stays_null(door: OpenDoor) -> None:
    """A call without text: content is null, not "" nor "None", and it is there."""
    accepted(door, line(None, role="assistant", tool_calls=[call("{}")]))
    (turn,) = door.turns()
    assert turn["content"] is None
    assert "content" in turn


@case(9, READ)
def absent_content_stays_absent(door: OpenDoor) -> None:
    """No content is not null content."""
    accepted(door, line(..., role="assistant", tool_calls=[call("{}")]))
    (turn,) = door.turns()
    assert "content" not in turn


@case(10, READ)
def empty_turns_are_turns(door: OpenDoor) -> None:
    """An empty turn after a tool, white space, no parts: all are kept as they are."""
    accepted(
        door,
        line("{}", role="tool", tool_call_id="c1"),
        line("", role="assistant"),
        line(" \n\t", role="user"),
        line([], role="user"),
        line("", role="tool"),
    )
    assert contents(door.turns()) == ["{}", "", " \n\t", [], ""]
