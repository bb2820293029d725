"""Operations that wait: for what they wait, and how they lie in the head."""

from collections.abc import Iterable

from turnstate.schemas.operation import Body, Op, Reference, encode_body, target_of
from turnstate.schemas.wire.tool_calls import calls_without_arguments

NODE_KINDS = frozenset({None, "rollback", "fork"})
"""Values of `Body.op` that are nodes of the DAG."""


def references_of(op: Op) -> Iterable[Reference]:
    """Return what has to come before an operation can be attached."""
    if op.body.op in NODE_KINDS:
        return op.parents
    return () if op.body.target is None else (target_of(op),)


def without_text(op: Op) -> Op:
    """Return what the fold needs of a parked operation: no text in the head."""
    body = op.body
    light = Body(
        role=body.role,
        tool_calls=body.tool_calls and calls_without_arguments(body.tool_calls),
        tool_call_id=body.tool_call_id,
        slot_set=body.slot_set,
        slot_delete=body.slot_delete,
        tag_add=body.tag_add,
        tag_remove=body.tag_remove,
        action=body.action,
        op=body.op,
        target=body.target,
        to=body.to,
        hidden=body.hidden,
    )
    return Op.stamped(
        light,
        encode_body(light),
        dot=op.dot,
        lamport=op.lamport,
        seen=op.seen,
        incarnation=op.incarnation,
        parents=op.parents,
        branch=op.branch,
        turn_id=op.turn_id,
        time=op.time,
        content_hash=op.content_hash,
    )
