"""Entities come out the same, in whatever order and however often upserts come."""

import random
from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from turnstate.agents.tiering.entities import EntityUpsert, entity_upserts
from turnstate.agents.tiering.entity_view import EntityView
from turnstate.schemas.dialogue.head import Head
from turnstate.schemas.ids import SessionName
from turnstate.storage.stored_head import NO_SESSION, StoredHead

KEY = SessionName("t", "s").key()

STEPS = st.lists(st.one_of(st.integers(1, 25), st.none()), max_size=8)
"""What becomes of a session: so many versions more, or an erase."""


def heads(steps: Sequence[int | None]) -> list[StoredHead]:
    """Return the heads that a session has, one after another."""
    found = [NO_SESSION]
    for step in steps:
        head = found[-1].head
        if step is None:
            head = Head(incarnation=head.incarnation + 1)
        else:
            head = Head(incarnation=head.incarnation, version=head.version + step)
        found.append(StoredHead(head))
    return found


def told(stands: Sequence[StoredHead]) -> list[EntityUpsert]:
    """Return the upserts of a session that stood there, one after another."""
    return [
        upsert
        for before, after in pairwise(stands)
        for upsert in entity_upserts(before, after, KEY)
    ]


def entity(upserts: Sequence[EntityUpsert]) -> bytes | None:
    """Return what a follower ends with."""
    view, value = EntityView(), None
    for upsert in upserts:
        if view.is_news(upsert):
            value = upsert.value
    return value


@given(STEPS, st.randoms(use_true_random=False))
def test_order_and_repetition_change_nothing(
    steps: list[int | None], chance: random.Random
) -> None:
    once = told(heads(steps))
    shuffled = once * 2
    chance.shuffle(shuffled)
    assert entity(shuffled) == entity(once)


@given(STEPS, st.data())
def test_a_crash_loses_none_and_leaves_none_of_an_erased_life(
    steps: list[int | None], data: st.DataObject
) -> None:
    """What a crash took back is folded again in one batch, whatever was told of it."""
    stands = heads(steps)
    crashed = data.draw(st.integers(0, len(stands) - 1))
    kept = data.draw(st.integers(0, crashed))
    upserts = told(stands[: crashed + 1]) + told([stands[kept], stands[-1]])

    last = stands[-1].head
    names = {(each.incarnation, each.boundary) for each in upserts if each.value}
    wanted = {(last.incarnation, at) for at in range(10, last.version + 1, 10)}
    assert wanted <= names
    value = entity(upserts)
    if not wanted:
        assert value is None
    else:
        assert value is not None
        assert b'"incarnation":%d,' % last.incarnation in value
