"""Open calls, copies, conflicts, time, gaps and trees: one order, one state."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hostile.cases import (
    accepted,
    call,
    case,
    contents,
    line,
    op,
    refused,
    stamp,
)
from hostile.contract import (
    CONTEXT,
    KILL,
    OUTLIVE,
    REOPEN,
    STATE,
    Killable,
    OpenDoor,
    Outliving,
    Refusal,
)

from turnstate.streams.embedded.store import EmbeddedStore
from turnstate.streams.settings import Settings


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


@case(11, CONTEXT)
def a_lost_result_can_be_made_up_for_a_model(door: OpenDoor) -> None:
    """The context may say that no result came; what is stored is not touched."""
    accepted(
        door,
        line("find", turn_id="u1"),
        line(None, role="assistant", tool_calls=[call("{}"), call("{}", "c2")]),
        line("found", role="tool", tool_call_id="c1"),
        line("hello?", turn_id="u2"),
    )
    before = door.turns()
    shown = door.context(10_000, complete_open_calls=True)["messages"]
    results = [each["tool_call_id"] for each in shown if each["role"] == "tool"]
    assert sorted(results) == ["c1", "c2"]
    assert door.turns() == before


@case(12, CONTEXT)
def a_cut_never_parts_a_call_from_its_result(door: OpenDoor) -> None:
    """Wherever the budget cuts, pairs stay together; cutting again changes nothing."""
    for n in range(4):
        accepted(
            door,
            line(f"question {n}"),
            line(None, role="assistant", tool_calls=[call("{}", f"c{n}")]),
            line(f"result {n}", role="tool", tool_call_id=f"c{n}"),
            line(f"answer {n}", role="assistant"),
        )
    sizes: set[int] = set()
    for budget in range(1, 400, 3):
        found = door.context(budget)
        messages = found["messages"]
        asked = [
            each["id"]
            for message in messages
            for each in message.get("tool_calls") or ()
        ]
        told = [each["tool_call_id"] for each in messages if each["role"] == "tool"]
        assert asked == told
        assert found["tokens"] <= budget
        assert all(door.context(budget) == found for _ in range(2))
        sizes.add(len(messages))
    assert {0, 16} <= sizes


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


@case(26, STATE, OUTLIVE)
def what_a_tier_above_forgets_is_still_there_below(door: OpenDoor) -> None:
    """Read right after its time is over: whole, from below; the next turn goes on."""
    assert isinstance(door, Outliving)
    accepted(door, line("a", turn_id="u1", slots={"set": {"n": 1}}), line("b"))
    before = door.state()
    assert (before["tier"], door.faults()) == ("hot", 0)
    after = door.outlive()
    assert after["tier"] == "warm"
    assert {**after, "tier": "hot"} == before
    assert door.faults() == 0

    accepted(door, line("c", slots={"set": {"m": 2}}))
    state = door.state()
    assert (state["tier"], state["version"], door.faults()) == ("hot", 3, 0)
    assert contents(state["turns"]) == contents(door.turns()) == ["a", "b", "c"]
    assert {name: slot["value"] for name, slot in state["slots"].items()} == {
        "n": 1,
        "m": 2,
    }


def replayed(lines: Sequence[bytes]) -> dict[str, str]:
    """Return the digest of each session of an undisturbed fold."""
    with TemporaryDirectory() as folder:
        settings = Settings(data=Path(folder), fsync="never")
        with EmbeddedStore(settings) as store:
            store.publish(lines)
            return {row["session"]: row["digest"] for row in store.sessions()}


@case(30, STATE, KILL)
def a_flush_that_is_cut_leaves_what_a_replay_gives(door: OpenDoor) -> None:
    """Killed amid its changelog, the disk lost, too: equal to a replay, by hash."""
    assert isinstance(door, Killable)
    sessions = [f"s{n}" for n in range(7)]
    said: list[bytes] = []
    # On a busy machine all may be folded before the kill: then that was no cut.
    for part in range(5):
        lines = [
            line(
                f"{part} {n}",
                session=sessions[n % 7],
                turn_id=f"u{part}-{n}",
                slots={"set": {f"n{n % 5}": n}},
                usage={"n": 1},
            )
            for n in range(1_400)
        ]
        lines += [
            op("fork", session="s1", branch=f"b{part}", target=f"u{part}-1"),
            op("edit", session="s2", target=f"u{part}-2", content="other"),
            line("again", session="s3", turn_id=f"u{part}-3"),
        ]
        said += lines
        if door.killed_amid(lines):
            break
    else:
        raise AssertionError("it was never killed amid anything")
    wanted = replayed(said)
    assert {name: door.state(name)["digest"] for name in sessions} == wanted
