"""Make of a turn a checked draft: all that admission and stamping need to know."""

import re
from datetime import datetime
from functools import lru_cache
from typing import Final

from msgspec import UNSET, Struct, UnsetType

from turnstate.schemas.errors import InvalidInputError
from turnstate.schemas.ids import SessionName, checked_id, checked_turn_id
from turnstate.schemas.limits import TIME_MS_ABS_MAX
from turnstate.schemas.operation import MAIN, Body, Op, Reference, content_hash_of
from turnstate.schemas.turn import SeenWire, Stamp, Turn
from turnstate.schemas.wire.body import (
    HIDDEN_FIELD,
    body_from_turn,
    encoded_body,
    message_of,
)
from turnstate.schemas.wire.op_rules import NODE_KINDS, check_operation
from turnstate.schemas.wire.references import (
    DraftStamp,
    checked_counter,
    checked_parents,
    checked_reference,
    checked_stamp,
)

__all__ = ["Draft", "DraftStamp", "draft_from_turn", "turn_from_op"]

_TIME_LETTERS_MAX: Final = 64
"""An ISO 8601 time with nine digits of a second has 35."""

_TIME_SHAPE: Final = re.compile(
    r"[0-9W-]{7,10}[Tt][0-9:.,]+(?:[Zz]|[-+][0-9:]+)", re.ASCII
)
"""Python alone takes any letter for the T, and stops reading at a NUL."""

_SESSIONS_KNOWN: Final = 32_768
"""So many sessions may go on at once; the name of each is checked once."""


class Draft(Struct, frozen=True, gc=False):
    """A turn that may be admitted: checked, canonical, not yet stamped.

    It depends on the turn alone, never on what is stored.

    Attributes:
        name: Tenant and session.
        key: The session key of that name.
        body: What the turn says.
        body_bytes: The body's canonical bytes.
        content_hash: By which two copies of a turn are known equal.
        turn_id: Its id, or None.
        time: As it came.
        parents: UNSET = the turn names none; () = it says that it is a root.
        branch: None = main.
        stamp: The stamp that it came with, if any.
        if_version: The version that its sender had read.
        request_id: The sender's name for the request.
        incarnation: Only of an erase: the life that it ends.
    """

    name: SessionName
    key: bytes
    body: Body
    body_bytes: bytes
    content_hash: bytes
    turn_id: str | None
    time: int | str | None
    parents: tuple[Reference, ...] | UnsetType
    branch: str | None
    stamp: DraftStamp | None
    if_version: int | None
    request_id: str | None
    incarnation: int | None


def draft_from_turn(turn: Turn, *, recorded: bool = False) -> Draft:
    """Check a turn and bring it into its canonical form.

    Args:
        turn: From JSON, or built by a caller: nothing of it is trusted.
        recorded: The turn comes from a recording of ours, not from a producer:
            an owner's stamp may stand beside ids that were unknown when it
            stamped, and beside what a rewrite left of a redacted turn.

    Raises:
        InvalidInputError: the field at fault is named.

    Example:
        >>> draft = draft_from_turn(Turn("t", "s", "user", content="hi"))
        >>> draft.name, draft.body.content, draft.parents
        (SessionName(tenant='t', session='s'), 'hi', UNSET)
    """
    tenant, session = turn.tenant, turn.session
    if type(tenant) is not str or type(session) is not str:
        checked_id(tenant, "tenant")
        checked_id(session, "session")
    name, key = _known_session(tenant, session)
    turn_id = turn.turn_id
    if turn_id is not None:
        checked_turn_id(turn_id)
    branch = turn.branch
    if branch is not None:
        checked_id(branch, "branch")
        if branch == MAIN:
            branch = None
    stamp = None if turn.stamp is None else checked_stamp(turn.stamp, recorded=recorded)
    by_address = stamp is not None and not recorded
    parents: tuple[Reference, ...] | UnsetType = UNSET
    if turn.parent is not UNSET:
        parents = checked_parents(
            turn.parent, only_addresses=by_address, bounded=not recorded
        )
        _refuse_itself(parents, turn_id, stamp)
    if turn.op is not None or turn.target is not None or turn.to is not None:
        is_stub = recorded and turn.extra is not None and HIDDEN_FIELD in turn.extra
        if not is_stub:
            check_operation(turn, stamped=stamp is not None)
        if turn.target is not None:
            checked_reference(turn.target, "target", only_addresses=by_address)
    if stamp is not None and parents is UNSET:
        parents = _parents_of_stamped(turn)
    time = turn.time
    if time is not None:
        _check_time(time)
    if turn.if_version is not None:
        checked_counter(turn.if_version, "if_version", least=0)
    if turn.request_id is not None:
        checked_id(turn.request_id, "request_id")
    if turn.incarnation is not None:
        _check_incarnation(turn)
    body = body_from_turn(turn, recorded=recorded and stamp is not None)
    body_bytes = encoded_body(body)
    hidden = body.hidden
    return Draft(
        name,
        key,
        body,
        body_bytes,
        content_hash_of(body_bytes) if hidden is None else hidden.content_hash,
        turn_id,
        time,
        parents,
        branch,
        stamp,
        turn.if_version,
        turn.request_id,
        turn.incarnation,
    )


