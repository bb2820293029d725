"""Usual turns folded in one go are what the step makes of them, to the last byte."""

import random
from collections.abc import Sequence
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from support.laws import LAW
from support.strategies import Drawn, worlds
from turnstate.agents.session.plain import plain_head, plain_outcome
from turnstate.agents.session.step import NO_FACTS, Arrival, Outcome, session_step
from turnstate.schemas.dialogue.fold import Fold
from turnstate.schemas.dialogue.head import EMPTY_HEAD, Head, encode_head
from turnstate.schemas.dialogue.phases import default_graph
from turnstate.schemas.operation import Op
from turnstate.schemas.position import Position
from turnstate.schemas.wire.json import draft_from_json

GRAPH = default_graph()
NAMES = st.sampled_from(["a", "b", "c"])
CALLS = [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]

FIELDS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool", "system"])},
    optional={
        "content": st.sampled_from(["hello", "", None, [{"type": "text"}]]),
        "slots": st.fixed_dictionaries(
            {},
            optional={
                "set": st.dictionaries(NAMES, st.integers(0, 3), max_size=3),
                "delete": st.lists(NAMES, max_size=2),
            },
        ),
        "tags": st.fixed_dictionaries(
            {},
            optional={
                "add": st.lists(NAMES, max_size=2),
                "remove": st.lists(NAMES, max_size=2),
            },
        ),
        "usage": st.dictionaries(NAMES, st.integers(-3, 3), max_size=2),
        "tool_calls": st.just(CALLS),
        "tool_call_id": st.sampled_from(["c1", "c2"]),
        "continues": st.just("t0"),
        "user": NAMES,
    },
)
"""A turn that says anything but where it belongs."""

UNUSUAL: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"role": st.just("user")},
    optional={
        "branch": st.sampled_from(["main", "other"]),
        "parent": st.sampled_from([None, "@log:1", "@log:2", "t0"]),
        "action": st.sampled_from(["greet", "nothing"]),
        "if_version": st.integers(0, 3),
    },
)
"""A turn after which the next may not be usual any more."""


def arrivals_of(turns: Sequence[dict[str, Any]], first: int) -> list[Arrival]:
    """Return turns as they come from a log, every second one with an id."""
    arrivals: list[Arrival] = []
    for at, turn in enumerate(turns, first):
        named = {"tenant": "t", "session": "s"} | turn
        if at % 2:
            named["turn_id"] = f"t{at}"
        draft = draft_from_json(msgspec.json.encode(named))
        arrivals.append(Arrival(draft, Position(b"log", 0, at)))
    return arrivals


def stepped(head: Head, arrivals: Sequence[Arrival]) -> Outcome | None:
    """Return what the step says, None where it needs more than the head."""
    outcome = session_step(head, None, arrivals, NO_FACTS, GRAPH, "log")
    return outcome if isinstance(outcome, Outcome) else None


def assert_same(mine: Outcome, other: Outcome) -> None:
    """Compare everything that leaves the step."""
    assert encode_head(mine.head) == encode_head(other.head)
    assert mine.head == other.head
    assert [op.record for op in mine.ops] == [op.record for op in other.ops]
    assert [op.content_hash for op in mine.ops] == [op.content_hash for op in other.ops]
    assert mine.answers == other.answers
    assert dict(mine.ids_changed) == dict(other.ids_changed)
    assert dict(mine.ids_used) == dict(other.ids_used)
    assert (mine.bases, mine.erased) == (other.bases, other.erased)


@LAW
@given(
    st.lists(st.one_of(FIELDS, FIELDS, UNUSUAL), max_size=4),
    st.lists(FIELDS, min_size=1, max_size=12),
)
def test_one_go_is_what_the_step_says(
    before: list[dict[str, Any]], turns: list[dict[str, Any]]
) -> None:
    """Whatever came before, usual or not; where it was not, the step decides."""
    start = stepped(EMPTY_HEAD, arrivals_of(before, 1)) if before else None
    head = start.head if start else EMPTY_HEAD
    arrivals = arrivals_of(turns, 101)
    mine = plain_outcome(head, None, arrivals, None, GRAPH, "log")
    if mine is not None:
        other = stepped(head, arrivals)
        assert other is not None
        assert_same(mine, other)
    usual = all("parent" not in t and "branch" not in t for t in before)
    assert mine is not None or not usual


@LAW
@given(st.lists(st.one_of(FIELDS, UNUSUAL), min_size=1, max_size=6))
def test_what_is_not_usual_is_left_to_the_step(turns: list[dict[str, Any]]) -> None:
    """One go never takes what the step would decide in another way."""
    arrivals = arrivals_of(turns, 1)
    mine = plain_outcome(EMPTY_HEAD, None, arrivals, None, GRAPH, "log")
    other = stepped(EMPTY_HEAD, arrivals)
    if mine is not None:
        assert other is not None
        assert_same(mine, other)


def test_an_id_given_twice_is_left_to_the_step() -> None:
    """The second is a duplicate or a conflict."""
    (first,) = arrivals_of([{"role": "user"}], 1)
    twice = [first, first]
    assert plain_outcome(EMPTY_HEAD, None, twice, None, GRAPH, "log") is None


def test_a_redelivery_is_left_to_the_step() -> None:
    """Its frames are sent again; nothing is folded."""
    (first,) = arrivals_of([{"role": "user"}], 1)
    outcome = plain_outcome(EMPTY_HEAD, first.position, [first], None, GRAPH, "log")
    assert outcome is None


@given(worlds(), st.randoms(use_true_random=False))
@LAW
def test_a_plain_session_folds_to_what_the_fold_makes_of_it(
    drawn: Drawn, chance: random.Random
) -> None:
    ops = list(drawn.ops)
    chance.shuffle(ops)
    for candidate in (ops, *_by_replica(ops)):
        found = plain_head(candidate, GRAPH)
        if found is not None:
            assert encode_head(found) == encode_head(_folded(candidate))


def test_a_plain_session_is_taken_as_such() -> None:
    sent = [
        Arrival(
            draft_from_json(
                msgspec.json.encode(
                    {"tenant": "t", "session": "s", "role": "user", "turn_id": str(n)}
                )
            ),
            Position(b"log", 0, n),
        )
        for n in range(5)
    ]
    outcome = session_step(EMPTY_HEAD, None, sent, NO_FACTS, GRAPH, "log")
    assert isinstance(outcome, Outcome)

    found = plain_head([Op.decode(op.record) for op in outcome.ops], GRAPH)

    assert found is not None
    assert encode_head(found) == encode_head(outcome.head)
    assert plain_head(outcome.ops[::-1], GRAPH) is None
    assert plain_head(outcome.ops[1:], GRAPH) is None
    assert plain_head([*outcome.ops, outcome.ops[-1]], GRAPH) is None


def _by_replica(ops: Sequence[Op]) -> list[list[Op]]:
    """Return each replica's operations in its order: the most nearly plain."""
    return [
        sorted((op for op in ops if op.dot.replica == replica), key=lambda op: op.dot)
        for replica in sorted({op.dot.replica for op in ops})
    ]


def _folded(ops: Sequence[Op]) -> Head:
    fold = Fold(Head(incarnation=ops[0].incarnation), GRAPH, {})
    for op in ops:
        fold.add(op)
    return fold.head()
