"""The cases of every row of inputs that broke other systems, and a few more.

A case is a function: it builds its lines, sends them through a door that knows
nothing of them, and asserts what is right. Its docstring is its title.
"""

import itertools
import json
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from hostile.doors import READ, REOPEN, SEAL, STATE, OpenDoor, Refusal, Sent
from turnstate.schemas.limits import (
    COUNTER_MAX,
    ID_BYTES_MAX,
    JSON_DEPTH_MAX,
    RECORD_BYTES_MAX,
)


class Case(NamedTuple):
    """One case of one row.

    Attributes:
        row: The row, 1 to 30; 0 = one of our own.
        name: The function's name.
        title: What is right, in a sentence.
        needs: What a door must be able to do.
        play: Sends and asserts.
    """

    row: int
    name: str
    title: str
    needs: frozenset[str]
    play: Callable[[OpenDoor], None]


CASES: Final[list[Case]] = []


def case(row: int, *needs: str) -> Callable[[Callable[[OpenDoor], None]], Any]:
    """Put a function into the table."""

    def put(play: Callable[[OpenDoor], None]) -> Callable[[OpenDoor], None]:
        title = (play.__doc__ or "").strip()
        CASES.append(Case(row, play.__name__, title, frozenset(needs), play))
        return play

    return put


def line(content: Any = "hi", /, **fields: Any) -> bytes:
    """Return a turn as JSON; `content` is left out where it is `...`."""
    turn: dict[str, Any] = {"tenant": "t", "session": "s", "role": "user"}
    if content is not ...:
        turn["content"] = content
    return json.dumps(turn | fields, ensure_ascii=False).encode(
        "utf-8", "surrogatepass"
    )


def raw_line(inner: bytes) -> bytes:
    """Return a turn whose last fields are the given bytes."""
    return b'{"tenant":"t","session":"s","role":"user",' + inner + b"}"


def op(name: str, **fields: Any) -> bytes:
    """Return an operation as JSON."""
    return line(..., role="system", op=name, **fields)


def call(arguments: str, call_id: str = "c1") -> dict[str, Any]:
    """Return a tool call."""
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": "search", "arguments": arguments},
    }


def stamp(replica: str, counter: int, lamport: int, **seen: int) -> dict[str, Any]:
    """Return the stamp of a replica with a clock of its own."""
    return {"dot": [replica, counter], "lamport": lamport, "seen": seen}


def accepted(door: OpenDoor, *lines: bytes) -> Sent:
    """Send lines that are all let in."""
    sent = door.send(lines)
    assert sent.counts == (len(lines), 0, 0, 0), sent
    return sent


def refused(door: OpenDoor, code: str, field: str | None, *lines: bytes) -> None:
    """Send lines that are all refused for one reason; good ones still go through."""
    sent = door.send(lines)
    assert sent.counts == (0, 0, 0, len(lines)), sent
    assert {(each.code, each.field) for each in sent.refusals} == {(code, field)}


def contents(turns: Iterable[dict[str, Any]]) -> list[Any]:
    """Return what turns say."""
    return [turn.get("content") for turn in turns]


# -- text ------------------------------------------------------------------


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


CHINESE = '他说：“查一下 {"city": "北京", "n": [1, 2]} ”，好吗？'


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
    for number, arguments in enumerate(("{“city”：“北京”}", "", "{", "\0", "[" * 300)):
        turn_id = f"a{number}"
        accepted(door, line(None, turn_id=turn_id, tool_calls=[call(arguments)]))
        assert door.turns()[-1]["tool_calls"] == [call(arguments)]


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


# -- numbers, depth, shape ----------------------------------------------------

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
    for value in (1.5, True, "1", [1]):
        refused(door, "invalid", "usage", line(usage={"n": value}))
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
                b'"content":%s',
                b'"slots":{"set":{"a":%s}}',
                b'"stamp":%s',
            ):
                sent = door.send([raw_line(inner % value)])
                assert [each.code for each in sent.refusals] == ["too_deep"]
    accepted(door, line("on"))
    assert contents(door.turns()) == ["on"]


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