def stamped_op(draft: Draft) -> Op:
    """Return the operation that a draft with a stamp of its own is."""
    stamp = draft.stamp
    assert stamp is not None, "only a stamped draft is an operation by itself"
    return Op.stamped(
        draft.body,
        draft.body_bytes,
        dot=stamp.dot,
        lamport=stamp.lamport,
        seen=stamp.seen,
        incarnation=stamp.incarnation,
        parents=() if draft.parents is UNSET else draft.parents,
        branch=draft.branch or MAIN,
        turn_id=draft.turn_id,
        time=draft.time,
        content_hash=draft.content_hash,
    )


def turn_from_op(name: SessionName, op: Op) -> Turn:
    """Return the wire form of a stamped operation.

    `draft_from_turn(…, recorded=True)` gives back an equal record, and equal
    operations have equal wire forms (tests/property/test_wire_laws.py).

    Args:
        name: The session, which the operation does not hold.
        op: The operation; dots become addresses, ids stay ids.
    """
    seen: SeenWire = {
        replica: high if isinstance(high, int) else list(high)
        for replica, high in sorted(op.seen.items())
    }
    parent: str | list[str] | UnsetType | None = UNSET
    if op.kind in NODE_KINDS or op.parents:
        names = [
            each if isinstance(each, str) else each.address() for each in op.parents
        ]
        parent = (names[0] if len(names) == 1 else names) if names else None
    return Turn(
        tenant=name.tenant,
        session=name.session,
        turn_id=op.turn_id,
        parent=parent,
        branch=None if op.branch == MAIN else op.branch,
        time=op.time,
        stamp=Stamp((op.dot.replica, op.dot.counter), op.lamport, seen, op.incarnation),
        **message_of(op.body),
    )


@lru_cache(maxsize=_SESSIONS_KNOWN)
def _known_session(tenant: str, session: str) -> tuple[SessionName, bytes]:
    name = SessionName(checked_id(tenant, "tenant"), checked_id(session, "session"))
    return name, name.key()


def _refuse_itself(
    parents: tuple[Reference, ...],
    turn_id: str | None,
    stamp: DraftStamp | None,
) -> None:
    """Refuse a turn that is to follow itself: it could never be attached."""
    for parent in parents:
        if parent == turn_id or (stamp is not None and parent == stamp.dot):
            raise InvalidInputError(
                "the turn is its own parent", field="parent", hint="name another turn"
            )


def _parents_of_stamped(turn: Turn) -> tuple[Reference, ...]:
    """Return no parents for what stands outside the graph; a node names its own."""
    if turn.op in NODE_KINDS:
        raise InvalidInputError(
            "parent is missing in a stamped turn",
            field="parent",
            hint="name what the turn follows, or null for a root",
        )
    return ()


def _check_time(time: object) -> None:
    """Check a time that is kept exactly as it came; it never orders."""
    if type(time) is int:
        if -TIME_MS_ABS_MAX <= time <= TIME_MS_ABS_MAX:
            return
    elif type(time) is str and len(time) <= _TIME_LETTERS_MAX:
        try:
            if _TIME_SHAPE.fullmatch(time) and datetime.fromisoformat(time).tzinfo:
                return
        except ValueError:
            pass  # a day or an hour that there is not
    raise InvalidInputError(
        "time is neither ISO 8601 with an offset nor milliseconds since 1970",
        field="time",
        hint="send 2024-05-01T12:00:00+02:00, or an integer",
    )


def _check_incarnation(turn: Turn) -> None:
    if turn.op != "erase":
        raise InvalidInputError(
            "incarnation is given without an erase",
            field="incarnation",
            hint="send it in the stamp",
        )
    checked_counter(turn.incarnation, "incarnation")
