"""The definition, held against cases small enough to be worked out by hand."""

from itertools import permutations
from time import perf_counter
from typing import Any

from support.spoken import dot, said
from turnstate.schemas.clocks import Dot
from turnstate.schemas.dialogue.fold_set import fold_set
from turnstate.schemas.dialogue.folded import Folded, FoldedBranch
from turnstate.schemas.dialogue.phases import default_graph
from turnstate.schemas.operation import MAIN, Op, SeenVector

GRAPH = default_graph()
CALLS = b'[{"id":"c1","type":"function","function":{"name":"find","arguments":"{}"}}]'


def fold(*ops: Op) -> Folded:
    """Return what the operations fold into, in whatever order they stand."""
    folded = fold_set(ops, GRAPH)
    orders = permutations(ops) if len(ops) <= 4 else [ops[::-1], ops[1:] + ops[:1]]
    for order in orders:
        assert fold_set(order, GRAPH) == folded
    assert fold_set([*ops, *ops], GRAPH) == folded
    return folded


def branch(*ops: Op, name: str = MAIN) -> FoldedBranch:
    return fold(*ops)["branches"][name]


def shown(state: FoldedBranch) -> dict[str, list[bytes]]:
    return {
        name: [entry[3] for entry in entries]
        for name, entries in state["slots"].items()
    }


def names(dots: list[Dot]) -> list[str]:
    return [f"{each.replica}{each.counter}" for each in dots]


def test_nothing_folds_to_nothing() -> None:
    assert fold() == {
        "version": 0,
        "clock": {},
        "sum": bytes(32),
        "lamport": 0,
        "turn_count": 0,
        "usage": {},
        "parked": [],
        "conflicts": [],
        "redacted": [],
        "branches": {},
        "ended": {},
        "texts": {},
    }


def test_a_line_of_turns() -> None:
    folded = fold(
        said("a1", slot_set={"area": b'"north"'}, tag_add=["vip"]),
        said("a2", "a1", slot_set={"food": b'"thai"'}, action="inform"),
        said("a3", "a2", slot_delete=["area"], usage={"tokens": 7}),
    )
    state = folded["branches"][MAIN]
    assert names(state["heads"]) == ["a3"]
    assert names(state["turns"]) == names(state["recent"]) == ["a1", "a2", "a3"]
    assert state["slots"] == {"food": [(2, "a", 2, b'"thai"')]}
    assert (state["tags"], state["phase"]) == (["vip"], "collecting")
    assert (folded["version"], folded["lamport"], folded["turn_count"]) == (3, 3, 3)
    assert folded["clock"] == {"a": (1, 3)}
    assert folded["usage"] == {"tokens": [7, 0]}


def test_a_regeneration_abandons_what_it_has_seen() -> None:
    first = said("a1", slot_set={"area": b"1"})
    tried = said("a2", "a1", slot_set={"area": b"2"}, tag_add=["bad"])
    again = said("a3", "a1", slot_set={"food": b"3"})
    state = branch(first, tried, again)
    assert names(state["heads"]) == ["a3"]
    assert names(state["turns"]) == ["a1", "a3"]
    assert shown(state) == {"area": [b"1"], "food": [b"3"]}
    assert state["tags"] == []


def test_a_regeneration_leaves_what_it_has_not_seen() -> None:
    state = branch(said("a1"), said("b1", "a1", lamport=2), said("a3", "a1"))
    assert names(state["heads"]) == ["a3", "b1"]
    assert names(state["turns"]) == ["a1", "b1", "a3"]


def test_a_fork_knows_nothing_of_the_other_branch() -> None:
    ops = (
        said("a1", slot_set={"area": b"1"}),
        said("a2", "a1", role="system", op="fork", branch="other"),
        said("a3", "a1", slot_set={"area": b"3"}),
        said("a4", "a2", branch="other", slot_set={"food": b"4"}),
    )
    folded = fold(*ops)
    main, other = folded["branches"][MAIN], folded["branches"]["other"]
    assert (names(main["heads"]), names(main["turns"])) == (["a3"], ["a1", "a3"])
    assert (names(other["heads"]), names(other["turns"])) == (["a4"], ["a1", "a4"])
    assert shown(main) == {"area": [b"3"]}
    assert shown(other) == {"area": [b"1"], "food": [b"4"]}
    assert folded["turn_count"] == 3, "a fork is a node, but no turn"


def test_a_turn_of_another_branch_does_not_cover_a_head() -> None:
    folded = fold(said("a1"), said("a2", "a1", branch="other"))
    assert names(folded["branches"][MAIN]["heads"]) == ["a1"]


