"""The definition of edits, redactions, ends, phases and calls, case by case."""

from support.spoken import GRAPH, branch, dot, fold, names, said
from turnstate.schemas.operation import MAIN, SeenVector

CALLS = b'[{"id":"c1","type":"function","function":{"name":"find","arguments":"{}"}}]'


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
