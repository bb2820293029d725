"""A rewrite takes the text of redacted turns out and keeps the digest."""

from hypothesis import assume, given

from support.spoken import said
from support.strategies import GRAPH, Drawn, worlds
from turnstate.agents.session.rebuild import refold
from turnstate.schemas.dialogue.fold import Fold
from turnstate.schemas.dialogue.head import Head, digest
from turnstate.schemas.dialogue.turn_index import RefoldNeeded
from turnstate.schemas.ids import SessionName
from turnstate.schemas.operation import Op
from turnstate.storage.rewrite import said_by, without_redacted
from turnstate.storage.stored_head import StoredHead
from turnstate.streams.clock import VirtualClock

NAME = SessionName("t", "s")


def folded(ops: list[Op]) -> Fold:
    """Return the fold of some operations."""
    try:
        fold = Fold(Head(), GRAPH, {}, {})
        for op in ops:
            fold.add(op)
    except RefoldNeeded:
        fold = Fold(Head(), GRAPH, {}, {})
        for op in sorted(ops, key=lambda each: each.order):
            fold.add(op)
    return fold


def rewritten(ops: list[Op]) -> list[Op]:
    """Rewrite operations and check that the digest stayed."""
    fold = folded(ops)
    head = fold.head()
    after = without_redacted(ops, head.redacted, fold.ids_changed)
    clock = VirtualClock()
    session = refold(
        NAME, StoredHead(head), after, graph=GRAPH, log_name="log", clock=clock
    )
    assert session.stored is not None
    assert digest(session.stored.head) == digest(head)
    return after


@given(drawn=worlds())
def test_any_history_keeps_its_digest(drawn: Drawn) -> None:
    """Whatever was said, edited, forked and redacted, in whatever order."""
    ops = list({op.dot: op for op in drawn.ops}.values())
    assume(ops)
    after = rewritten(ops)
    assert [op.operation_hash for op in after] == [op.operation_hash for op in ops]
    assert rewritten(after) == after


def test_edits_of_a_redacted_turn_go_too() -> None:
    """The text of an edit is text of the turn that it edits."""
    ops = [
        said("a1", turn_id="one", content="secret"),
        said("a2", "a1", turn_id="two", content="kept"),
        said("a3", op="edit", target="one", content="secret, edited"),
        said("a4", op="edit", target="@a:2", content="kept, edited"),
        said("a5", op="redact", target="@a:1"),
    ]
    hidden = [op.dot.counter for op in rewritten(ops) if op.body.hidden is not None]
    assert hidden == [1, 3]


def test_what_a_user_said() -> None:
    """Their turns are to be redacted; whatever else bears their name goes too."""
    ops = [
        said("a1", content="hello", user="bob"),
        said("a2", "a1", content="secret", user="eve"),
        said("a3", op="edit", target="@a:1", content="secret", user="eve"),
        said("a4", op="redact", target="@a:2"),
    ]
    head = folded(ops).head()
    assert said_by(ops, "eve", Head().redacted) == [ops[1].dot]
    assert said_by(ops, "eve", head.redacted) == []
    after = without_redacted(ops, head.redacted, {}, "eve")
    assert [op.body.hidden is not None for op in after] == [False, True, True, False]
