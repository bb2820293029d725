"""What stays readable of the head of an encrypted session, and stands for it erased."""

from typing import Final

import msgspec
from msgspec import Struct

from turnstate.schemas.dialogue.head import Head
from turnstate.schemas.errors import CorruptDataError
from turnstate.schemas.position import Position
from turnstate.storage.encryption.cipher import front_of
from turnstate.storage.stored_head import StoredHead


class HeadFront(Struct, array_like=True, frozen=True, gc=False):
    """Where a session stands; nothing of what was said.

    Attributes:
        incarnation: Which life of the session.
        version: Of the head.
        position: The log position folded last.
    """

    incarnation: int
    version: int
    position: Position | None = None


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(HeadFront)


def head_front(stored: StoredHead) -> bytes:
    """Return what stays readable of a head."""
    head = stored.head
    return _encoder.encode(HeadFront(head.incarnation, head.version, stored.position))


def tombstone_of(row: bytes) -> StoredHead:
    """Return what stands in the place of a head whose key was destroyed.

    The same as the erase that destroyed it has left: the next life of the
    session, empty, at the log position that was folded. So a copy of the store
    that is older than the erase goes on as if it had been told.

    Raises:
        CorruptDataError: nothing can be read of it.
    """
    try:
        front = _decoder.decode(front_of(row))
    except (msgspec.MsgspecError, ValueError) as error:
        raise CorruptDataError(f"the front of an encrypted head: {error}") from error
    return StoredHead(
        Head(incarnation=front.incarnation + 1), front.position, erased=True
    )
