"""Chunks of an encrypted log: records of one life of a session, encrypted together."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from turnstate.schemas.errors import (
    ChecksumError,
    CorruptDataError,
    ErasedKeyError,
    UnknownVersionError,
)
from turnstate.storage.encryption.cipher import take_apart
from turnstate.storage.encryption.keys import KeyRing
from turnstate.storage.row_checksum import (
    CHECKSUM_BYTES,
    has_checksum,
    with_checksum,
)
from turnstate.storage.warm.batch import Batch
from turnstate.storage.warm.rows import RocksTables
from turnstate.storage.warm.tables import LOG

MARK: Final = b"\x89TSC"
VERSION: Final = 1

_BEGIN: Final = len(MARK) + 1 + CHECKSUM_BYTES
_GROUP_BYTES: Final = 4


class EncryptedChunk(NamedTuple):
    """What lies in the place of a chunk.

    Attributes:
        places: Of each record, which group it is in, from 1; 0 = it is blank.
        groups: Encrypted lists of records, each in the order of the log.
    """

    places: list[int]
    groups: list[bytes]


_encode: Final = msgspec.msgpack.Encoder().encode
_decode_chunk: Final = msgspec.msgpack.Decoder(tuple[list[int], list[bytes]]).decode
_decode_group: Final = msgspec.msgpack.Decoder(tuple[list[int], list[bytes]]).decode


def is_encrypted_chunk(row: bytes) -> bool:
    """Say whether a row of the log is encrypted.

    A plain one begins with its checksum, which may be anything; that the bytes
    behind it match both in two ways has a chance of 2^-64.
    """
    return row[: len(MARK)] == MARK and has_checksum(row[len(MARK) :])


def encrypted_chunk(
    batch: Batch, at: bytes, records: Sequence[bytes], lives: Sequence[bytes]
) -> bytes:
    """Return the row of a chunk; new data keys come into the batch.

    Args:
        batch: What it is going to be written with.
        at: The key of the row.
        records: The records; blank ones need no key.
        lives: Of each, the life that it is about.
    """
    grouped: dict[bytes, list[int]] = {}
    for place, (record, life) in enumerate(zip(records, lives, strict=True)):
        if record:
            grouped.setdefault(life, []).append(place)
    places = [0] * len(records)
    groups: list[bytes] = []
    for number, (life, members) in enumerate(grouped.items(), start=1):
        plain = _encode((members, [records[place] for place in members]))
        groups.append(batch.encrypted(life, LOG, _group_place(at, number), plain))
        for place in members:
            places[place] = number
    return _row(places, groups)


def chunk_encrypted_again(
    batch: Batch, ring: KeyRing, at: bytes, row: bytes, records: Sequence[bytes]
) -> bytes:
    """Return a chunk's row with other records, each under the key of the one before.

    Args:
        batch: What it is going to be written with.
        ring: The data keys.
        at: The key of the row.
        row: The encrypted row that is there.
        records: What is to be in it.

    Raises:
        CorruptDataError: a key is lost.
    """
    before = _taken_apart(row)
    members_of = _members(before.places)
    places = [0] * len(records)
    groups: list[bytes] = []
    for number, group in enumerate(before.groups, start=1):
        members = [place for place in members_of.get(number, []) if records[place]]
        if members:
            key = ring.find(take_apart(group).key_id)
            plain = _encode((members, [records[place] for place in members]))
            place_in_log = _group_place(at, len(groups) + 1)
            groups.append(batch.encrypted_with(key, LOG, place_in_log, plain))
            for place in members:
                places[place] = len(groups)
    return _row(places, groups)


def opened_chunk(store: RocksTables, at: bytes, row: bytes) -> list[bytes]:
    """Return the records of a chunk; those whose key was destroyed are blank.

    Raises:
        CorruptDataError: it is damaged, or a key is lost.
        UnavailableError: no master key was given.
    """
    chunk = _taken_apart(row)
    records = [b""] * len(chunk.places)
    members_of = _members(chunk.places)
    for number, group in enumerate(chunk.groups, start=1):
        try:
            plain = store.opened(LOG, _group_place(at, number), group)
        except ErasedKeyError:
            continue
        try:
            members, found = _decode_group(plain)
        except (msgspec.MsgspecError, ValueError) as error:
            raise CorruptDataError(f"an encrypted chunk of the log: {error}") from error
        if members != members_of.get(number) or len(members) != len(found):
            raise ChecksumError("a chunk of the log has its records exchanged")
        for place, record in zip(members, found, strict=True):
            records[place] = record
    return records


def erased_records(ring: KeyRing, row: bytes) -> int:
    """Return how many records of an encrypted chunk no key opens any more.

    Raises:
        CorruptDataError: it is damaged.
    """
    chunk = _taken_apart(row)
    gone = {
        number
        for number, group in enumerate(chunk.groups, start=1)
        if ring.is_destroyed(take_apart(group).key_id)
    }
    return sum(place in gone for place in chunk.places)


def _members(places: Sequence[int]) -> dict[int, list[int]]:
    """Return the places of the records of each group."""
    found: dict[int, list[int]] = {}
    for place, number in enumerate(places):
        found.setdefault(number, []).append(place)
    return found


def _row(places: list[int], groups: list[bytes]) -> bytes:
    data = bytes([VERSION]) + _encode((places, groups))
    return MARK + with_checksum(data)


def _taken_apart(row: bytes) -> EncryptedChunk:
    if not has_checksum(row[len(MARK) :]):
        raise ChecksumError("an encrypted chunk of the log is damaged")
    if row[_BEGIN - 1] != VERSION:
        raise UnknownVersionError(
            f"a chunk of the log is encrypted in form {row[_BEGIN - 1]}",
            hint="use a newer turnstate; nothing was changed",
        )
    try:
        return EncryptedChunk(*_decode_chunk(row[_BEGIN:]))
    except (msgspec.MsgspecError, ValueError) as error:
        raise CorruptDataError(f"an encrypted chunk of the log: {error}") from error


def _group_place(at: bytes, number: int) -> bytes:
    return at + number.to_bytes(_GROUP_BYTES, "big")
