"""Size, damage and odd spelling: stored or refused, and the rest goes on."""

import json

from hostile.cases import (
    accepted,
    case,
    contents,
    line,
    op,
    raw_line,
    refused,
)
from hostile.contract import OBJECTS, READ, REOPEN, SEAL, STATE, OpenDoor

from turnstate.schemas.limits import RECORD_BYTES_MAX


@case(28, READ)
def a_turn_of_any_size_is_stored_or_refused(door: OpenDoor) -> None:
    """Up to the limit stored, beyond it refused by field; the next goes through."""
    for size in (RECORD_BYTES_MAX - 100_001, RECORD_BYTES_MAX - 64):
        accepted(door, line("x" * size, turn_id=str(size)))
        assert door.turns()[-1]["content"] == "x" * size
    refused(
        door,
        "too_large",
        "content",
        line("x" * RECORD_BYTES_MAX),
        line("x" * (RECORD_BYTES_MAX + 1)),
        line([{"type": "image", "data": "QUJD" * (3 << 20)}]),
    )
    refused(door, "too_large", "record", line(metadata="x" * RECORD_BYTES_MAX))
    accepted(door, line("on", turn_id="on"))
    assert door.turns()[-1]["content"] == "on"


@case(28)
def a_turn_beyond_sixteen_mebibytes_is_refused_unread(door: OpenDoor) -> None:
    """Too long even to be looked at: refused, the rest goes on."""
    sent = door.send([raw_line(b'"content":"%s"' % (b"x" * (16 << 20))), line("on")])
    assert (sent.accepted, [each.code for each in sent.refusals]) == (1, ["too_large"])


@case(29, STATE, REOPEN, SEAL)
def the_first_write_after_a_change_of_form_is_there(door: OpenDoor) -> None:
    """Sealed between two writes, in every way: each write is there after a reopen."""
    said: list[str] = []
    for n in range(6):
        said.append(str(n))
        accepted(door, line(str(n), turn_id=f"u{n}", slots={"set": {"n": n}}))
        if n % 2:
            door.seal()
        if n % 3 == 2:
            door.reopen()
        assert contents(door.turns()) == said
        assert door.state()["slots"]["n"]["value"] == n


@case(0, READ)
def a_doubled_key_is_refused_at_every_level(door: OpenDoor) -> None:
    """Which of two values is meant cannot be told: neither is taken."""
    for field, inner in (
        ("content", b'"content":"a","content":"b"'),
        ("content", b'"content":"a","c\\u006fntent":"a"'),
        ("metadata.a", b'"metadata":{"a":1,"a":1}'),
        ("metadata.a[0].b", b'"metadata":{"a":[{"b":1,"b":2}]}'),
        ("slots.set.a", b'"slots":{"set":{"a":1,"a":2}}'),
        ("usage.n", b'"usage":{"n":1,"n":1}'),
        ("mood.a", b'"mood":{"a":1,"a":1}'),
    ):
        refused(door, "doubled_key", field, raw_line(inner))
    refused(door, "doubled_key", "tenant", b'{"tenant":"t",' + raw_line(b'"a":1')[1:])
    assert door.turns() == []


@case(0, OBJECTS)
def an_object_given_twice_is_refused(door: OpenDoor) -> None:
    """Two empty objects are two, too."""
    inner = b'"slots":{"set":{},"set":{}}'
    refused(door, "doubled_key", "slots.set", raw_line(inner))


@case(0, READ)
def a_line_that_is_no_turn_does_not_stop_the_rest(door: OpenDoor) -> None:
    """Between good lines stands garbage: each is refused, the good ones stay."""
    garbage = [
        b"{",
        b"[]",
        b"null",
        b"7",
        b'"x"',
        b"\xff\xfe{}",
        b"\x00" * 50,
        b"{'tenant':'t'}",
        b"tenant,session",
        line("x")[:-1],
        line("x") + b"}",
        line("x") + line("y"),
        b'\xef\xbb\xbf\xef\xbb\xbf{"tenant":"t"}',
    ]
    lines = [line("first"), *garbage, line("last")]
    sent = door.send(lines)
    assert sent.accepted == 2
    assert {each.code for each in sent.refusals} == {"not_json"}
    assert sorted(each.raw or b"" for each in sent.refusals) == sorted(garbage)
    assert contents(door.turns()) == ["first", "last"]


