"""Clocks and references are checked before anything is folded by them."""

from typing import Any

import pytest
from msgspec import UNSET

from support.drafted import draft, refused, stamp_of, turn
from turnstate.schemas.clocks import Dot
from turnstate.schemas.draft import draft_from_turn
from turnstate.schemas.limits import (
    COUNTER_MAX,
    GAP_INTERVALS_MAX,
    PARENTS_MAX,
    SEEN_REPLICAS_MAX,
)
from turnstate.schemas.turn import Stamp

STAMP = Stamp(("eu", 2), 5, {"eu": 1}, 1)


def test_parents_are_absent_none_or_named() -> None:
    assert draft().parents is UNSET
    assert draft(parent=None).parents == draft(parent=[]).parents == ()
    assert draft(parent="u1").parents == ("u1",)
    assert draft(parent=["@eu:west:3", "u1", "u1"]).parents == (
        Dot("eu:west", 3),
        "u1",
    )
    assert len(draft(parent=[f"u{n}" for n in range(PARENTS_MAX)]).parents or ()) == 256


@pytest.mark.parametrize(
    "parent",
    [
        "",
        "a\0",
        7,
        {"a": 1},
        ("u1",),
        [7],
        [None],
        [["u1"]],
        "@",
        "@log",
        "@log:",
        "@:1",
        "@log:0",
        "@log:01",
        "@log:-1",
        "@log:1.5",
        "@log:\u0661",
        f"@log:{COUNTER_MAX + 1}",
        "me",
        ["u1", "me"],
        [f"u{n}" for n in range(PARENTS_MAX + 1)],
    ],
)
def test_a_parent_that_names_no_turn_is_refused(parent: Any) -> None:
    assert refused(parent=parent, turn_id="me").field == "parent"


def test_a_stamp_is_read() -> None:
    given = draft(
        stamp=Stamp(("eu", 7), 9, {"eu": [1, 6], "us": [1, 1, 3, 4], "x": 0}, 2),
        parent=["@us:4", "@eu:1"],
    )

    assert given.stamp == (
        Dot("eu", 7),
        9,
        {"eu": 6, "us": (1, 1, 3, 4)},
        2,
    )
    assert given.parents == (Dot("us", 4), Dot("eu", 1))


@pytest.mark.parametrize(
    ("stamp", "field"),
    [
        ({"dot": ["a", 1]}, "stamp"),
        (stamp_of(("", 1), 1), "stamp.dot[0]"),
        (stamp_of(("a\0", 1), 1), "stamp.dot[0]"),
        (stamp_of(("a", 0), 1), "stamp.dot[1]"),
        (stamp_of(("a", True), 1), "stamp.dot[1]"),
        (stamp_of(("a", COUNTER_MAX + 1), 1), "stamp.dot[1]"),
        (stamp_of(("a",), 1), "stamp.dot"),
        (stamp_of("ab", 1), "stamp.dot"),
        (stamp_of(("a", 1), 0), "stamp.lamport"),
        (stamp_of(("a", 1), COUNTER_MAX + 1), "stamp.lamport"),
        (stamp_of(("a", 1), 1, {}, 0), "stamp.incarnation"),
        (stamp_of(("a", 1), 1, {"a": 1}), "stamp.seen"),
        (stamp_of(("a", 3), 1, {"a": [1, 1, 3, 3]}), "stamp.seen"),
        (stamp_of(("a", 3), 1, {"a": [1, 1, 5, 5]}), "stamp.seen"),
        (stamp_of(("a", 1), 1, {"b": -1}), "stamp.seen.b"),
        (stamp_of(("a", 1), 1, {"b": True}), "stamp.seen.b"),
        (stamp_of(("a", 1), 1, {"b": []}), "stamp.seen.b"),
        (stamp_of(("a", 1), 1, {"b": [1]}), "stamp.seen.b"),
        (stamp_of(("a", 1), 1, {"b": [2, 1]}), "stamp.seen.b"),
        (stamp_of(("a", 1), 1, {"b": [0, 1]}), "stamp.seen.b"),
        (stamp_of(("a", 1), 1, {"b": [1, 2, 3, 4]}), "stamp.seen.b"),
        (stamp_of(("a", 1), 1, {"b": [1, 2, 2, 4]}), "stamp.seen.b"),
        (stamp_of(("a", 1), 1, {"b": [1, COUNTER_MAX + 1]}), "stamp.seen.b"),
        (stamp_of(("a", 1), 1, {"": 1}), "stamp.seen"),
        (stamp_of(("a", 1), 1, []), "stamp.seen"),
        (
            stamp_of(("a", 1), 1, {f"r{n}": 1 for n in range(SEEN_REPLICAS_MAX + 1)}),
            "stamp.seen",
        ),
    ],
)
def test_a_stamp_that_cannot_be_folded_is_refused(stamp: Any, field: str) -> None:
    assert refused(stamp=stamp, parent=None).field == field


def test_as_many_replicas_and_intervals_as_may_be() -> None:
    seen: dict[str, Any] = {f"r{n}": 1 for n in range(SEEN_REPLICAS_MAX)}
    assert draft(stamp=Stamp(("a", 1), 1, seen), parent=None).stamp
    holes = [
        bound for n in range(GAP_INTERVALS_MAX) for bound in (3 * n + 1, 3 * n + 2)
    ]
    assert draft(stamp=Stamp(("a", 1), 1, {"b": holes}), parent=None).stamp

    more = [*holes, COUNTER_MAX, COUNTER_MAX]
    error = refused(stamp=Stamp(("a", 1), 1, {"b": more}), parent=None)
    assert (error.code, error.field) == ("gap_limit", "stamp.seen")


def test_a_stamped_turn_names_its_parents_by_address() -> None:
    assert refused(stamp=STAMP).field == "parent"
    assert refused(stamp=STAMP, parent="u1").field == "parent"
    assert refused(stamp=STAMP, parent=["@eu:1", "u1"]).field == "parent"
    assert refused(stamp=STAMP, parent="@eu:2").field == "parent"
    assert draft(stamp=STAMP, parent=None).parents == ()
    assert draft(stamp=STAMP, op="redact", target="@eu:1").parents == ()
    assert refused(stamp=STAMP, op="redact", target="u1").field == "target"


def test_a_recording_may_hold_ids_beside_a_stamp() -> None:
    recorded = turn(stamp=STAMP, parent=["u1", "@eu:1"])

    assert draft_from_turn(recorded, recorded=True).parents == ("u1", Dot("eu", 1))


def test_an_owner_names_all_that_it_has_seen_however_many() -> None:
    seen: dict[str, Any] = {f"r{n}": 1 for n in range(SEEN_REPLICAS_MAX + 1)}
    parents = [f"@r{n}:1" for n in range(PARENTS_MAX + 1)]
    many = turn(stamp=Stamp(("log", 1), 2, seen), parent=parents)

    assert len(draft_from_turn(many, recorded=True).parents or ()) == PARENTS_MAX + 1