def test_a_rollback_goes_back_and_keeps_usage() -> None:
    folded = fold(
        said("a1", slot_set={"area": b"1"}),
        said("a2", "a1", slot_set={"area": b"2"}, usage={"tokens": 3}),
        said("a3", "a1", role="system", op="rollback"),
    )
    state = folded["branches"][MAIN]
    assert (names(state["heads"]), names(state["turns"])) == (["a3"], ["a1"])
    assert shown(state) == {"area": [b"1"]}
    assert folded["usage"] == {"tokens": [3, 0]}
    assert folded["turn_count"] == 2


def test_a_rollback_to_nothing_is_a_root() -> None:
    state = branch(
        said("a1", tag_add=["vip"]), said("a2", role="system", op="rollback")
    )
    assert (names(state["heads"]), state["turns"], state["tags"]) == (["a2"], [], [])


def test_concurrent_writes_are_siblings_until_one_has_seen_both() -> None:
    ops = (
        said("a1"),
        said("a2", "a1", slot_set={"area": b"2"}),
        said("b1", "a1", lamport=2, seen={"a": 1}, slot_set={"area": b"1"}),
    )
    assert branch(*ops)["slots"] == {"area": [(2, "b", 1, b"1"), (2, "a", 2, b"2")]}
    later = said("a3", "b1", "a2", seen={"a": 2, "b": 1}, slot_set={"area": b"3"})
    assert shown(branch(*ops, later)) == {"area": [b"3"]}


def test_a_join_that_writes_nothing_keeps_siblings() -> None:
    state = branch(
        said("a1", slot_set={"area": b"1"}),
        said("b1", slot_set={"area": b"2"}),
        said("a2", "b1", "a1", seen={"a": 1, "b": 1}),
    )
    assert names(state["heads"]) == ["a2"]
    assert shown(state) == {"area": [b"2", b"1"]}


def test_equal_values_count_as_one_sibling() -> None:
    state = branch(
        said("a1", slot_set={"area": b"1"}), said("b1", slot_set={"area": b"1"})
    )
    assert state["slots"] == {"area": [(1, "b", 1, b"1")]}


def test_a_deletion_does_not_take_what_it_had_not_seen() -> None:
    ops = (
        said("a1", slot_set={"area": b"1"}, tag_add=["vip"]),
        said("a2", "a1", slot_delete=["area"], tag_remove=["vip"]),
    )
    assert shown(branch(*ops)) == {}
    again = said("b1", "a1", lamport=2, slot_set={"area": b"2"}, tag_add=["vip"])
    state = branch(*ops, again)
    assert (shown(state), state["tags"]) == ({"area": [b"2"]}, ["vip"])


def test_in_one_turn_setting_and_adding_win() -> None:
    state = branch(
        said(
            "a1",
            slot_set={"area": b"1"},
            slot_delete=["area"],
            tag_add=["vip"],
            tag_remove=["vip"],
        )
    )
    assert (shown(state), state["tags"]) == ({"area": [b"1"]}, ["vip"])


def test_a_parked_turn_counts_but_does_not_show() -> None:
    folded = fold(
        said("a1"),
        said("b2", "b1", slot_set={"area": b"1"}, usage={"tokens": -2}),
        said("b3", "b2"),
    )
    assert names(folded["parked"]) == ["b2", "b3"]
    assert (folded["version"], folded["turn_count"]) == (3, 3)
    assert folded["usage"] == {"tokens": [0, 2]}
    assert folded["clock"] == {"a": (1, 1), "b": (2, 3)}
    assert names(folded["branches"][MAIN]["heads"]) == ["a1"]
    assert folded["branches"][MAIN]["slots"] == {}


def test_a_parked_turn_covers_nothing() -> None:
    state = branch(said("a1"), said("b2", "b1", seen={"a": 1}))
    assert names(state["heads"]) == ["a1"]


def test_parked_turns_attach_when_the_parent_comes() -> None:
    folded = fold(
        said("b1", seen={"a": 1}), said("a1"), said("b2", "b1"), said("b3", "b2")
    )
    assert folded["parked"] == []
    assert names(folded["branches"][MAIN]["heads"]) == ["b3"]
    assert names(folded["branches"][MAIN]["turns"]) == ["b1", "b2", "b3"]


def test_a_parent_by_id_attaches_when_the_id_comes() -> None:
    child = said("b1", "first")
    assert names(fold(child)["parked"]) == ["b1"]
    state = branch(child, said("a1", turn_id="first"))
    assert names(state["turns"]) == ["a1", "b1"]