# -- tools -------------------------------------------------------------------


@case(11, STATE, REOPEN)
def a_call_without_result_is_open(door: OpenDoor) -> None:
    """Two calls, one result, a crash, the user again: call 2 is open."""
    accepted(
        door,
        line("find", turn_id="u1"),
        line(None, role="assistant", tool_calls=[call("{}"), call("{}", "c2")]),
        line("found", role="tool", tool_call_id="c1"),
    )
    door.reopen()
    accepted(door, line("hello?", turn_id="u2"))

    state = door.state()
    assert [each["id"] for each in state["open_tool_calls"]] == ["c2"]
    assert contents(door.turns()) == ["find", None, "found", "hello?"]


@case(11, STATE)
def a_tool_turn_needs_no_call_id(door: OpenDoor) -> None:
    """A result without `tool_call_id`, or of a call never made, is a turn."""
    accepted(
        door, line("x", role="tool"), line("y", role="tool", tool_call_id="nobody's")
    )
    assert door.state()["open_tool_calls"] == []


# -- ids, time, order -----------------------------------------------------------


@case(13, STATE, REOPEN)
def the_same_turn_twice_is_one_turn(door: OpenDoor) -> None:
    """One id, two request ids, in one batch and later: one turn, one answer."""
    first = line("pay", turn_id="u1", request_id="r1", usage={"n": 5})
    again = line("pay", turn_id="u1", request_id="r2", usage={"n": 5}, time=7)

    assert door.send([first, again]).counts == (1, 1, 0, 0)
    door.reopen()
    assert door.send([again, first]).counts == (0, 2, 0, 0)
    state = door.state()
    assert (state["version"], state["turn_count"], state["usage"]) == (1, 1, {"n": 5})


@case(14, STATE, REOPEN)
def the_same_id_with_other_text_is_a_conflict(door: OpenDoor) -> None:
    """The first stands; the other is refused, with its bytes kept to be seen."""
    other = line("B", turn_id="u1")
    assert door.send([line("A", turn_id="u1"), other]).refusals == [
        Refusal("conflict", "turn_id", other)
    ]
    door.reopen()
    refused(door, "conflict", "turn_id", other)
    assert contents(door.turns()) == ["A"]
    assert [letter.raw for letter in door.letters()] == [other, other]


@case(15, STATE)
def turns_of_one_second_keep_the_order_of_the_log(door: OpenDoor) -> None:
    """Time never orders: equal, falling or absent, the log does."""
    times: tuple[Any, ...] = (5, 5, 4, None, "1970-01-01T00:00:00Z", -9, 5)
    accepted(door, *[line(str(n), time=time) for n, time in enumerate(times)])
    turns = door.turns()
    assert contents(turns) == [str(n) for n in range(len(times))]
    assert [turn.get("time") for turn in turns] == list(times)


@case(16, STATE)
def two_hundred_turns_with_one_time_are_two_hundred(door: OpenDoor) -> None:
    """One batch, one timestamp, no ids: nothing falls together."""
    accepted(door, *[line("same", time=1_700_000_000_000) for _ in range(200)])
    assert door.state()["turn_count"] == 200
    assert len(door.turns()) == 200


def told_out_of_order() -> list[bytes]:
    """Return turns 1 to 7 of a replica that has a clock of its own."""
    return [
        line(
            str(n),
            turn_id=f"u{n}",
            stamp=stamp("eu", n, n, **({"eu": n - 1} if n > 1 else {})),
            parent=f"@eu:{n - 1}" if n > 1 else None,
        )
        for n in range(1, 8)
    ]


