"""Recorded operations as log records: a session's name and the canonical bytes."""

from typing import Final

import msgspec
from msgspec import UNSET, Struct

from turnstate.agents.session.step import Arrival
from turnstate.schemas.draft import Draft, DraftStamp
from turnstate.schemas.errors import InvalidInputError
from turnstate.schemas.ids import SessionName
from turnstate.schemas.operation import MAIN, Body, Op, encode_body
from turnstate.schemas.position import Position

FIRST_BYTE: Final = b"\x93"
"""What tells a recorded operation from JSON: a MessagePack array of three."""


class _Recorded(Struct, array_like=True, frozen=True, gc=False):
    tenant: str
    session: str
    record: bytes


_decoder: Final = msgspec.msgpack.Decoder(_Recorded)
_encode: Final = msgspec.msgpack.Encoder().encode
_ERASE: Final = Body(role="system", op="erase")
_ERASE_BYTES: Final = encode_body(_ERASE)


def recorded_bytes(name: SessionName, record: bytes) -> bytes:
    """Return the log record of a recorded operation; only our own doors write it."""
    return _encode((name.tenant, name.session, record))


def arrival_of_recorded(raw: bytes, position: Position) -> Arrival:
    """Read a recorded operation.

    Raises:
        InvalidInputError: the bytes are none.
    """
    try:
        recorded = _decoder.decode(raw)
        op = Op.decode(recorded.record)
    except (msgspec.MsgspecError, ValueError, TypeError) as error:
        raise InvalidInputError(
            f"no recorded operation: {error}", code="not_recorded"
        ) from error
    name = SessionName(recorded.tenant, recorded.session)
    return Arrival(draft_of_op(name, op), position, trusted=True, op=op)


def draft_of_op(name: SessionName, op: Op) -> Draft:
    """Return the draft that stamps to exactly this operation."""
    return Draft(
        name,
        name.key(),
        op.body,
        b"",
        op.content_hash,
        op.turn_id,
        op.time,
        op.parents,
        None if op.branch == MAIN else op.branch,
        DraftStamp(op.dot, op.lamport, op.seen, op.incarnation),
        None,
        None,
        None,
    )


def erase_draft(name: SessionName, incarnation: int | None) -> Draft:
    """Return the draft of an erase; None = the life that the owner is in."""
    return Draft(
        name,
        name.key(),
        _ERASE,
        _ERASE_BYTES,
        bytes(8),
        None,
        None,
        UNSET,
        None,
        None,
        None,
        None,
        incarnation,
    )