def test_what_follows_itself_stays_parked() -> None:
    ops = (
        said("a1", "own", turn_id="own"),
        said("b1", "right", turn_id="left"),
        said("b2", "left", turn_id="right"),
        said("c1", "c1"),
    )
    assert names(fold(*ops)["parked"]) == ["a1", "b1", "b2", "c1"]


def test_what_follows_no_turn_stays_parked() -> None:
    ops = (said("a1"), said("a2", role="system", op="end", turn_id="bye"))
    folded = fold(*ops, said("a3", "a2"), said("a4", "bye"))
    assert names(folded["parked"]) == ["a3", "a4"]


def test_children_stamped_before_their_parents_are_listed_after_them() -> None:
    child = said("a1", "b9", lamport=1, slot_set={"area": b"1"})
    parent = said("b9", lamport=9, slot_set={"area": b"2"})
    between = said("c1", lamport=5)
    state = branch(child, parent, between)
    assert names(state["turns"]) == ["c1", "b9", "a1"]
    assert names(state["heads"]) == ["a1", "c1"], "by the effective order"
    assert shown(state) == {"area": [b"1"]}


def test_conflicting_turns_stay_and_the_smaller_answers() -> None:
    folded = fold(
        said("a1", turn_id="x", content="one"),
        said("b1", turn_id="x", content="two", slot_set={"area": b"2"}),
        said("c2", "x"),
    )
    assert folded["conflicts"] == [("x", dot("b1"))]
    assert folded["turn_count"] == 3
    state = folded["branches"][MAIN]
    assert names(state["heads"]) == ["c2", "b1"]
    assert names(state["turns"]) == ["a1", "b1", "c2"]
    assert shown(state) == {"area": [b"2"]}


def test_a_smaller_turn_takes_the_id_over() -> None:
    later = said("b1", turn_id="x", content="two", lamport=5)
    child = said("c1", "x", lamport=6)
    assert names(branch(later, child)["heads"]) == ["c1"]
    folded = fold(later, child, said("a1", turn_id="x", content="one"))
    assert folded["conflicts"] == [("x", dot("b1"))]
    assert names(folded["branches"][MAIN]["heads"]) == ["c1", "b1"]


def test_copies_of_one_turn_are_one_turn() -> None:
    fields: dict[str, Any] = {"content": "hi", "usage": {"tokens": 2}, "turn_id": "x"}
    folded = fold(
        said("a1", **fields),
        said("b1", **fields),
        said("b2", "a1", "b1", tag_add=["t"]),
    )
    assert (folded["turn_count"], folded["version"]) == (2, 3)
    assert folded["usage"] == {"tokens": [2, 0]}
    assert folded["conflicts"] == []
    assert names(folded["branches"][MAIN]["turns"]) == ["a1", "b2"]


def test_a_copy_shows_where_the_smaller_one_is_not_listed() -> None:
    folded = fold(
        said("a1", turn_id="x", branch="other"), said("b2", turn_id="x", seen={})
    )
    assert names(folded["branches"][MAIN]["turns"]) == ["b2"]
    assert names(folded["branches"]["other"]["turns"]) == ["a1"]


def test_a_redacted_write_is_gone_and_what_it_replaced_stays_replaced() -> None:
    ops = (
        said("a1", slot_set={"area": b"1"}, tag_add=["vip"]),
        said("a2", "a1", turn_id="x", slot_set={"area": b"2"}, tag_add=["vip"]),
    )
    hide = said("a3", role="system", op="redact", target="x")
    folded = fold(*ops, hide)
    state = folded["branches"][MAIN]
    assert names(folded["redacted"]) == ["a2"]
    assert names(state["turns"]) == ["a1", "a2"], "it is listed, without its text"
    assert (state["slots"], state["tags"]) == ({}, [])
    assert fold(ops[0], ops[1].stub(), hide) == folded


def test_a_redaction_hides_every_copy_and_waits_for_its_target() -> None:
    hide = said("c1", role="system", op="redact", target="@b:1")
    assert names(fold(hide)["parked"]) == ["c1"]
    folded = fold(
        hide,
        said("a1", turn_id="x", content="one"),
        said("b1", turn_id="x", content="one"),
        said("b2", turn_id="x", content="two"),
    )
    assert names(folded["redacted"]) == ["a1", "b1"]
    assert folded["parked"] == []


def test_an_open_call_of_a_redacted_turn_does_not_show() -> None:
    call = said("a1", role="assistant", tool_calls=CALLS)
    assert branch(call)["open"] == [("c1", "find", dot("a1"))]
    hide = said("a2", role="system", op="redact", target="@a:1")
    assert branch(call, hide)["open"] == []


