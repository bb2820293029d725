"""What the warm tier keeps of a session that lies in the cold one: a pointer."""

from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from turnstate.schemas.dialogue.head import digest
from turnstate.schemas.errors import CorruptDataError
from turnstate.schemas.position import Position
from turnstate.storage.cold.pointer import Pointer
from turnstate.storage.row_checksum import (
    CHECKSUM_BYTES,
    with_checksum,
    without_checksum,
)
from turnstate.storage.session_image import SessionImage
from turnstate.storage.stored_head import (
    StoredHead,
    decode_stored_head,
    encode_stored_head,
)

_MARK: Final = 0xC1
"""The first byte behind the checksum: MessagePack never uses it, so no head
begins with it, and whoever does not know pointers finds no head."""


class ColdHead(Struct, array_like=True, frozen=True, gc=False):
    """Where a cold session lies, and what lists say of it without looking there.

    It stands in the place of the session's head, so that where a session is
    changes by one write, and nobody can take a cold session for a new one.

    Attributes:
        pointer: Where its image lies, and of which version.
        digest: Of its state.
        turn_count: Of its state.
        text_bytes: UTF-8 bytes of content and tool arguments.
        arrived_ms: When its last operation arrived.
        cooled_ms: When it was moved.
        position: The log position folded last.
        owner: The first user that the session named.
    """

    pointer: Pointer
    digest: bytes
    turn_count: int
    text_bytes: int
    arrived_ms: int
    cooled_ms: int
    position: Position | None = None
    owner: str | None = None

    @property
    def incarnation(self) -> int:
        """Return which life of the session it is."""
        return self.pointer.incarnation

    @property
    def version(self) -> int:
        """Return the version of the session."""
        return self.pointer.version


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(ColdHead)


def cold_head(stored: StoredHead, pointer: Pointer, now_ms: int) -> ColdHead:
    """Return what stays in the warm tier of a session that has been copied."""
    return ColdHead(
        pointer,
        digest(stored.head),
        stored.head.turn_count,
        stored.text_bytes,
        stored.arrived_ms,
        now_ms,
        stored.position,
        stored.owner,
    )


def woken_image(image: SessionImage, now_ms: int) -> SessionImage:
    """Return an image whose head says since when it is warm again.

    Whoever reads the head knows it then, after a restart and on another worker.
    """
    stored = replace(decode_stored_head(image.row), woken_ms=now_ms)
    return image._replace(row=encode_stored_head(stored))


def is_cold_row(row: bytes) -> bool:
    """Say whether a row of the heads' table is a pointer."""
    return len(row) > CHECKSUM_BYTES and row[CHECKSUM_BYTES] == _MARK


def encode_cold_head(cold: ColdHead) -> bytes:
    """Return the row of a pointer: CRC32C, mark, MessagePack."""
    return with_checksum(bytes([_MARK]) + _encoder.encode(cold))


def decode_cold_head(row: bytes) -> ColdHead:
    """Invert `encode_cold_head`.

    Raises:
        ChecksumError: the row does not match its checksum.
        CorruptDataError: it is no pointer.
    """
    data = without_checksum(row, "the row of a cold session")
    try:
        return _decoder.decode(data[1:])
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise CorruptDataError(f"the row of a cold session: {error}") from error
