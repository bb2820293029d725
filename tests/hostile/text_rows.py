"""Text comes back to the byte, or is refused by the name of its field."""

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
from hostile.contract import READ, STATE, OpenDoor


@case(1, READ)
def half_an_emoji_is_refused_by_field(door: OpenDoor) -> None:
    """Half a surrogate pair is refused, in whichever text and spelling it comes."""
    half = b"\\ud83d"
    for field, inner in (
        ("content", b'"content":"and %s"' % half),
        ("content", b'"content":"%s and"' % b"\\ude00"),
        ("content", b'"content":"and \xed\xa0\xbd"'),
        ("content[0].text", b'"content":[{"type":"text","text":"%s"}]' % half),
        ("metadata.a[1]", b'"metadata":{"a":[1,"%s"]}' % half),
        ("slots.set.a", b'"slots":{"set":{"a":"%s"}}' % half),
        ("turn_id", b'"turn_id":"%s"' % half),
        ("name", b'"name":"%s"' % half),
        ("tags.add[0]", b'"tags":{"add":["%s"]}' % half),
        (
            "tool_calls[0].function.arguments",
            b'"tool_calls":[{"function":{"arguments":"%s"}}]' % half,
        ),
        ("mood", b'"mood":"%s"' % half),
    ):
        refused(door, "lone_surrogate", field, raw_line(inner))
    accepted(door, raw_line(b'"content":"next"'))
    assert contents(door.turns()) == ["next"]


@case(1, READ)
def a_pair_of_escapes_is_one_character(door: OpenDoor) -> None:
    """A whole pair is the character; an escaped backslash before `u` is no escape."""
    accepted(
        door,
        raw_line(b'"turn_id":"1","content":"\\ud83d\\ude00"'),
        raw_line(b'"turn_id":"2","content":"\\\\ud83d"'),
    )
    assert contents(door.turns()) == ["😀", "\\ud83d"]


@case(1, STATE)
def both_spellings_of_an_emoji_have_one_hash(door: OpenDoor) -> None:
    """The escaped and the plain spelling of a turn are copies of one turn."""
    sent = door.send(
        [
            raw_line(b'"turn_id":"1","content":"\\ud83d\\ude00"'),
            line("😀", turn_id="1"),
        ]
    )
    assert sent.counts == (1, 1, 0, 0)


CHINESE: Final = '他说：“查一下 {"city": "北京", "n": [1, 2]} ”，好吗？'  # noqa: RUF001
FULL_WIDTH: Final = "{“city”：“北京”}"  # noqa: RUF001


@case(2, READ)
def chinese_with_nested_json_is_exact(door: OpenDoor) -> None:
    """Arguments and text keep every byte: not escaped, not parsed again."""
    arguments = json.dumps({"q": CHINESE}, ensure_ascii=False)
    accepted(door, line(CHINESE, role="assistant", tool_calls=[call(arguments)]))

    (turn,) = door.turns()
    assert turn["content"] == CHINESE
    assert turn["tool_calls"] == [call(arguments)]


@case(3, READ)
def arguments_that_do_not_parse_are_kept(door: OpenDoor) -> None:
    """Full-width quotes make no JSON: an opaque string, and the turn stays."""
    for number, arguments in enumerate((FULL_WIDTH, "", "{", "\0", "[" * 300)):
        turn_id = f"a{number}"
        accepted(door, line(None, turn_id=turn_id, tool_calls=[call(arguments)]))
        assert door.turns()[-1]["tool_calls"] == [call(arguments)]


@case(3, STATE)
def arguments_that_do_not_parse_are_marked(door: OpenDoor) -> None:
    """A reader is told which calls it cannot run, by their places in the list."""
    calls = [call("{}"), call(FULL_WIDTH, "c2"), call("", "c3")]
    accepted(door, line("x", turn_id="a1", tool_calls=calls), line("y", turn_id="a2"))
    marked, plain = door.turns()
    assert marked["unparsable_arguments"] == [1, 2]
    assert "unparsable_arguments" not in plain


@case(4, READ)
def backslashes_do_not_grow(door: OpenDoor) -> None:
    """Saved and loaded ten times, the text has the same bytes."""
    text = 'C:\\\\\\"x\\" \\u0041 \\\\\\'
    for number in range(10):
        accepted(door, line(text, turn_id=str(number), metadata={"m": text}))
        turn = door.turns()[-1]
        assert turn["content"] == turn["metadata"]["m"] == text
        text = turn["content"]


@case(5, READ)
def nul_in_text_is_exact(door: OpenDoor) -> None:
    """A NUL in text, metadata, slots and arguments is a character like others."""
    accepted(
        door,
        line(
            "a\0b",
            metadata={"k\0": "\0"},
            slots={"set": {"s": "\0"}},
            tool_calls=[call("\0")],
        ),
    )
    (turn,) = door.turns()
    assert turn["content"] == "a\0b"
    assert turn["metadata"] == {"k\0": "\0"}
    assert turn["slots"]["set"] == {"s": "\0"}
    assert turn["tool_calls"] == [call("\0")]


@case(5)
def nul_in_an_id_is_refused_by_field(door: OpenDoor) -> None:
    """An id with a NUL is no key; the field is named."""
    for field in (
        "tenant",
        "session",
        "turn_id",
        "branch",
        "user",
        "role",
        "continues",
    ):
        refused(door, "invalid", field, line(**{field: "a\0b"}))
    refused(door, "invalid", "parent", line(parent=["a\0b"]))
    refused(door, "invalid", "slots.set", line(slots={"set": {"a\0b": 1}}))
    refused(door, "invalid", "tags.add", line(tags={"add": ["a\0b"]}))
    refused(door, "invalid", "usage", line(usage={"a\0b": 1}))


@case(6, READ)
def nothing_is_normalised(door: OpenDoor) -> None:
    """NFC and NFD stay two texts, two ids, two sessions; joiners stay."""
    family = "👨‍👩‍👧‍👦 👋🏽"
    accepted(
        door,
        line("é", turn_id="é"),
        line("e\u0301", turn_id="e\u0301"),
        line(family, turn_id=family),
        line("x", session="é"),
        line("y", session="e\u0301"),
    )
    turns = door.turns()
    assert contents(turns) == ["é", "e\u0301", family]
    assert [turn["turn_id"] for turn in turns] == ["é", "e\u0301", family]
    assert contents(door.turns("é")) == ["x"]
    assert contents(door.turns("e\u0301")) == ["y"]
