"""Who may enter: each rule of the table, in the order of design §3."""

from typing import Any

import pytest

from turnstate.schemas.admission import Ruling, Verdict, admit_unstamped
from turnstate.schemas.clocks import Dot
from turnstate.schemas.dialogue.fold import Fold
from turnstate.schemas.dialogue.head import EMPTY_HEAD
from turnstate.schemas.dialogue.phases import DialogueGraph, load_graph
from turnstate.schemas.draft import Draft, draft_from_turn
from turnstate.schemas.limits import LIVE_BRANCHES_MAX
from turnstate.schemas.operation import Op
from turnstate.schemas.turn import Turn
from turnstate.schemas.wire.json import draft_from_json

GRAPH = load_graph(
    b"""
name = "booking"
start = "open"
phases = ["open", "done"]

[[edges]]
from = "open"
action = "book"
to = "done"
requires = ["area"]
"""
)


def draft(**fields: Any) -> Draft:
    return draft_from_turn(Turn(tenant="t", session="s", role="user", **fields))


def op(counter: int, given: Draft, branch: str = "main", parents: Any = ()) -> Op:
    return Op.stamped(
        given.body,
        given.body_bytes,
        dot=Dot("log", counter),
        lamport=counter,
        seen={"log": counter - 1} if counter > 1 else {},
        incarnation=1,
        parents=parents,
        branch=branch,
        turn_id=given.turn_id,
    )


def folded(*ops: Op, graph: DialogueGraph = GRAPH) -> Fold:
    fold = Fold(EMPTY_HEAD, graph, {})
    for each in ops:
        fold.add(each)
    return fold


def code(ruling: Ruling | None) -> str | None:
    assert ruling is not None
    return ruling.error.code if ruling.error else None


def test_a_turn_that_nothing_speaks_against_is_let_in() -> None:
    assert admit_unstamped(draft(content="hi", turn_id="a"), folded()) is None


def test_the_same_turn_again_is_a_duplicate_of_the_first() -> None:
    first = draft(content="hi", turn_id="a")

    ruling = admit_unstamped(first, folded(op(1, first)))

    assert ruling == Ruling(Verdict.DUPLICATE, 1)


def test_other_content_under_a_known_id_is_a_conflict() -> None:
    fold = folded(op(1, draft(content="hi", turn_id="a")))

    assert code(admit_unstamped(draft(content="ho", turn_id="a"), fold)) == "conflict"


def test_a_duplicate_is_recognised_before_its_if_version_is_looked_at() -> None:
    fold = folded(op(1, draft(content="hi", turn_id="a")))
    again = draft(content="hi", turn_id="a", if_version=0)

    ruling = admit_unstamped(again, fold)

    assert ruling is not None
    assert ruling.verdict is Verdict.DUPLICATE


@pytest.mark.parametrize(("expected", "refused"), [(1, False), (0, True), (2, True)])
def test_if_version_holds_or_is_a_version_conflict(
    expected: int, refused: bool
) -> None:
    fold = folded(op(1, draft(content="hi")))

    ruling = admit_unstamped(draft(content="x", if_version=expected), fold)

    assert (ruling is not None) == refused
    assert not refused or code(ruling) == "version_conflict"


def test_one_branch_too_many_is_refused_and_the_known_ones_go_on() -> None:
    fold = folded(
        *(
            op(n, draft(content="x"), branch=f"b{n}")
            for n in range(1, LIVE_BRANCHES_MAX + 1)
        )
    )

    new = admit_unstamped(draft(content="x", branch="more"), fold)
    known = admit_unstamped(draft(content="x", branch="b1"), fold)

    assert (code(new), known) == ("branch_limit", None)


def test_a_fork_to_a_name_that_exists_is_refused() -> None:
    fold = folded(op(1, draft(content="x"), branch="b"))

    assert code(admit_unstamped(draft(op="fork", branch="b"), fold)) == "branch_exists"


def test_a_parent_that_is_an_operation_is_refused() -> None:
    first = op(1, draft(content="hi", turn_id="a"))
    edit = op(2, draft(op="edit", target="a", content="ho", turn_id="e"))

    ruling = admit_unstamped(draft(content="x", parent="e"), folded(first, edit))

    assert code(ruling) == "invalid"


def test_an_action_whose_slots_are_not_set_is_refused() -> None:
    assert code(admit_unstamped(draft(action="book"), folded())) == "phase_constraint"


def test_an_action_may_bring_the_slots_that_it_needs() -> None:
    own = draft_from_json(
        b'{"tenant":"t","session":"s","role":"user","action":"book",'
        b'"slots":{"set":{"area":1}}}'
    )

    assert admit_unstamped(own, folded()) is None


def test_an_action_that_no_edge_knows_is_let_in_and_shown_as_phase_error() -> None:
    strange = draft(action="dance")

    assert admit_unstamped(strange, folded()) is None
    state = folded(op(1, strange)).head().branch_state("main")
    assert state is not None
    assert state.phase_error == ("dance", "@log:1", "open")
