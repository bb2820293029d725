"""The records of a changelog: what they are made of, their kinds, and their bytes."""

from hashlib import blake2b
from typing import Final, NamedTuple

import msgspec

from turnstate.schemas.errors import CorruptDataError, UnknownVersionError
from turnstate.storage.warm.tables import (
    FRAMES,
    HEADS,
    INDEX,
    KEYS,
    LIFE_BYTES,
    META,
    SEGMENTS,
)

RECORD_VERSION: Final = 3
"""Form of a record; a higher one was written by a newer turnstate."""

CLEARING_VERSION: Final = 2
"""Form of a record that clears, and brings no key: who knows no keys reads it."""

PLAIN_VERSION: Final = 1
"""Form of a record that clears nothing: who knows no cold sessions reads it."""

FRAME_KIND: Final = b"F"
SEGMENT_KIND: Final = b"S"
ERASE_KIND: Final = b"E"
OWNER_KIND: Final = b"O"
"""An owner begins: what an earlier one writes behind this record is void."""

COLD_KIND: Final = b"C"
"""A session is in the cold tier: all of its other records say nothing more."""

WOKEN_KIND: Final = b"W"
"""A part of a session that came back; the last part has its head."""

ERASING_KIND: Final = b"J"
"""An erase of a session was begun, or has come to its end: its mark."""

KEY_KIND: Final = b"K"
"""A data key, wrapped or destroyed; it stands before the first row that needs it."""

KEY_SET_KIND: Final = b"I"
"""Which set of keys wraps the data keys."""

MARK_KIND: Final = b"M"
"""Up to where an owner has folded the log; its record is written over."""

TABLES: Final = (HEADS, FRAMES, SEGMENTS, INDEX, META, KEYS)
"""The tables that rows of records lie in, by place."""

_ROW_HASH_BYTES: Final = 8

PLACE: Final = {table: place for place, table in enumerate(TABLES)}

PUT, DELETE, DELETE_RANGE, CLEAR = 0, 1, 2, 3
"""What a row says. `CLEAR`: whatever the store has of one life of a session goes,
but for its head."""

CLEARED: Final = (FRAMES, SEGMENTS, INDEX)

Row = tuple[int, int, bytes, bytes]
"""What is done, the place of the table, a key, and a row or the end of a range."""


class Epoch(NamedTuple):
    """Who writes a changelog: a later owner has a greater one.

    Attributes:
        number: One more than the greatest that was read from the changelog.
        generation: Of the consumer group, where two have the same number.
    """

    number: int
    generation: int

    def key(self, kind: bytes) -> bytes:
        """Return the key of a record that each owner has one of."""
        owner = self.number.to_bytes(8, "big") + self.generation.to_bytes(8, "big")
        return kind + owner


class RowRecord(NamedTuple):
    """A record of a changelog: its key, and its value or None for a tombstone."""

    key: bytes
    value: bytes | None


class RecordOf(NamedTuple):
    """What the key of a record says of a session whose rows it brings.

    Attributes:
        kind: Of the record.
        session: The session key.
        incarnation: Which life of it.
    """

    kind: bytes
    session: bytes
    incarnation: int


TEXT_KINDS: Final = frozenset({FRAME_KIND, SEGMENT_KIND, COLD_KIND, WOKEN_KIND})
"""Of the records that hold something of what was said, or of who said it."""


def record_of(key: bytes) -> RecordOf | None:
    r"""Read the key of a record; None where it brings no text of a session.

    Example:
        >>> record_of(b"F" + b"\x00\x03" + b"key" + bytes(6) + b"\x02" + bytes(13))
        RecordOf(kind=b'F', session=b'key', incarnation=2)
        >>> record_of(b"M" + bytes(16)) is None
        True
    """
    kind, length = key[:1], int.from_bytes(key[1:3], "big")
    end = 3 + length
    if kind not in TEXT_KINDS or len(key) < end + LIFE_BYTES:
        return None
    life = int.from_bytes(key[end : end + LIFE_BYTES], "big")
    return RecordOf(kind, key[3:end], life)


class Wire(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The value of a record.

    Attributes:
        version: Of its form.
        epoch: Of who wrote it.
        rows: What it changes.
    """

    version: int
    epoch: Epoch
    rows: list[Row]


encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Wire).decode


def encode_rows(epoch: Epoch, rows: list[Row]) -> bytes:
    """Return the value of a record, in the oldest form that can say it."""
    version = PLAIN_VERSION
    if any(row[0] == CLEAR for row in rows):
        version = CLEARING_VERSION
    return encode(Wire(version, epoch, rows))


def key_record(epoch: Epoch, key_id: bytes, row: bytes) -> RowRecord:
    """Return the record that brings the row of a data key.

    Its key names the row, too: what a replaced owner makes of the same key is
    another record, so that no compaction takes the right one for it.
    """
    wire = Wire(RECORD_VERSION, epoch, [(PUT, PLACE[KEYS], key_id, row)])
    return RowRecord(key_record_key(key_id, row), encode(wire))


def key_record_key(key_id: bytes, row: bytes) -> bytes:
    """Return the key of the record that brings a row of a data key."""
    told = blake2b(row, digest_size=_ROW_HASH_BYTES, usedforsecurity=False)
    return KEY_KIND + key_id + told.digest()


def decode_record(value: bytes) -> Wire:
    """Return what a record says.

    Raises:
        UnknownVersionError: a newer turnstate wrote it.
        CorruptDataError: it is no record of a changelog.
    """
    try:
        wire = _decode(value)
    except (msgspec.MsgspecError, ValueError) as error:
        raise CorruptDataError(f"a changelog record: {error}") from error
    if wire.version > RECORD_VERSION:
        raise UnknownVersionError(
            f"the changelog has records of version {wire.version}",
            hint="use a newer turnstate",
        )
    return wire


def owner_record(epoch: Epoch) -> RowRecord:
    """Return the first record of an owner, behind which earlier ones are void.

    It is never written over: as long as it stands, whatever an earlier owner
    wrote behind it can be told apart, however the topic is compacted.
    """
    return RowRecord(epoch.key(OWNER_KIND), encode_rows(epoch, []))