@case(0, READ)
def bytes_that_are_no_utf8_are_refused(door: OpenDoor) -> None:
    """Latin-1, overlong forms and cut letters are refused by field."""
    for bad in (b"\xe9", b"\xc0\xaf", b"\xc3", b"\xf4\x90\x80\x80", b"\xff"):
        refused(door, "not_utf8", "content", raw_line(b'"content":"a%s"' % bad))
        refused(
            door, "not_utf8", "metadata.a", raw_line(b'"metadata":{"a":"%s"}' % bad)
        )
        refused(door, "not_utf8", "mood", raw_line(b'"mood":"%s"' % bad))


@case(0, READ)
def any_spelling_is_let_in(door: OpenDoor) -> None:
    """Order of keys, white space, escapes and nulls of a line say nothing."""
    turn = json.loads(line("é", turn_id="u1", metadata={"b": 1, "a": [1.0, 1e2]}))
    nulls = dict.fromkeys(("intent", "slots", "stamp", "op", "parts_of_the_future"))
    for number, spelled in enumerate(
        (
            json.dumps(turn),
            json.dumps(dict(reversed(turn.items())), separators=(" ,\t", " : ")),
            "\ufeff" + json.dumps(nulls | turn, ensure_ascii=False) + "\r",
        )
    ):
        accepted(door, spelled.replace('"u1"', f'"u{number}"').encode())
    turns = door.turns()
    assert contents(turns) == ["é"] * 3
    assert [turn["metadata"] for turn in turns] == [{"b": 1, "a": [1.0, 100.0]}] * 3


@case(0, READ)
def unknown_fields_survive(door: OpenDoor) -> None:
    """A field of a newer version is kept."""
    accepted(door, line(mood={"b": 1, "a": "é"}, extra={"a": "YQ=="}))
    (turn,) = door.turns()
    assert turn["mood"] == {"b": 1, "a": "é"}
    assert turn["extra"] == {"a": "YQ=="}


@case(0, OBJECTS)
def unknown_names_inside_are_refused(door: OpenDoor) -> None:
    """Inside a field there is no place to keep what is not known."""
    refused(door, "unknown_field", "slots.sett", line(slots={"sett": {"a": 1}}))
    refused(door, "unknown_field", "stamp.vector", line(stamp={"vector": {}}))


@case(0)
def an_operation_that_says_too_little_is_refused(door: OpenDoor) -> None:
    """An unknown op, or one that lacks what it needs, is refused by field."""
    refused(door, "unknown_op", "op", op("merge"), op(""), op("Edit"))
    refused(door, "invalid", "target", op("edit", content="x"), op("redact"))
    refused(door, "invalid", "content", op("edit", target="u1"))
    refused(door, "invalid", "to", op("rollback"), op("rollback", to="u1"))
    refused(door, "invalid", "branch", op("fork"), op("fork", branch="main"))
    refused(
        door, "invalid", "usage", op("edit", target="u", content="", usage={"n": 1})
    )
    refused(door, "invalid", "target", line(target="u1"))
    refused(door, "invalid", "tool_calls[0].function", line(tool_calls=[{}]))
    refused(door, "invalid", "hidden", line(hidden=["00", "00", [], []]))


@case(0, READ)
def a_mark_in_the_middle_is_no_garbage(door: OpenDoor) -> None:
    """Files put together leave byte order marks between lines: they are skipped."""
    accepted(door, line("a"), b"\xef\xbb\xbf" + line("b"), line("c"))
    assert contents(door.turns()) == ["a", "b", "c"]
