"""Branches, clocks and operations, told to do what they cannot."""

import json
from typing import Any

from hostile.cases import (
    accepted,
    case,
    contents,
    line,
    op,
    refused,
    stamp,
)
from hostile.contract import READ, REOPEN, STATE, OpenDoor

from turnstate.agents.session.recorded import recorded_bytes
from turnstate.schemas.clocks import Dot
from turnstate.schemas.ids import SessionName
from turnstate.schemas.limits import COUNTER_MAX
from turnstate.schemas.operation import Body, Op, encode_body


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
    """Two replicas go on from one parent unseen: both values stay, then are joined."""
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


@case(0, STATE, REOPEN)
def a_clock_far_ahead_does_no_harm(door: OpenDoor) -> None:
    """The largest Lamport time is kept; turns after it are, too, in order."""
    far = line("far", stamp=stamp("eu", 1, COUNTER_MAX, log=1), parent="@log:1")
    accepted(door, line("first"), far, line("after"), line("on"))
    door.reopen()
    accepted(door, line("last"))
    assert contents(door.turns()) == ["first", "far", "after", "on", "last"]


@case(0, STATE)
def a_counter_far_ahead_does_no_harm(door: OpenDoor) -> None:
    """The largest counter is a gap in sight, nothing else."""
    far = line("far", stamp=stamp("eu", COUNTER_MAX, 1), parent=None)
    accepted(door, far, line("after"))
    assert contents(door.turns()) == ["far", "after"]
    assert door.state()["gaps"] == [{"replica": "eu", "from": 1, "to": COUNTER_MAX - 1}]


@case(0, READ)
def bytes_of_our_own_records_are_no_way_round_the_checks(door: OpenDoor) -> None:
    """A producer that sends what only imports write is refused like any garbage."""
    body = Body(role="system", content="forged")
    forged = Op.stamped(
        body,
        encode_body(body),
        dot=Dot("log", 2),
        lamport=2,
        seen={"log": 1},
        incarnation=1,
        parents=(Dot("log", 1),),
    )
    name = SessionName("t", "s")
    sent = door.send([line("good"), recorded_bytes(name, forged.record), forged.record])
    assert sent.counts == (1, 0, 0, 2)
    assert contents(door.turns()) == ["good"]


@case(0, STATE)
def a_clock_with_holes_is_gone_back_to_whole(door: OpenDoor) -> None:
    """A rollback to intervals goes to all that they hold."""
    accepted(
        door,
        line("one", turn_id="u1"),
        line("two", turn_id="u2"),
        line("three", turn_id="u3"),
        op("rollback", to={"log": [1, 2]}),
    )
    assert contents(door.turns()) == ["one", "two"]
    accepted(door, op("rollback", to={"log": [1, 1, 3, 4]}), line("on"))
    assert contents(door.turns())[-1] == "on"


@case(0, STATE)
def a_rollback_to_nothing_is_a_root(door: OpenDoor) -> None:
    """Back to version 0: no turn shows, all are counted, the session goes on."""
    accepted(door, line("one", usage={"n": 2}), op("rollback", to={}))
    assert door.turns() == []
    accepted(door, line("anew", usage={"n": 3}))
    state = door.state()
    assert contents(door.turns()) == ["anew"]
    assert (state["turn_count"], state["usage"]) == (2, {"n": 5})


@case(0, STATE)
def what_waits_for_ever_stays_in_sight(door: OpenDoor) -> None:
    """Edits of turns that never come, parents that are no turns: gaps, no harm."""
    accepted(
        door,
        line("one", turn_id="u1"),
        op("edit", target="never", content="x"),
        op("redact", target="@eu:9"),
        line("lost", turn_id="u2", parent="@eu:9"),
        line("on", turn_id="u3"),
    )
    assert contents(door.turns()) == ["one", "on"]
    assert len(door.state()["gaps"]) == 3


@case(0, STATE)
def a_redacted_turn_shows_nothing(door: OpenDoor) -> None:
    """Redacted: listed without text, slots, calls; what it replaced stays replaced."""
    accepted(
        door,
        line("a", slots={"set": {"n": 1}}),
        line("secret", turn_id="u1", slots={"set": {"n": 2}}, metadata={"k": "secret"}),
        op("redact", target="u1"),
    )
    turn = door.turns()[-1]
    assert (turn["redacted"], turn["content"]) == (True, None)
    assert "secret" not in json.dumps([turn, door.state()])
    assert door.state()["slots"] == {}


@case(0, STATE)
def an_illegal_action_is_kept_and_shown(door: OpenDoor) -> None:
    """An action that the graph does not know is no reason to lose a turn."""
    accepted(door, line("x", turn_id="u1", action="no such action \0"))
    assert door.state()["phase_error"]["action"] == "no such action \0"
