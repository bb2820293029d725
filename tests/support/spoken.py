"""Write stamped operations by hand, one short line each, and fold them."""

from itertools import permutations
from typing import Any, Final

from turnstate.schemas.clocks import Dot
from turnstate.schemas.dialogue.fold_set import fold_set
from turnstate.schemas.dialogue.folded import Folded, FoldedBranch
from turnstate.schemas.dialogue.phases import default_graph
from turnstate.schemas.operation import (
    MAIN,
    Body,
    Op,
    Reference,
    SeenVector,
    encode_body,
)

GRAPH: Final = default_graph()


def dot(address: str) -> Dot:
    """Return the dot that `a1` stands for: replica a, counter 1."""
    return Dot(address[0], int(address[1:]))


def said(
    address: str,
    *follows: str,
    seen: SeenVector | None = None,
    lamport: int | None = None,
    branch: str = MAIN,
    turn_id: str | None = None,
    role: str = "user",
    **fields: Any,
) -> Op:
    """Return an operation.

    Args:
        address: Its dot, as `a1`.
        follows: Its parents: dots as `a1`, or ids, which have no digit second.
        seen: What it had seen; its own replica's earlier dots if not given.
        lamport: Its counter if not given.
        branch: Its branch.
        turn_id: Its id.
        role: Its role.
        fields: What else its body holds.
    """
    own = dot(address)
    body = Body(role=role, **fields)
    parents: tuple[Reference, ...] = tuple(
        dot(name) if name[1:].isdigit() else name for name in follows
    )
    if seen is None:
        seen = {own.replica: own.counter - 1} if own.counter > 1 else {}
    return Op.stamped(
        body,
        encode_body(body),
        dot=own,
        lamport=own.counter if lamport is None else lamport,
        seen=seen,
        incarnation=1,
        parents=parents,
        branch=branch,
        turn_id=turn_id,
    )


def fold(*ops: Op) -> Folded:
    """Return what the operations fold into, by the definition, in any order."""
    folded = fold_set(ops, GRAPH)
    orders = permutations(ops) if len(ops) <= 4 else [ops[::-1], ops[1:] + ops[:1]]
    for order in orders:
        assert fold_set(order, GRAPH) == folded
    assert fold_set([*ops, *ops], GRAPH) == folded
    return folded


def branch(*ops: Op, name: str = MAIN) -> FoldedBranch:
    """Return one branch of what the operations fold into."""
    return fold(*ops)["branches"][name]


def shown(state: FoldedBranch) -> dict[str, list[bytes]]:
    """Return the values of the slots, the shown one first."""
    return {
        name: [entry[3] for entry in entries]
        for name, entries in state["slots"].items()
    }


def names(dots: list[Dot]) -> list[str]:
    """Return the short names of dots, as `said` takes them."""
    return [f"{each.replica}{each.counter}" for each in dots]
