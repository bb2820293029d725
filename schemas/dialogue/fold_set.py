"""Define what a set of operations folds into: naive, the whole set at once."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import reduce
from typing import Final, NamedTuple

import msgspec
from msgspec import UnsetType

from turnstate.schemas.clocks import Dot, DotSet, dot_from_address
from turnstate.schemas.dialogue.folded import Call, Entry, Folded, FoldedBranch, Graph
from turnstate.schemas.errors import InvalidInputError
from turnstate.schemas.ids import ADDRESS_SIGN
from turnstate.schemas.limits import RECENT_TURNS
from turnstate.schemas.operation import Body, Op, Reference, name_hash, target_of

NODE_KINDS: Final = ("turn", "rollback", "fork")
"""What stands in the DAG; edit, redact and end speak about it."""

Find = Callable[[Reference], Op | None]


class Node(NamedTuple):
    """An attached operation. A set of nodes is an int in which each has a bit."""

    op: Op
    parents: list["Node"]
    bit: int
    past: int
    listed: tuple[int, str, int]


def fold_set(ops: Iterable[Op], graph: Graph) -> Folded:
    """Return what the operations fold into, by definition (design §3 and §4).

    Every law compares the incremental fold with this. It knows no order of
    arrival, and an operation given twice counts once.

    Args:
        ops: Operations of one incarnation, in any order.
        graph: The phases of the dialogue.

    Example:
        >>> from turnstate.schemas.dialogue.phases import default_graph
        >>> fold_set([], default_graph())["version"]
        0
    """
    held = {op.dot: op for op in sorted(ops, key=lambda op: op.order)}
    find = finder(held)
    groups: defaultdict[object, list[Op]] = defaultdict(list)
    for op in held.values():
        groups[group_of(op)].append(op)
    turns = [group[0] for group in groups.values() if group[0].kind == "turn"]
    nodes = attached_nodes(held, find)
    ends = [op for op in held.values() if op.kind == "end"]
    about: dict[Dot, object] = {}  # edit or redact → the group that it is about
    for op in held.values():
        target = find(target_of(op)) if op.body.target is not None else None
        if op.kind in ("edit", "redact") and target and target.kind == "turn":
            about[op.dot] = group_of(target)
    redacts = [group for dot, group in about.items() if held[dot].kind == "redact"]
    redacted = {copy.dot for group in redacts for copy in groups[group]}
    usage: dict[str, list[int]] = {}
    for turn in turns:
        for name, amount in (turn.body.usage or {}).items():
            usage.setdefault(name, [0, 0])[amount < 0] += abs(amount)
    total = sum(int.from_bytes(op.operation_hash, "big") for op in held.values())
    return {
        "version": len(held),
        "clock": DotSet.of(held).sorted_spans(),
        "sum": (total % (1 << 256)).to_bytes(32, "big"),
        "lamport": max((op.lamport for op in held.values()), default=0),
        "turn_count": sum(turn.body.continues is None for turn in turns),
        "usage": usage,
        "parked": sorted(
            held.keys() - nodes.keys() - about.keys() - {e.dot for e in ends}
        ),
        "conflicts": sorted(
            (op.turn_id, op.dot)
            for op in held.values()
            if op.turn_id and (first := find(op.turn_id))
            if group_of(first) != group_of(op)
        ),
        "redacted": sorted(redacted),
        "branches": {
            name: _branch(name, nodes, redacted, graph)
            for name in {op.branch for op in ends}
            | {n.op.branch for n in nodes.values()}
        },
        "ended": {op.branch: [*op.order, op.body.to] for op in ends},
        "texts": _texts([held[dot] for dot in about], about, groups, redacted),
    }


def finder(held: dict[Dot, Op]) -> Find:
    """Return what resolves references among operations given in the total order."""
    answering = {op.turn_id: op for op in reversed(held.values()) if op.turn_id}

    def find(reference: Reference) -> Op | None:
        if isinstance(reference, Dot):
            return held.get(reference)
        if not reference.startswith(ADDRESS_SIGN):
            return answering.get(reference)
        try:
            return held.get(dot_from_address(reference, "reference"))
        except InvalidInputError:
            return None

    return find


def group_of(op: Op) -> object:
    """Return what the copies of one turn have in common."""
    return (op.turn_id, op.content_hash) if op.turn_id else op.dot


def attached_nodes(held: dict[Dot, Op], find: Find) -> dict[Dot, Node]:
    """Return the nodes whose parents are all attached, parents first.

    The least such set: what waits for itself stays parked.
    """
    nodes: dict[Dot, Node] = {}
    waiting, before = [op for op in held.values() if op.kind in NODE_KINDS], -1
    while len(nodes) != before:
        before, left = len(nodes), list[Op]()
        for op in waiting:
            found = [find(reference) for reference in op.parents]
            parents = [nodes[one.dot] for one in found if one and one.dot in nodes]
            if len(parents) < len(found):
                left.append(op)
                continue
            past = 0
            for parent in parents:
                past |= parent.past | parent.bit
            effective = max([op.lamport, *(1 + parent.listed[0] for parent in parents)])
            listed = (effective, op.dot.replica, op.dot.counter)
            nodes[op.dot] = Node(op, parents, 1 << len(nodes), past, listed)
        waiting = left
    return nodes


def _branch(
    name: str, nodes: dict[Dot, Node], redacted: set[Dot], graph: Graph
) -> FoldedBranch:
    mine = [node for node in nodes.values() if node.op.branch == name]
    followed = {parent.op.dot for node in mine for parent in node.parents}
    seen = reduce(DotSet.union, (node.op.seen_set() for node in mine), DotSet())
    heads = [n for n in mine if n.op.dot not in followed and n.op.dot not in seen]
    heads.sort(key=lambda node: node.listed, reverse=True)
    within = 0
    for head in heads:
        within |= head.past | head.bit
    past = sorted((n for n in nodes.values() if n.bit & within), key=lambda n: n.listed)
    turns = [node.op for node in past if node.op.kind == "turn"]
    first = {
        group_of(op): op for op in sorted(turns, key=lambda o: o.order, reverse=True)
    }
    phase, phase_error, calls = _dialogue(heads[0] if heads else None, graph)
    slots: dict[str, list[Entry]] = {}
    for slot, entries in _standing(past, _slots, redacted).items():
        entries.sort(reverse=True)
        values = [entry[3] for entry in entries]
        slots[slot] = [e for at, e in enumerate(entries) if e[3] not in values[:at]]
    return {
        "heads": [head.op.dot for head in heads],
        "slots": slots,
        "tags": sorted(_standing(past, _tags, redacted)),
        "phase": phase,
        "phase_error": phase_error,
        "open": [call for call in calls if call[2] not in redacted],
        "recent": [turn.dot for turn in turns[-RECENT_TURNS:]],
        "turns": [turn.dot for turn in turns if first[group_of(turn)] is turn],
    }


Writes = dict[bytes, tuple[str, bytes | None]]
"""hash of a name → the name, and the value or None where it is taken away."""


def _slots(body: Body) -> Writes:
    hidden: Writes = dict.fromkeys(
        body.hidden.slot_names if body.hidden else (), ("", None)
    )
    gone = {name_hash(name): (name, None) for name in body.slot_delete or ()}
    return (
        hidden | gone | {name_hash(n): (n, v) for n, v in (body.slot_set or {}).items()}
    )


def _tags(body: Body) -> Writes:
    hidden: Writes = dict.fromkeys(
        body.hidden.tag_names if body.hidden else (), ("", None)
    )
    gone = {name_hash(tag): (tag, None) for tag in body.tag_remove or ()}
    return hidden | gone | {name_hash(tag): (tag, b"") for tag in body.tag_add or ()}


def _standing(
    past: list[Node], written: Callable[[Body], Writes], redacted: set[Dot]
) -> dict[str, list[Entry]]:
    """Return by name what is there: a write replaces those of its own past.

    What takes a name away, and what is redacted, replaces too but is not there.
    """
    replaced: defaultdict[bytes, int] = defaultdict(int)
    for node in past:
        for key in written(node.op.body):
            replaced[key] |= node.past
    standing: dict[str, list[Entry]] = {}
    for node in past:
        for key, (name, value) in written(node.op.body).items():
            hides = node.bit & replaced[key] or node.op.dot in redacted
            if value is not None and not hides:
                standing.setdefault(name, []).append((*node.op.order, value))
    return standing


def _dialogue(
    node: Node | None, graph: Graph
) -> tuple[str, dict[str, str] | None, list[Call]]:
    """Return phase, phase error and open calls along the line of first parents."""
    line: list[Op] = []
    while node:
        line.append(node.op)
        node = node.parents[0] if node.parents else None
    phase, phase_error, calls = graph.start, None, list[Call]()
    for op in reversed(line):
        action = op.body.action
        if action is not None:
            after = graph.transition(phase, action)
            error = {"action": action, "turn": op.address(), "phase": phase}
            phase_error = error if after is None else None
            phase = phase if after is None else after
        if op.body.role == "tool":
            calls = [call for call in calls if call[0] != op.body.tool_call_id]
        if op.body.role == "assistant" and op.body.tool_calls:
            for call in msgspec.json.decode(op.body.tool_calls):
                calls.append((call["id"], call["function"]["name"], op.dot))
    return phase, phase_error, calls


def _texts(
    operations: list[Op],
    about: dict[Dot, object],
    groups: dict[object, list[Op]],
    redacted: set[Dot],
) -> dict[Dot, str | bytes | None]:
    """Return each edited text: of the edits that no other had seen, the last."""
    texts: dict[Dot, str | bytes | None] = {}
    edits = [op for op in operations if op.kind == "edit"]
    for edit in edits:  # in the total order
        rivals = [o for o in edits if about[o.dot] == about[edit.dot] and o is not edit]
        text = edit.body.content if edit.body.parts is None else edit.body.parts
        if isinstance(text, UnsetType) or any(edit.dot in o.seen_set() for o in rivals):
            continue
        for copy in groups[about[edit.dot]]:
            if copy.dot not in redacted:
                texts[copy.dot] = text
    return texts