@case(17, STATE, REOPEN)
def a_gap_shows_until_it_is_filled(door: OpenDoor) -> None:
    """Turn 7 before 5 and 6: it waits in sight, then all is in order."""
    lines = told_out_of_order()
    accepted(door, *lines[:4], lines[6])
    state = door.state()
    assert contents(door.turns()) == ["1", "2", "3", "4"]
    assert [gap for gap in state["gaps"] if gap.get("turn") == "u7"]
    assert [gap for gap in state["gaps"] if gap.get("replica") == "eu"]
    assert state["turn_count"] == 5

    door.reopen()
    accepted(door, lines[5])
    assert door.state()["gaps"] != []
    accepted(door, lines[4])
    assert door.state()["gaps"] == []
    assert contents(door.turns()) == [str(n) for n in range(1, 8)]


@case(17, STATE)
def any_order_of_arrival_gives_one_state(door: OpenDoor) -> None:
    """Older turns after newer ones, in any order: the same turns, the same digest."""
    lines = told_out_of_order()
    seen: set[str] = set()
    for number, order in enumerate(
        itertools.islice(itertools.permutations(lines), 0, 5_040, 997)
    ):
        session = f"s{number}"
        accepted(
            door, *[each.replace(b'"s"', f'"{session}"'.encode()) for each in order]
        )
        assert contents(door.turns(session)) == [str(n) for n in range(1, 8)]
        seen.add(door.state(session)["digest"])
    assert len(seen) == 1


@case(17, STATE)
def an_unstamped_turn_waits_for_its_parent(door: OpenDoor) -> None:
    """A parent id not yet known: durable, counted, shown in gaps, then attached."""
    accepted(door, line("root", turn_id="u1"), line("late", turn_id="u3", parent="u2"))
    state = door.state()
    assert contents(door.turns()) == ["root"]
    assert (state["version"], state["turn_count"], len(state["gaps"])) == (2, 2, 1)

    accepted(door, line("between", turn_id="u2", parent="u1"))
    assert contents(door.turns()) == ["root", "between", "late"]
    assert door.state()["gaps"] == []


def tree() -> list[bytes]:
    """Return a question, three abandoned answers and the last one."""
    return [
        line("q", turn_id="u1", stamp=stamp("eu", 1, 1), parent=None),
        *[
            line(
                f"answer {n}",
                role="assistant",
                turn_id=f"a{n}",
                stamp=stamp("eu", n + 1, n + 1, eu=n),
                parent="@eu:1",
            )
            for n in range(1, 5)
        ],
    ]


@case(18, STATE)
def children_before_parents_give_the_same_tree(door: OpenDoor) -> None:
    """Three abandoned regenerations and a last one, in any order: one tree."""
    digests: set[str] = set()
    for number, order in enumerate(itertools.permutations(tree())):
        if number % 17:
            continue
        session = f"s{number}"
        accepted(
            door, *[each.replace(b'"s"', f'"{session}"'.encode()) for each in order]
        )
        state = door.state(session)
        assert contents(door.turns(session)) == ["q", "answer 4"]
        assert (state["turn_count"], state["branches"]) == (5, {"main": "a4"})
        digests.add(state["digest"])
    assert len(digests) == 1


@case(18, STATE)
def regenerations_by_id_abandon_what_they_have_seen(door: OpenDoor) -> None:
    """A plain producer regenerates by naming the parent: the last answer shows."""
    accepted(door, line("q", turn_id="u1"))
    for n in range(1, 5):
        accepted(door, line(f"answer {n}", role="assistant", parent="u1"))
    assert contents(door.turns()) == ["q", "answer 4"]
    accepted(door, line("thanks"))
    assert contents(door.turns()) == ["q", "answer 4", "thanks"]
    assert door.state()["turn_count"] == 6


@case(19, STATE)
def a_result_continues_the_same_message(door: OpenDoor) -> None:
    """`continues` joins two records to one assistant turn of two parts."""
    accepted(
        door,
        line("q", turn_id="u1"),
        line("let me see", role="assistant", turn_id="a1", tool_calls=[call("{}")]),
        line("it is 5", role="assistant", turn_id="a2", continues="a1"),
        line("thanks", turn_id="u2"),
    )
    turns = door.turns()
    assert contents(turns) == ["q", "let me see", "thanks"]
    assert contents(turns[1]["parts"]) == ["it is 5"]
    assert door.state()["turn_count"] == 3


