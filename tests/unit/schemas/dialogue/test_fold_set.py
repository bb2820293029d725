"""The definition, held against cases small enough to be worked out by hand."""

from time import perf_counter
from typing import Any

from support.spoken import GRAPH, branch, dot, fold, names, said, shown
from turnstate.schemas.dialogue.fold_set import fold_set
from turnstate.schemas.operation import MAIN


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