def test_a_tool_turn_closes_its_call() -> None:
    call = said("a1", role="assistant", tool_calls=CALLS)
    answer = said("a2", "a1", role="tool", tool_call_id="c1")
    assert branch(call, answer)["open"] == []
    other = said("a2", "a1", role="tool", tool_call_id="c2")
    assert len(branch(call, other)["open"]) == 1


def test_the_first_parent_leads_phase_and_calls() -> None:
    left = said("a1", action="inform")
    right = said("b1", role="assistant", tool_calls=CALLS)
    seen: SeenVector = {"a": 1, "b": 1}
    joined = branch(left, right, said("c2", "a1", "b1", seen=seen))
    assert (joined["phase"], joined["open"]) == ("collecting", [])
    other = branch(left, right, said("c2", "b1", "a1", seen=seen))
    assert (other["phase"], len(other["open"])) == ("open", 1)


def test_the_shown_head_leads_phase_and_calls() -> None:
    state = branch(said("a1", action="inform"), said("b1", content="hi"))
    assert (names(state["heads"]), state["phase"]) == (["b1", "a1"], "open")


def test_an_illegal_action_shows_until_the_next_one() -> None:
    wrong = said("a1", turn_id="x", action="select")
    error = {"action": "select", "turn": "x", "phase": "open"}
    assert branch(wrong)["phase_error"] == error
    assert branch(wrong, said("a2", "a1"))["phase_error"] == error
    state = branch(wrong, said("a2", "a1", action="inform"))
    assert (state["phase"], state["phase_error"]) == ("collecting", None)


def test_an_edit_that_has_seen_the_other_wins() -> None:
    turn = said("a1", turn_id="x", content="hi")
    early = said("b1", role="system", op="edit", target="x", content="ho", lamport=9)
    late = said(
        "c1", role="system", op="edit", target="@a:1", content="ha", seen={"b": 1}
    )
    assert fold(turn, early)["texts"] == {dot("a1"): "ho"}
    assert fold(turn, early, late)["texts"] == {dot("a1"): "ha"}


def test_of_edits_that_had_not_seen_each_other_the_greatest_wins() -> None:
    texts = fold(
        said("a1", content="hi"),
        said("b1", role="system", op="edit", target="@a:1", content="ho", lamport=9),
        said("c1", role="system", op="edit", target="@a:1", content=None, lamport=8),
    )["texts"]
    assert texts == {dot("a1"): "ho"}


def test_an_edit_of_a_redacted_turn_shows_nothing() -> None:
    folded = fold(
        said("a1", content="hi"),
        said("a2", role="system", op="edit", target="@a:1", content="ho"),
        said("a3", role="system", op="redact", target="@a:1"),
    )
    assert folded["texts"] == {}


def test_an_edit_of_what_is_no_turn_is_parked() -> None:
    folded = fold(
        said("a1", role="system", op="edit", target="nobody", content="ho"),
        said("a2", role="system", op="redact", target="@a:1"),
        said("a3", role="system", op="redact", target="@a:"),
    )
    assert names(folded["parked"]) == ["a1", "a2", "a3"]
    assert folded["turn_count"] == 0


def test_an_end_makes_its_branch_and_the_greatest_stands() -> None:
    folded = fold(
        said("a1", role="system", op="end", branch="other", to="s2"),
        said("b1", role="system", op="end", branch="other"),
    )
    assert folded["ended"] == {"other": [1, "b", 1, None]}
    assert folded["branches"]["other"] == {
        "heads": [],
        "slots": {},
        "tags": [],
        "phase": GRAPH.start,
        "phase_error": None,
        "open": [],
        "recent": [],
        "turns": [],
    }


def test_a_continuing_turn_is_listed_but_not_counted() -> None:
    folded = fold(said("a1", turn_id="x"), said("a2", "a1", continues="x"))
    assert folded["turn_count"] == 1
    assert names(folded["branches"][MAIN]["turns"]) == ["a1", "a2"]


def test_recent_are_the_last_turns() -> None:
    line = [said("a1"), *(said(f"a{at}", f"a{at - 1}") for at in range(2, 12))]
    assert names(branch(*line)["recent"]) == [f"a{at}" for at in range(4, 12)]


def test_two_thousand_turns_fold_in_less_than_two_seconds() -> None:
    line = [said("a1")]
    line += [
        said(f"a{at}", f"a{at - 1}", slot_set={"n": b"%d" % at}, tag_add=["t"])
        for at in range(2, 2001)
    ]
    before = perf_counter()
    state = fold_set(reversed(line), GRAPH)["branches"][MAIN]
    assert perf_counter() - before < 2
    assert len(state["turns"]) == 2000
    assert state["slots"] == {"n": [(2000, "a", 2000, b"2000")]}