@case(20, STATE)
def branches_do_not_see_each_other(door: OpenDoor) -> None:
    """Fork at 3, write on both sides, read both, edit 3 again: no write leaks."""
    accepted(
        door,
        *[line(str(n), turn_id=f"u{n}", slots={"set": {"n": n}}) for n in range(1, 4)],
        op("fork", branch="b", target="u3"),
        line("main 4", turn_id="m4", slots={"set": {"n": "main", "m": 1}}),
        line("b 4", turn_id="b4", branch="b", slots={"set": {"n": "b", "x": 1}}),
    )

    def read(branch: str) -> tuple[list[Any], dict[str, Any]]:
        slots = door.state(branch=branch)["slots"]
        assert all(slot["siblings"] == [] for slot in slots.values())
        shown = {name: slot["value"] for name, slot in slots.items()}
        return contents(door.turns(branch=branch)), shown

    assert read("main") == (["1", "2", "3", "main 4"], {"n": "main", "m": 1})
    assert read("b") == (["1", "2", "3", "b 4"], {"n": "b", "x": 1})
    accepted(door, op("edit", target="u3", content="three"))
    assert read("main") == (["1", "2", "three", "main 4"], {"n": "main", "m": 1})
    assert read("b") == (["1", "2", "three", "b 4"], {"n": "b", "x": 1})
    refused(door, "branch_exists", "branch", op("fork", branch="b", target="u1"))


@case(21, STATE)
def a_stale_writer_is_refused_where_it_asks(door: OpenDoor) -> None:
    """Two workers resume from one version: the second is told, nothing is lost."""
    accepted(door, line("start"), line("one", if_version=1))
    refused(door, "version_conflict", "if_version", line("two", if_version=1))
    accepted(door, line("two", if_version=2))
    assert contents(door.turns()) == ["start", "one", "two"]


@case(21, STATE)
def concurrent_writers_both_stay(door: OpenDoor) -> None:
    """Two replicas go on from one parent unseen: both turns, both values, then joined."""
    accepted(
        door,
        line("start", stamp=stamp("eu", 1, 1), parent=None),
        line(
            "one",
            stamp=stamp("eu", 2, 2, eu=1),
            parent="@eu:1",
            slots={"set": {"n": 1}},
        ),
        line(
            "two",
            stamp=stamp("us", 1, 2, eu=1),
            parent="@eu:1",
            slots={"set": {"n": 2}},
        ),
    )
    assert contents(door.turns()) == ["start", "one", "two"]
    assert door.state()["slots"] == {"n": {"value": 2, "siblings": [1]}}
    accepted(door, line("both seen", slots={"set": {"n": 3}}))
    assert door.state()["slots"] == {"n": {"value": 3, "siblings": []}}
    assert contents(door.turns()) == ["start", "one", "two", "both seen"]


# -- names -------------------------------------------------------------------

PAIRS: Final = tuple(
    pair
    for sign in ":/.*{}%|\\ "
    for pair in (
        (f"a{sign}b", "c"),
        ("a", f"b{sign}c"),
        (f"a{sign}", "c"),
        ("a", f"{sign}c"),
    )
) + (("t*", "s*"), ("t", "*"), ("*", "s"), ("a", "bc"), ("ab", "c"), ("é", "s"))


@case(22, READ)
def no_two_names_are_one_key(door: OpenDoor) -> None:
    """Whatever signs tenant and session hold, each pair is a session of its own."""
    accepted(door, *[line(f"{t}|{s}", tenant=t, session=s) for t, s in PAIRS])
    for tenant, session in PAIRS:
        assert contents(door.turns(session, tenant=tenant)) == [f"{tenant}|{session}"]


@case(22)
def an_empty_name_is_refused(door: OpenDoor) -> None:
    """An empty tenant or session is no name."""
    for field in ("tenant", "session"):
        for value in ("", None, 7, [], {}):
            refused(door, "invalid", field, line(**{field: value}))


