"""Count how many drawn sets of operations show each kind of event that matters."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from support.strategies import GRAPH
from turnstate.schemas.clocks import Dot
from turnstate.schemas.dialogue.fold_set import (
    Node,
    attached_nodes,
    finder,
    fold_set,
    group_of,
)
from turnstate.schemas.operation import Op

KINDS: Final = (
    "concurrent turns",
    "copies under one id",
    "conflict under one id",
    "several heads",
    "join of heads",
    "regeneration",
    "rollback",
    "fork",
    "edit",
    "rival edits",
    "redact",
    "end",
    "parked",
    "parent by id",
    "attached by id",
    "tag removed",
    "slot deleted",
    "siblings",
    "open call",
    "call answered",
    "legal action",
    "illegal action",
    "usage",
    "continues",
    "stub",
    "odd lamport",
    "odd seen",
    "child before parent",
)
"""Every kind that the laws are to be held against."""


def kinds_of(ops: list[Op]) -> set[str]:
    """Return the kinds that a set of operations shows, by what is in it."""
    held = {op.dot: op for op in sorted(ops, key=lambda op: op.order)}
    nodes = attached_nodes(held, finder(held))
    return _kinds_of_each(held) | _kinds_of_dag(nodes) | _kinds_of_whole(ops, held)


def _kinds_of_each(held: dict[Dot, Op]) -> set[str]:
    found: set[str] = {op.kind for op in held.values()} - {"turn"}
    for op in held.values():
        body = op.body
        shows = {
            "parent by id": any(isinstance(parent, str) for parent in op.parents),
            "tag removed": body.tag_remove,
            "slot deleted": body.slot_delete,
            "call answered": body.role == "tool" and body.tool_call_id,
            "usage": body.usage,
            "continues": body.continues,
            "stub": body.hidden,
            "odd seen": any(
                other not in held or held[other].lamport >= op.lamport
                for other in list(op.seen_set())
            ),
        }
        found |= {kind for kind, shown in shows.items() if shown}
    return found


def _kinds_of_dag(nodes: dict[Dot, Node]) -> set[str]:
    found: set[str] = set()
    for node in nodes.values():
        op = node.op
        seen = op.seen_set()
        left_out = [
            other
            for other in nodes.values()
            if other.op.branch == op.branch
            and other.op.dot in seen
            and not other.bit & (node.past | node.bit)
        ]
        shows = {
            "join of heads": len(node.parents) > 1,
            "regeneration": op.kind == "turn" and op.parents and left_out,
            "odd lamport": op.lamport < node.listed[0],
            "attached by id": any(isinstance(parent, str) for parent in op.parents),
            "child before parent": any(
                parent.op.order > op.order for parent in node.parents
            ),
            "concurrent turns": any(
                not other.bit & node.past
                and not node.bit & other.past
                and other.op.branch == op.branch
                and other.op.dot not in seen
                and op.dot not in other.op.seen_set()
                for other in nodes.values()
                if other is not node
            ),
        }
        found |= {kind for kind, shown in shows.items() if shown}
    return found


def _kinds_of_whole(ops: list[Op], held: dict[Dot, Op]) -> set[str]:
    folded = fold_set(ops, GRAPH)
    branches = list(folded["branches"].values())
    groups = [group_of(op) for op in held.values()]
    edits = [op for op in held.values() if op.kind == "edit"]
    actions = [op.body.action for op in held.values() if op.body.action]
    shows = {
        "copies under one id": len(set(groups)) < len(groups),
        "conflict under one id": folded["conflicts"],
        "several heads": any(len(branch["heads"]) > 1 for branch in branches),
        "siblings": any(
            len(entries) > 1
            for branch in branches
            for entries in branch["slots"].values()
        ),
        "open call": any(branch["open"] for branch in branches),
        "legal action": any(branch["phase"] != GRAPH.start for branch in branches),
        "illegal action": "sing" in actions,
        "parked": folded["parked"],
        "rival edits": len(edits) > 1
        and len({op.body.target for op in edits}) < len(edits),
    }
    return {kind for kind, shown in shows.items() if shown}


def shares(worlds: Iterable[list[Op]]) -> dict[str, float]:
    """Return the share of the worlds that shows each kind."""
    counts: Counter[str] = Counter()
    total = 0
    for ops in worlds:
        total += 1
        counts.update(kinds_of(ops))
    return {kind: counts[kind] / max(total, 1) for kind in KINDS}


def table(found: dict[str, float]) -> str:
    """Return the shares as lines to print, the rarest first."""
    rising = sorted(found.items(), key=lambda item: item[1])
    return "\n".join(f"{share:6.1%}  {kind}" for kind, share in rising)
