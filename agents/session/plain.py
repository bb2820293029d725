"""The usual turns of a session, folded in one go: new turns that follow its head.

The step decides one arrival after the other and keeps every turn's state, since
a later one may start from any of them. Most batches need none of that: each
turn is new, unstamped, on the main branch, and follows the one before. What
they lead to is worked out here directly. It is what the step would say
(tests/property/test_plain_turns.py), in two thirds of the time.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import UNSET

from turnstate.agents.session.step import Answer, Arrival, Outcome
from turnstate.schemas.admission import Verdict
from turnstate.schemas.clocks import Dot, DotSet
from turnstate.schemas.crdt import counter as counters
from turnstate.schemas.crdt import tag_set
from turnstate.schemas.dialogue.fold import S_MODULUS
from turnstate.schemas.dialogue.head import Branch, Head, NodeState, RecentTurn
from turnstate.schemas.dialogue.phases import DialogueGraph
from turnstate.schemas.dialogue.turn_graph import calls_opened
from turnstate.schemas.dialogue.turn_index import IdEntry
from turnstate.schemas.limits import COUNTER_MAX, RECENT_TURNS
from turnstate.schemas.operation import MAIN, Op, SeenVector
from turnstate.schemas.position import Position

_NOTHING: Final[Mapping[str, IdEntry]] = {}


def plain_outcome(
    head: Head,
    position: Position | None,
    arrivals: Sequence[Arrival],
    ids: Mapping[str, IdEntry] | None,
    graph: DialogueGraph,
    log_name: str,
) -> Outcome | None:
    """Return what usual turns lead to, None where one of them is not usual.

    Args:
        head: The session's head.
        position: The last log position folded into it.
        arrivals: What came, in log order.
        ids: Entries of the turn index for the ids that the arrivals name.
        graph: The dialogue graph.
        log_name: The name under which this log stamps.
    """
    if ids or not _goes_on(head, log_name):
        # A known id is a duplicate, a conflict, or a redelivery.
        return None
    if arrivals[0].position.is_redelivery_after(position):
        return None
    names: set[str] = set()
    for arrival in arrivals:
        draft = arrival.draft
        body = draft.body
        turn_id = draft.turn_id
        if (
            draft.stamp is not None
            or draft.parents is not UNSET
            or draft.branch is not None
            or draft.if_version is not None
            or body.op is not None
            or body.action is not None
            or turn_id in names
        ):
            return None
        if turn_id is not None:
            names.add(turn_id)
    return _folded(head, arrivals, graph, log_name)


def _goes_on(head: Head, log_name: str) -> bool:
    """Say whether the next turn follows one head, all before it stamped here."""
    if not head.version:
        return True
    if len(head.nodes) != 1 or head.parked or head.ended or len(head.branches) != 1:
        return False
    branch = head.branches.get(MAIN)
    spans = head.clock.spans
    return (
        branch is not None
        and len(branch.heads) == 1
        and len(spans) == 1
        and spans.get(log_name) == (1, head.version)
    )


def _folded(
    head: Head, arrivals: Sequence[Arrival], graph: DialogueGraph, log_name: str
) -> Outcome:
    ops = _stamped(head, arrivals, log_name)
    answers: list[Answer] = []
    entries: dict[str, IdEntry] = {}
    for version, op in enumerate(ops, head.version + 1):
        turn_id = op.turn_id
        if turn_id is not None:
            entries[turn_id] = IdEntry(
                op.content_hash, log_name, version, op.lamport, version
            )
        answers.append(Answer(Verdict.ACCEPTED, version, turn_id or op.dot.address()))
    after = _head_after(head, ops, graph)
    return Outcome(after, ops, answers, entries, _NOTHING, {}, 0)


def plain_head(ops: Sequence[Op], graph: DialogueGraph) -> Head | None:
    """Return what the operations of a new session fold to, None if not all usual.

    What one log stamped, in its order, each turn after the one before: so lie
    most sessions in most recordings.

    Args:
        ops: All operations of a session.
        graph: The dialogue graph.
    """
    if not ops:
        return None
    first = ops[0]
    log_name = first.dot.replica
    parents: tuple[Dot, ...] = ()
    seen: SeenVector = {}
    names: set[str] = set()
    for counter, op in enumerate(ops, 1):
        body, dot = op.body, op.dot
        if (
            dot != (log_name, counter)
            or op.parents != parents
            or op.seen != seen
            or op.branch != MAIN
            or op.incarnation != first.incarnation
            or body.op is not None
            or body.action is not None
            or body.hidden is not None
        ):
            return None
        if op.turn_id is not None:
            names.add(op.turn_id)
        parents, seen = (dot,), {log_name: counter}
    if len(names) != sum([op.turn_id is not None for op in ops]):
        return None
    return _head_after(Head(incarnation=first.incarnation), ops, graph)


def _head_after(head: Head, ops: Sequence[Op], graph: DialogueGraph) -> Head:
    total = int.from_bytes(head.total, "big")
    turn_count, usage, lamport = head.turn_count, head.usage, head.lamport
    for op in ops:
        total += int.from_bytes(op.operation_hash, "big")
        body = op.body
        if body.continues is None:
            turn_count += 1
        if body.usage:
            usage = counters.count(usage, body.usage)
        lamport = max(lamport, op.lamport)
    last = ops[-1].dot
    log_name, version = last
    clock = DotSet({log_name: (1, version)})
    seen = DotSet({log_name: (1, version - 1)} if version > 1 else {})
    return Head(
        head.incarnation,
        version,
        clock,
        lamport,
        (total % S_MODULUS).to_bytes(32, "big"),
        turn_count,
        usage,
        {MAIN: Branch((last,), seen)},
        (_node_after(head, ops, graph, clock),),
        (),
        head.twins,
        head.ended,
        head.redacted,
        head.asides,
        head.moves,
    )


def _stamped(head: Head, arrivals: Sequence[Arrival], log_name: str) -> list[Op]:
    """Return the operations: each has seen, and follows, the one before."""
    version, lamport, incarnation = head.version, head.lamport, head.incarnation
    parents: tuple[Dot, ...] = head.branches[MAIN].heads if version else ()
    ops: list[Op] = []
    for arrival in arrivals:
        draft = arrival.draft
        seen: SeenVector = {log_name: version} if version else {}
        version += 1
        lamport = min(lamport + 1, COUNTER_MAX)
        dot = Dot(log_name, version)
        ops.append(
            Op.stamped(
                draft.body,
                draft.body_bytes,
                dot=dot,
                lamport=lamport,
                seen=seen,
                incarnation=incarnation,
                parents=parents,
                turn_id=draft.turn_id,
                time=draft.time,
                content_hash=draft.content_hash,
            )
        )
        parents = (dot,)
    return ops


def _node_after(
    head: Head, ops: Sequence[Op], graph: DialogueGraph, clock: DotSet
) -> NodeState:
    """Return the state at the last turn; no turn before it is a head any more."""
    if head.version:
        base = head.nodes[0]
        effective, recent = base.effective, list(base.recent)
        slots, tags, calls = base.slots.copy(), base.tags, base.open_calls
        phase, phase_error = base.phase, base.phase_error
        context = _context_after(base, head.version, clock)
    else:
        effective, recent, slots, tags, calls = 0, list[RecentTurn](), {}, {}, ()
        phase, phase_error, context = graph.start, None, clock
    for op in ops:
        body, dot = op.body, op.dot
        log_name, version = dot
        lamport = op.lamport
        effective = lamport if lamport > effective else effective + 1
        if body.slot_delete is not None:
            for name in body.slot_delete:
                slots.pop(name, None)
        if body.slot_set is not None:
            for name, value in body.slot_set.items():
                slots[name] = ((lamport, log_name, version, value),)
        if body.tag_add is not None or body.tag_remove is not None:
            tags = tag_set.write(tags, dot, body.tag_add or (), body.tag_remove or ())
        if body.tool_calls is not None:
            calls = (*calls, *calls_opened(op))
        if body.tool_call_id is not None and body.role == "tool":
            calls = tuple(call for call in calls if call[0] != body.tool_call_id)
        recent.append((effective, log_name, version, version))
    return NodeState(
        ops[-1].dot,
        effective,
        context,
        slots,
        tags,
        phase,
        phase_error,
        calls,
        tuple(recent[-RECENT_TURNS:]),
    )


def _context_after(base: NodeState, version: int, clock: DotSet) -> DotSet:
    """Return the past of the last turn: what its first parent knew, and the run.

    It is the session's clock, as long as all that was said lies in that past.
    """
    ((log_name, (_, top)),) = clock.spans.items()
    if base.context.spans.get(log_name) == (1, version):
        return clock
    return base.context.union(DotSet({log_name: (version + 1, top)}))
