"""The view of a head, or of an operation, reads what the whole one holds."""

import msgspec
import pytest
from hypothesis import given

from support.laws import LAW
from support.strategies import Drawn, worlds
from turnstate.schemas.dialogue.head import EMPTY_HEAD, Head, encode_head
from turnstate.schemas.dialogue.state import DialogueState
from turnstate.schemas.operation import MAIN
from turnstate.schemas.wire.head_view import (
    HeadView,
    view_head,
    view_operation,
    view_stored_head,
)
from turnstate.storage.stored_head import StoredHead, encode_stored_head

CHECKSUM_BYTES = 4


def assert_shows(view: HeadView, head: Head) -> None:
    """Compare every field that the view has."""
    assert view.incarnation == head.incarnation
    assert view.version == head.version
    assert view.lamport == head.lamport
    assert view.turn_count == head.turn_count
    assert view.usage_totals() == {n: tuple(v) for n, v in head.usage.items()}
    for branch in {MAIN, "nowhere", *head.branches}:
        found = head.branches.get(branch)
        heads = found.heads if found else ()
        assert view.heads(branch) == heads
        shown = head.node(heads[0]).phase if heads else None
        assert view.phase(branch) == shown


@LAW
@given(worlds(steps_max=15))
def test_it_shows_what_the_head_holds(drawn: Drawn) -> None:
    """Whatever was said: numbers, usage, heads of branches, phases."""
    head = DialogueState.empty().apply(drawn.ops).head
    assert_shows(view_head(encode_head(head)), head)
    row = encode_stored_head(StoredHead(head))
    assert_shows(view_stored_head(memoryview(row)[CHECKSUM_BYTES:]), head)
    for op in drawn.ops:
        view = view_operation(op.record)
        assert (view.replica, view.counter) == op.dot
        assert (view.lamport, view.turn_id) == (op.lamport, op.turn_id)
        assert (view.branch or MAIN) == op.branch


def test_an_empty_head_shows_nothing() -> None:
    """A session in which nothing was said has no phase of its own."""
    assert_shows(view_head(encode_head(EMPTY_HEAD)), EMPTY_HEAD)


@pytest.mark.parametrize("data", [b"", b"\x90", b"no head", b"\xc1"])
def test_other_bytes_are_no_head(data: bytes) -> None:
    """What it cannot read, it says so."""
    with pytest.raises(msgspec.MsgspecError):
        view_head(data)
