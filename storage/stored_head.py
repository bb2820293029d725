"""A session's head as a store keeps it: the state and where its bytes stand."""

from typing import Final

import msgspec
from msgspec import Struct

from turnstate.schemas.dialogue.head import EMPTY_HEAD, Head
from turnstate.schemas.dialogue.turn_index import IdEntry
from turnstate.schemas.errors import CorruptDataError
from turnstate.schemas.position import Position
from turnstate.storage.frames.chain import START_LINK
from turnstate.storage.row_checksum import with_checksum, without_checksum


class StoredHead(Struct, array_like=True, frozen=True, gc=False):
    """Everything a store keeps of a session outside frames, segments and index.

    Attributes:
        head: The state; an erased session keeps an empty one as tombstone.
        position: The log position folded last.
        link: The newest link of the chain, kept apart from the chain.
        sealed_version: Up to here the operations lie in segments.
        segment_link: The link of the newest segment.
        frame_turns: Operations in frames since the last seal.
        frame_bytes: Record bytes in frames since the last seal.
        text_bytes: UTF-8 bytes of content and tool arguments.
        arrived_ms: When the last operation arrived; decides what is cold.
        owner: The first user that the session named.
        erased: Whether this incarnation began by an erase.
        woken_ms: When it came back from the cold tier, and nothing was said
            since; 0 = what is here was said here. It stays a while.
    """

    head: Head = EMPTY_HEAD
    position: Position | None = None
    link: bytes = START_LINK
    sealed_version: int = 0
    segment_link: bytes = START_LINK
    frame_turns: int = 0
    frame_bytes: int = 0
    text_bytes: int = 0
    arrived_ms: int = 0
    owner: str | None = None
    erased: bool = False
    woken_ms: int = 0

    @property
    def is_tombstone(self) -> bool:
        """Say whether nothing was said since an erase."""
        return self.head.version == 0


NO_SESSION: Final = StoredHead()
"""What a session that was never heard of is like."""

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(StoredHead)
_entry_encoder: Final = msgspec.msgpack.Encoder()
_entry_decoder: Final = msgspec.msgpack.Decoder(IdEntry)

_CONTENT_HASH_BYTES: Final = 8


def encode_stored_head(stored: StoredHead) -> bytes:
    """Return the row of a head: CRC32C, then MessagePack."""
    return with_checksum(_encoder.encode(stored))


def decode_stored_head(row: bytes) -> StoredHead:
    """Invert `encode_stored_head`.

    Raises:
        ChecksumError: the row does not match its checksum.
        CorruptDataError: it is no head.
    """
    data = without_checksum(row, "the row of a head")
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise CorruptDataError(f"the row of a head cannot be read: {error}") from error


def encode_entry(entry: IdEntry, log_name: str) -> bytes:
    """Return an entry of the turn index, in 10 bytes where the log stamped it.

    The usual entry (stamped by this log, Lamport time and version equal to
    the counter, never referenced by id) is its content hash and the counter.

    Example:
        >>> len(encode_entry(IdEntry(bytes(8), "log", 7, 7, 7), "log"))
        9
    """
    counter = entry.counter
    if (
        entry.version == counter
        and entry.lamport == counter
        and not entry.referenced
        and entry.replica == log_name
    ):
        length = (counter.bit_length() + 7) // 8
        return entry.content_hash + counter.to_bytes(length, "little")
    return entry.content_hash + b"\0" * 8 + _entry_encoder.encode(entry)


def decode_entry(row: bytes, log_name: str) -> IdEntry:
    """Invert `encode_entry`.

    Raises:
        CorruptDataError: the row is no entry.
    """
    content_hash, rest = row[:_CONTENT_HASH_BYTES], row[_CONTENT_HASH_BYTES:]
    if len(content_hash) < _CONTENT_HASH_BYTES or not rest:
        raise CorruptDataError("an entry of the turn index is cut")
    if len(rest) <= 8:
        counter = int.from_bytes(rest, "little")
        return IdEntry(content_hash, log_name, counter, counter, counter)
    try:
        return _entry_decoder.decode(rest[8:])
    except (msgspec.MsgspecError, ValueError) as error:
        raise CorruptDataError(f"an entry of the turn index: {error}") from error
