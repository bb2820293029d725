"""Say which fields each operation needs, may carry, and may not."""

from typing import Final

from msgspec import UNSET

from turnstate.schemas.errors import InvalidInputError
from turnstate.schemas.ids import checked_id
from turnstate.schemas.operation import MAIN
from turnstate.schemas.turn import OPERATIONS, Turn

_EFFECTS: Final = (
    "content",
    "tool_calls",
    "tool_call_id",
    "slots",
    "tags",
    "usage",
    "action",
    "continues",
    "target",
    "to",
    "parent",
)
"""Fields that a fold acts on; what only describes (user, metadata) may ride along."""

_MAY_CARRY: Final = {
    "edit": frozenset({"content", "target"}),
    "redact": frozenset({"target"}),
    "rollback": frozenset({"to", "parent"}),
    "fork": frozenset({"target", "to", "parent"}),
    "end": frozenset({"to"}),
    "erase": frozenset[str](),
}

NODE_KINDS: Final = frozenset({None, "turn", "rollback", "fork"})
"""Values of `op` whose operations stand in the graph of turns, with parents."""


def check_operation(turn: Turn, *, stamped: bool) -> None:
    """Refuse an operation that lacks what it needs, or carries what it cannot do.

    Args:
        turn: A turn with `op`, `target` or `to`.
        stamped: Its parents are given; what they were made of may stand beside.

    Raises:
        InvalidInputError: the field at fault is named; an unknown `op` has
            the code `unknown_op`.

    Example:
        >>> check_operation(Turn("t", "s", "user", op="edit"), stamped=False)
        Traceback (most recent call last):
        ...
        turnstate.schemas.errors.InvalidInputError: edit has no target (name a turn)
    """
    op = turn.op
    if op is None:
        field = "target" if turn.target is not None else "to"
        raise _refusal(f"{field} is given without op", field, "say which operation")
    may_carry = _MAY_CARRY.get(op) if type(op) is str else None
    if may_carry is None:
        shown = repr(op)
        raise _refusal(
            f"op {shown if len(shown) <= 80 else shown[:80] + '…'} is unknown",
            "op",
            f"send one of {', '.join(OPERATIONS)}",
            "unknown_op",
        )
    if stamped and op in ("edit", "redact"):
        may_carry |= {"parent"}  # The turn that its target is known to be.
    for field in _EFFECTS:
        value = getattr(turn, field)
        if value is not None and value is not UNSET and field not in may_carry:
            raise _refusal(f"{op} carries no {field}", field, "leave it out")
    if op in ("edit", "redact"):
        if turn.target is None:
            raise _refusal(f"{op} has no target", "target", "name a turn")
        if op == "edit" and turn.content is UNSET:
            raise _refusal("edit has no content", "content", "send the new content")
    elif op == "end":
        if turn.to is not None:
            checked_id(turn.to, "to")
    elif op == "erase":
        if turn.stamp is not None:
            raise _refusal("erase carries no stamp", "stamp", "leave it out")
    else:
        _check_start(turn, op, stamped=stamped)


def _check_start(turn: Turn, op: str, *, stamped: bool) -> None:
    """Check where a rollback or a fork starts from."""
    if turn.to is not None and type(turn.to) is not dict:
        raise _refusal(f"{op} goes to a clock", "to", "send {replica: counter}")
    if op == "fork" and turn.branch in (None, MAIN):
        raise _refusal("fork has no branch of its own", "branch", "name the new branch")
    starts = [
        field
        for field, is_given in (
            ("target", turn.target is not None),
            ("to", turn.to is not None),
            ("parent", turn.parent is not UNSET),
        )
        if is_given
    ]
    if op == "rollback" and not starts:
        raise _refusal("rollback goes nowhere", "to", "send a clock, or a parent")
    if len(starts) > 1 and not stamped:
        raise _refusal(
            f"{op} starts from {' and '.join(starts)}", starts[-1], "leave one"
        )


def _refusal(
    what: str, field: str, hint: str, code: str | None = None
) -> InvalidInputError:
    return InvalidInputError(what, field=field, hint=hint, code=code)
