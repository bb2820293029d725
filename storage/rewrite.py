"""Decide what a rewrite takes out of a session: stubs in the place of operations."""

from collections.abc import Mapping, Sequence

from turnstate.schemas.clocks import Dot, DotSet
from turnstate.schemas.dialogue.turn_index import IdEntry
from turnstate.schemas.operation import Op, target_of


def without_redacted(
    ops: Sequence[Op],
    redacted: DotSet,
    ids: Mapping[str, IdEntry],
    user: str | None = None,
) -> list[Op]:
    """Return the operations of a session with stubs where text has to go.

    A stub goes in the place of each redacted turn, of each edit of one, and of
    whatever `user` said. Stubs fold as the operations did and have their hash,
    so the digest stays.

    Args:
        ops: All operations, in version order.
        redacted: The dots that the session's head names as redacted.
        ids: What answers to each turn id.
        user: Whose operations go, too.
    """
    return [op.stub() if _goes(op, redacted, ids, user) else op for op in ops]


def _goes(
    op: Op, redacted: DotSet, ids: Mapping[str, IdEntry], user: str | None
) -> bool:
    if op.dot in redacted or (user is not None and op.body.user == user):
        return True
    if op.body.op != "edit" or op.body.target is None:
        return False
    reference = target_of(op)
    if isinstance(reference, str):
        entry = ids.get(reference)
        return entry is not None and entry.dot in redacted
    return reference in redacted


def said_by(ops: Sequence[Op], user: str, redacted: DotSet) -> list[Dot]:
    """Return the turns of a user that are not redacted yet."""
    return [
        op.dot
        for op in ops
        if op.body.user == user and op.body.op is None and op.dot not in redacted
    ]