@case(22, STATE)
def erasing_one_name_leaves_the_other(door: OpenDoor) -> None:
    """`a:b` + `c` goes, `a` + `b:c` stays; `*` is a letter."""
    names = [("a:b", "c"), ("a", "b:c"), ("a*", "c"), ("a", "*"), ("a", "c")]
    accepted(door, *[line("x", tenant=t, session=s) for t, s in names])
    accepted(
        door,
        op("erase", tenant="a:b", session="c"),
        op("erase", tenant="a", session="*"),
    )
    gone = [("a:b", "c"), ("a", "*")]
    for tenant, session in names:
        left = [] if (tenant, session) in gone else ["x"]
        assert contents(door.turns(session, tenant=tenant)) == left


@case(23, READ)
def what_can_be_written_can_be_read(door: OpenDoor) -> None:
    """Slashes, dots, signs, white space and line ends are letters of an id."""
    ids = (
        "a/b",
        "..",
        "../../etc",
        "#",
        "?x=1&y",
        "a b",
        " ",
        "%2F",
        "a%2Fb",
        "\n",
        "\t",
    )
    accepted(door, *[line(name, session=name, turn_id=name) for name in ids])
    for name in ids:
        (turn,) = door.turns(name)
        assert turn["content"] == turn["turn_id"] == name
    assert door.turns("a") == door.turns("") == []


