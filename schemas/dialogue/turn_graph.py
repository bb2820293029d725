"""The DAG of turns: which turns lead a branch, and what one turn changes."""

from collections.abc import Iterable
from typing import Final

from turnstate.schemas.clocks import Dot, DotSet
from turnstate.schemas.crdt import slot_map, tag_set
from turnstate.schemas.dialogue.head import Branch, NodeState, OpenCall, RecentTurn
from turnstate.schemas.dialogue.phases import DialogueGraph
from turnstate.schemas.limits import RECENT_TURNS
from turnstate.schemas.operation import Op, SeenVector
from turnstate.schemas.wire.tool_calls import calls_of

_NOTHING: Final = DotSet({})


def seen_joined(seen: DotSet, more: SeenVector) -> DotSet:
    """Return the union of a set of dots and a `seen`; O(replicas) as a rule."""
    result = seen.spans.copy()
    for replica, high in more.items():
        mine = result.get(replica)
        spans: tuple[int, ...]
        if isinstance(high, int):
            spans = (1, high)
            if mine is not None and len(mine) == 2 and mine[0] == 1:
                if high > mine[1]:
                    result[replica] = spans
                continue
        else:
            spans = tuple(high)
        if mine is None:
            result[replica] = spans
        else:
            united = DotSet({replica: mine}).union(DotSet({replica: spans}))
            result[replica] = united.spans[replica]
    return DotSet(result)


def advanced(
    branch: Branch | None,
    op: Op,
    parents: tuple[Dot, ...],
    states: dict[Dot, NodeState],
) -> Branch:
    """Return the branch once a turn has been attached to it.

    Heads are the turns that no turn of the branch has as parent or has seen.
    """
    dot = op.dot
    seen = seen_joined(branch.seen if branch else _NOTHING, op.seen)
    if branch is not None and branch.heads == parents and not seen.has(*dot):
        return Branch((dot,), seen)
    left = [
        head
        for head in (branch.heads if branch else ())
        if head not in parents and not seen.has(head.replica, head.counter)
    ]
    if not seen.has(dot.replica, dot.counter):
        left.append(dot)
        if len(left) > 1:
            left.sort(key=lambda head: states[head].listing_order, reverse=True)
    return Branch(tuple(left), seen)


def state_after(
    op: Op,
    base: NodeState | None,
    graph: DialogueGraph,
    version: int,
    redacted: bool,
) -> NodeState:
    """Return the state at a turn from the join of its parents' states.

    Args:
        op: The turn.
        base: The join of its parents, None for a root.
        graph: The dialogue graph.
        version: The owner's version that the turn came with.
        redacted: Whether its text and values are hidden.
    """
    body, dot = op.body, op.dot
    open_calls: tuple[OpenCall, ...] = ()
    recent: tuple[RecentTurn, ...] = ()
    if base is None:
        effective, slots, tags = op.lamport, {}, {}
        phase, phase_error = graph.start, None
        context = DotSet({dot.replica: (dot.counter, dot.counter)})
    else:
        effective = op.lamport if op.lamport > base.effective else base.effective + 1
        slots, tags, phase = base.slots, base.tags, base.phase
        phase_error, open_calls = base.phase_error, base.open_calls
        context, recent = base.context.added(*dot), base.recent
    if body.hidden is not None:
        slots = slot_map.forget_names(slots, body.hidden.slot_names)
        tags = tag_set.forget_names(tags, body.hidden.tag_names)
    elif body.slot_set is not None or body.slot_delete is not None:
        slots = _slots_after(op, slots, redacted)
    if body.tag_add is not None or body.tag_remove is not None:
        tags = tag_set.write(
            tags,
            dot,
            () if redacted else body.tag_add or (),
            [*(body.tag_remove or ()), *((body.tag_add or ()) if redacted else ())],
        )
    if body.action is not None:
        after = graph.transition(phase, body.action)
        if after is None:
            phase_error = (body.action, op.address(), phase)
        else:
            phase, phase_error = after, None
    if body.op is None:
        if body.tool_calls is not None and not redacted:
            open_calls = (*open_calls, *calls_opened(op))
        if body.tool_call_id is not None and body.role == "tool":
            open_calls = tuple(c for c in open_calls if c[0] != body.tool_call_id)
        recent = (
            *recent[1 - RECENT_TURNS :],
            (effective, dot.replica, dot.counter, version),
        )
    return NodeState(
        dot, effective, context, slots, tags, phase, phase_error, open_calls, recent
    )


def _slots_after(op: Op, slots: slot_map.SlotMap, redacted: bool) -> slot_map.SlotMap:
    body = op.body
    deleted: Iterable[str] = body.slot_delete or ()
    if redacted and body.slot_set:
        return slot_map.write(slots, op.order, None, [*deleted, *body.slot_set])
    return slot_map.write(slots, op.order, body.slot_set, deleted)


def calls_opened(op: Op) -> tuple[OpenCall, ...]:
    """Return the tool calls that an assistant's turn asks for."""
    if op.body.tool_calls is None or op.body.role != "assistant":
        return ()
    return tuple(
        (call_id, name, op.dot.replica, op.dot.counter)
        for call_id, name in calls_of(op.body.tool_calls)
    )


def without_dots(state: NodeState, dots: DotSet) -> NodeState:
    """Return the state without what redacted turns wrote."""
    return NodeState(
        state.dot,
        state.effective,
        state.context,
        slot_map.forget_dots(state.slots, dots),
        tag_set.forget_dots(state.tags, dots),
        state.phase,
        state.phase_error,
        tuple(call for call in state.open_calls if not dots.has(call[2], call[3])),
        state.recent,
    )
