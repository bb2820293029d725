"""Write stamped operations by hand, one short line each."""

from typing import Any

from turnstate.schemas.clocks import Dot
from turnstate.schemas.operation import (
    MAIN,
    Body,
    Op,
    Reference,
    SeenVector,
    encode_body,
)


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