@case(23)
def an_id_of_three_thousand_letters_is_refused(door: OpenDoor) -> None:
    """Ids have 1 to 512 bytes, as UTF-8; the field is named."""
    accepted(door, line(session="x" * ID_BYTES_MAX, turn_id="é" * (ID_BYTES_MAX // 2)))
    for field in ("tenant", "session", "turn_id"):
        for value in ("x" * 3_000, "x" * (ID_BYTES_MAX + 1), "é" * 257):
            refused(door, "invalid", field, line(**{field: value}))


# -- the end of a session ---------------------------------------------------------


@case(24, STATE, REOPEN)
def an_erased_session_begins_anew(door: OpenDoor) -> None:
    """Erased: nothing of it is read; a second run does nothing; others are whole."""
    accepted(
        door,
        *[line(f"secret {n}", turn_id=f"u{n}") for n in range(100)],
        op("fork", branch="b", target="u3"),
        line("secret fork", branch="b"),
        line("other", session="s2"),
    )
    accepted(door, op("erase", incarnation=1))
    assert door.turns() == []
    door.reopen()
    assert door.send([op("erase", incarnation=1)]).counts == (0, 1, 0, 0)
    accepted(door, line("new", turn_id="u1"))

    state = door.state()
    assert contents(door.turns()) == ["new"]
    assert (state["incarnation"], state["version"], state["turn_count"]) == (2, 1, 1)
    assert state["branches"] == {"main": "u1"}
    assert contents(door.turns("s2")) == ["other"]


@case(25, STATE)
def a_late_turn_of_an_erased_life_is_dropped(door: OpenDoor) -> None:
    """Stamped before the erase, come after it: no ghost; ahead of it: refused."""
    old = line("ghost", stamp=stamp("eu", 2, 2, eu=1), parent="@eu:1")
    accepted(door, line("gone", stamp=stamp("eu", 1, 1), parent=None), op("erase"))

    assert door.send([old]).counts == (0, 0, 1, 0)
    assert door.turns() == []
    accepted(door, line("new"))
    assert door.send([old]).counts == (0, 0, 1, 0)
    assert contents(door.turns()) == ["new"]
    ahead = line("x", stamp=stamp("eu", 1, 1) | {"incarnation": 3}, parent=None)
    refused(door, "incarnation_ahead", "stamp.incarnation", ahead)


@case(27, STATE)
def a_turn_after_the_end_is_kept(door: OpenDoor) -> None:
    """The session ended and another goes on: the answer says so, nothing is lost."""
    accepted(door, line("bye"), op("end", to="s2"), line("late", role="assistant"))
    assert door.state()["ended"] == {"branch": "main", "to": "s2"}
    assert contents(door.turns()) == ["bye", "late"]
    accepted(door, line("again", session="s2"), line("back"))
    assert contents(door.turns()) == ["bye", "late", "back"]


# -- size, damage -----------------------------------------------------------------


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


# -- more of each kind -------------------------------------------------------------


@case(0, READ)
def a_doubled_key_is_refused_at_every_level(door: OpenDoor) -> None:
    """Which of two values is meant cannot be told: neither is taken."""
    for field, inner in (
        ("content", b'"content":"a","content":"b"'),
        ("content", b'"content":"a","c\\u006fntent":"a"'),
        ("metadata.a", b'"metadata":{"a":1,"a":1}'),
        ("metadata.a[0].b", b'"metadata":{"a":[{"b":1,"b":2}]}'),
        ("slots.set.a", b'"slots":{"set":{"a":1,"a":2}}'),
        ("slots.set", b'"slots":{"set":{},"set":{}}'),
        ("usage.n", b'"usage":{"n":1,"n":1}'),
        ("mood.a", b'"mood":{"a":1,"a":1}'),
    ):
        refused(door, "doubled_key", field, raw_line(inner))
    refused(door, "doubled_key", "tenant", b'{"tenant":"t",' + raw_line(b'"a":1')[1:])
    assert door.turns() == []


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
    """A field of a newer version is kept; an unknown name inside is refused."""
    accepted(door, line(mood={"b": 1, "a": "é"}, extra={"a": "YQ=="}))
    (turn,) = door.turns()
    assert turn["mood"] == {"b": 1, "a": "é"}
    assert turn["extra"] == {"a": "YQ=="}
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


@case(0)
def a_clock_that_cannot_be_is_refused(door: OpenDoor) -> None:
    """A stamp that names itself, goes back, or is beyond 2^53, is refused by field."""
    for field, given in (
        ("stamp.seen", stamp("eu", 3, 3, eu=3)),
        ("stamp.seen.us", stamp("eu", 1, 1, us=-1)),
        ("stamp.dot[1]", stamp("eu", 0, 1)),
        ("stamp.dot[1]", stamp("eu", COUNTER_MAX + 1, 1)),
        ("stamp.lamport", stamp("eu", 1, COUNTER_MAX + 1)),
        ("stamp.dot[0]", stamp("", 1, 1)),
        ("stamp.incarnation", stamp("eu", 1, 1) | {"incarnation": 0}),
        ("stamp.lamport", {"dot": ["eu", 1]}),
    ):
        refused(door, "invalid", field, line(stamp=given, parent=None))
    good = stamp("eu", 1, 1)
    refused(door, "invalid", "parent", line(stamp=good), line(stamp=good, parent="u1"))
    refused(door, "invalid", "parent", line(stamp=good, parent="@eu:1"))


@case(0, STATE)
def the_logs_own_name_is_not_for_producers(door: OpenDoor) -> None:
    """Nobody stamps as the log, or says two things under one dot."""
    forged = line("x", stamp=stamp("log", 1, 1), parent=None)
    refused(door, "reserved_replica", "stamp.dot", forged)
    first = line("a", stamp=stamp("eu", 1, 1), parent=None)
    other = line("b", stamp=stamp("eu", 1, 1), parent=None)
    accepted(door, first)
    assert door.send([first]).counts == (0, 1, 0, 0)
    sent = door.send([other])
    assert [each.code for each in sent.refusals] == ["dot_reused"]
    assert contents(door.turns()) == ["a"]


@case(0, STATE)
def a_clock_far_ahead_does_no_harm(door: OpenDoor) -> None:
    """The largest Lamport time and counter: kept, and the session goes on."""
    far = line("far", stamp=stamp("eu", COUNTER_MAX, COUNTER_MAX), parent=None)
    sent = door.send([line("first"), far, line("after")])
    assert (sent.accepted + len(sent.refusals), sent.duplicates) == (3, 0)
    assert {"first"} <= set(contents(door.turns()))
