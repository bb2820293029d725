"""The key of a store: wraps its data keys, and is itself wrapped by the master key."""

import os
from collections.abc import Callable, Iterator
from typing import Final

import msgspec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from msgspec import Struct

from turnstate.schemas.errors import CorruptDataError, UnavailableError
from turnstate.storage.encryption.cipher import ID_BYTES, KEY_BYTES
from turnstate.storage.encryption.key_file import FIELD, KeyWrapper
from turnstate.storage.encryption.keys import KeyBatch, KeyRing, KeyTable
from turnstate.storage.warm.tables import KEYS

_PREFIX: Final = b"store"
_NUMBER_BYTES: Final = 2
_ROW_KEY_BYTES: Final = len(_PREFIX) + _NUMBER_BYTES
"""Shorter than the id of a data key: none of them is ever one of these."""

REWRAPPED_AT_ONCE: Final = 4096
"""Data keys that are wrapped anew in one batch; publishing goes on in between."""


class StoreKey(Struct, array_like=True, frozen=True, gc=False):
    """What the table says of a store key.

    Attributes:
        number: From 1; the highest one wraps, others are being replaced.
        master: Name of the master key that wraps it.
        wrapped: The key, wrapped.
    """

    number: int
    master: str
    wrapped: bytes


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(StoreKey).decode


def store_keys(table: KeyTable) -> Iterator[StoreKey]:
    """Yield the store keys in the order of their numbers.

    Raises:
        CorruptDataError: a row is damaged.
    """
    for at, row in table.stored_rows(KEYS, _PREFIX):
        if len(at) == _ROW_KEY_BYTES:
            yield store_key_of(row)


def store_key_of(row: bytes) -> StoreKey:
    """Return what the row of a store key says.

    Raises:
        CorruptDataError: it is damaged.
    """
    try:
        return _decode(row)
    except (msgspec.MsgspecError, ValueError) as error:
        raise CorruptDataError(
            f"the key of the store cannot be read: {error}",
            hint="restore from a backup: turnstate restore",
        ) from error


def is_store_key(at: bytes) -> bool:
    """Say whether a row of the table is that of a store key."""
    return len(at) == _ROW_KEY_BYTES and at.startswith(_PREFIX)


def check_master(found: StoreKey, wrapper: KeyWrapper | None) -> KeyWrapper:
    """Check that a master key is the one that wraps a store key.

    Raises:
        UnavailableError: it is another one, or there is none.
    """
    if wrapper is None:
        raise UnavailableError(
            f"this is encrypted (master key: {found.master}), and the setting"
            f" {FIELD} is empty",
            field=FIELD,
            hint="set TURNSTATE_ENCRYPTION=keyfile:PATH to where its key is",
            code="encrypted",
        )
    if wrapper.name != found.master:
        raise UnavailableError(
            f"this is encrypted with the master key {found.master}; the setting"
            f" {FIELD} names {wrapper.name}",
            field=FIELD,
            hint="name the key that it was encrypted with",
            code="wrong_key",
        )
    return wrapper


def unlocked(
    table: KeyTable,
    wrapper: KeyWrapper,
    *,
    may_make: bool,
    chance: Callable[[int], bytes] = os.urandom,
) -> KeyRing:
    """Return the data keys of a store; a store that has no key gets one.

    Args:
        table: The store.
        wrapper: Who has the master key.
        may_make: False where nothing may be written.
        chance: Makes keys.

    Raises:
        UnavailableError: it is another master key, or it is away.
    """
    opened: dict[int, AESGCM] = {}
    for found in store_keys(table):
        check_master(found, wrapper)
        opened[found.number] = AESGCM(wrapper.unwrap(found.wrapped))
    if not opened and may_make:
        plain = chance(KEY_BYTES)
        opened[1] = AESGCM(plain)
        batch: KeyBatch = table.batch()
        _put(batch, StoreKey(1, wrapper.name, wrapper.wrap(plain)))
        table.write(batch, sync=True)
    return KeyRing(table, opened, chance)


def begin_rotation(
    table: KeyTable,
    ring: KeyRing,
    before: KeyWrapper,
    after: KeyWrapper,
    chance: Callable[[int], bytes] = os.urandom,
) -> int:
    """Let another master key open the store, and make a new store key.

    One batch: from then on only the new master key opens the store.

    Returns:
        The number of the new store key.

    Raises:
        UnavailableError: one of the master keys is away; nothing is changed.
    """
    batch: KeyBatch = table.batch()
    number = 0
    for found in store_keys(table):
        number = found.number
        wrapped = after.wrap(before.unwrap(found.wrapped))
        _put(batch, StoreKey(number, after.name, wrapped))
    number += 1
    plain = chance(KEY_BYTES)
    _put(batch, StoreKey(number, after.name, after.wrap(plain)))
    table.write(batch, sync=True)
    ring.add_store_key(number, AESGCM(plain))
    return number


def rewrap_some(
    table: KeyTable, ring: KeyRing, after: bytes
) -> tuple[bytes | None, int]:
    """Wrap some data keys, those behind `after`, by the newest store key.

    Returns:
        The last key that was looked at, None where there are no more; and how
        many were wrapped anew.

    Raises:
        CorruptDataError: a key is damaged.
    """
    batch: KeyBatch = table.batch()
    seen = changed = 0
    last = after
    for at, row in table.stored_rows(KEYS, b"", after + b"\0"):
        last = at
        if len(at) == ID_BYTES:
            again = ring.rewrapped(at, row)
            if again is not None:
                batch.put_local(KEYS, at, again)
                changed += 1
        seen += 1
        if seen == REWRAPPED_AT_ONCE:
            break
    if changed:
        table.write(batch, sync=True)
    return (last if seen == REWRAPPED_AT_ONCE else None), changed


def end_rotation(table: KeyTable, number: int) -> None:
    """Forget the store keys below a number: no data key needs them any more."""
    batch: KeyBatch = table.batch()
    for found in list(store_keys(table)):
        if found.number < number:
            batch.delete_local(KEYS, _row_key(found.number))
    table.write(batch, sync=True)


def _put(batch: KeyBatch, key: StoreKey) -> None:
    batch.put_local(KEYS, _row_key(key.number), _encode(key))


def _row_key(number: int) -> bytes:
    return _PREFIX + number.to_bytes(_NUMBER_BYTES, "big")
