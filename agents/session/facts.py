"""Look up what a step asked for: ids, states, hashes, moments, history."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from turnstate.agents.ports import Store
from turnstate.agents.session.moments import Moment, heads_of
from turnstate.agents.session.step import Arrival, Facts, Need
from turnstate.schemas.clocks import Dot, DotSet
from turnstate.schemas.dialogue.head import Head
from turnstate.schemas.dialogue.phases import DialogueGraph
from turnstate.schemas.operation import Op, reference_of, target_of
from turnstate.storage.session_reader import operations, state_of_turn
from turnstate.storage.stored_head import StoredHead


def lookups_of(arrivals: Sequence[Arrival]) -> Iterator[str]:
    """Yield every turn id that the arrivals of one session name."""
    for arrival in arrivals:
        draft = arrival.draft
        if draft.turn_id is not None:
            yield draft.turn_id
        for parent in draft.parents or ():
            if isinstance(parent, str):
                yield parent
        if draft.body.target is not None:
            target = reference_of(draft.body.target)
            if isinstance(target, str):
                yield target


def parked_references(head: Head) -> Iterator[str]:
    """Yield the ids that parked operations of a session wait for."""
    for _, record in head.parked:
        op = Op.decode(record)
        yield from (parent for parent in op.parents if isinstance(parent, str))
        if op.body.target is not None:
            target = target_of(op)
            if isinstance(target, str):
                yield target


def provided(
    store: Store,
    key: bytes,
    stored: StoredHead,
    facts: Facts,
    need: Need,
    graph: DialogueGraph,
) -> Facts:
    """Return the facts with what the step lacked."""
    if need.state is not None:
        state = state_of_turn(store, key, stored, need.state, graph)
        assert state is not None, f"{need.state} is attached but has no state"
        return facts._replace(states={**facts.states, need.state: state})
    if need.operation_hash is not None:
        hashes = _hashes(store, key, stored, need.operation_hash, facts.hashes)
        return facts._replace(hashes=hashes)
    if need.moment is not None:
        heads = heads_at(store, key, stored, need.moment, graph)
        return facts._replace(heads_at={**facts.heads_at, need.moment: heads})
    return facts._replace(history=list(operations(store, key, stored)))


_NEAR: Final = 64
"""Versions looked at where a counter points: one segment, as a rule."""


def _hashes(
    store: Store,
    key: bytes,
    stored: StoredHead,
    dot: Dot,
    known: Mapping[Dot, bytes],
) -> Mapping[Dot, bytes]:
    """Return operation hashes with that of a folded dot among them.

    The first time those near where its counter points, and then all: a
    session that is imported again asks for every one of them.
    """
    if not known and dot.counter <= stored.head.version:
        first = dot.counter - 1
        last = min(first + _NEAR, stored.head.version)
        near = operations(store, key, stored, first, last)
        found = {op.dot: op.operation_hash for _, op in near}
        if dot in found:
            return found
    found = {op.dot: op.operation_hash for _, op in operations(store, key, stored)}
    assert dot in found, f"{dot} is in the clock but in no frame"
    return found


def heads_at(
    store: Store, key: bytes, stored: StoredHead, moment: Moment, graph: DialogueGraph
) -> tuple[Dot, ...]:
    """Return the heads that a branch had once a clock was folded.

    O(length of the session); rollbacks are rare.
    """
    past = DotSet({replica: (1, high) for replica, high in moment.clock if high > 0})
    ops = [op for _, op in operations(store, key, stored) if op.dot in past]
    return heads_of(ops, moment.branch, stored.head.incarnation, graph)
