"""A set of keys beside a store: what wraps its data keys, and is destroyed by slot."""

import os
from collections.abc import Callable, Collection
from hashlib import blake2b
from typing import Final, NamedTuple

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from msgspec import Struct

from turnstate.schemas.errors import (
    ChecksumError,
    CorruptDataError,
    UnavailableError,
    UnknownVersionError,
)
from turnstate.storage.encryption.cipher import ID_BYTES as KEY_ID_BYTES
from turnstate.storage.encryption.cipher import KEY_BYTES, NONCE_BYTES
from turnstate.storage.encryption.key_file import FIELD, KeyWrapper

SLOTS: Final = 256
"""Keys of a set: the first byte of a data key's id chooses. An erase replaces one,
so it wraps anew a 256th of the data keys."""

HOT_SLOT: Final = SLOTS
"""One more key of a set: of what lies in Redis, which every erase replaces, too."""

FORMAT: Final = 1
ID_BYTES: Final = 8

_NUMBERS_END: Final = 1 << 16
"""The row of a data key names the number of its slot's key in two bytes."""

_HASH_BYTES: Final = 32
_PERSON: Final = b"turnstate.keyset"

Wrapped = tuple[int, bytes]
"""Number of a slot's key, and the key, wrapped by the key of the set."""


class KeySet(Struct, array_like=True, frozen=True):
    """What is stored of a set of keys: all of them wrapped.

    Attributes:
        format: Of this form.
        id: Of the set, by chance; a store that was encrypted with it names it.
        master: Name of the master key.
        wrapped: The key of the set, wrapped by the master key.
        slots: Of each slot its keys: the last one wraps, one before it is being
            replaced. Behind them that of what lies in Redis.
        owner: Who took the set over last, by chance: whoever changes it finds out
            whether that is another one by now.
    """

    format: int
    id: bytes
    master: str
    wrapped: bytes
    slots: list[list[Wrapped]]
    owner: bytes = b""

    @property
    def replaced(self) -> list[int]:
        """Return the slots in which a key stands that is being replaced."""
        return [slot for slot, keys in enumerate(self.slots) if len(keys) > 1]


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(KeySet).decode


class OpenedKeySet(NamedTuple):
    """A set of keys, unwrapped; it lives in memory alone.

    Attributes:
        stored: What is stored of it.
        cipher: Of the key of the set.
        chance: Makes keys.
    """

    stored: KeySet
    cipher: AESGCM
    chance: Callable[[int], bytes] = os.urandom

    def slot_keys(self, slot: int) -> dict[int, AESGCM]:
        """Return the keys of a slot by number; the last one wraps.

        Raises:
            ChecksumError: one was changed.
        """
        return {
            number: AESGCM(self._unwrapped(slot, number, wrapped))
            for number, wrapped in self.stored.slots[slot]
        }

    def owned(self) -> "OpenedKeySet":
        """Return the set as a new owner takes it over."""
        owner = self.chance(ID_BYTES)
        return self._replace(stored=msgspec.structs.replace(self.stored, owner=owner))

    def hot_keys(self) -> list[tuple[bytes, bytes]]:
        """Return (id, key) of what lies in Redis; the last one encrypts.

        Raises:
            ChecksumError: one was changed.
        """
        rest = KEY_ID_BYTES - len(self.stored.id)
        return [
            (
                self.stored.id + number.to_bytes(rest, "big"),
                self._unwrapped(HOT_SLOT, number, wrapped),
            )
            for number, wrapped in self.stored.slots[HOT_SLOT]
        ]

    def with_new(self, slots: Collection[int]) -> "OpenedKeySet":
        """Return the set with another key in each of some slots, beside the one there.

        A slot in which one is being replaced already stays as it is.
        """
        made = list(self.stored.slots)
        for slot in slots:
            if len(made[slot]) == 1:
                last, _ = made[slot][-1]
                made[slot] = [*made[slot], self.new_key(slot, _after(last))]
        return self.with_slots(made)

    def without_replaced(self, slots: Collection[int]) -> "OpenedKeySet":
        """Return the set without the keys of some slots that were replaced."""
        made = list(self.stored.slots)
        for slot in slots:
            made[slot] = made[slot][-1:]
        return self.with_slots(made)

    def with_slots(self, slots: list[list[Wrapped]]) -> "OpenedKeySet":
        """Return the set with other slot keys."""
        return self._replace(stored=msgspec.structs.replace(self.stored, slots=slots))

    def new_key(self, slot: int, number: int) -> Wrapped:
        """Return a new key of a slot, wrapped."""
        nonce, plain = self.chance(NONCE_BYTES), self.chance(KEY_BYTES)
        bound = _bound(self.stored.id, slot, number)
        return number, nonce + self.cipher.encrypt(nonce, plain, bound)

    def _unwrapped(self, slot: int, number: int, wrapped: bytes) -> bytes:
        nonce, body = wrapped[:NONCE_BYTES], wrapped[NONCE_BYTES:]
        try:
            return self.cipher.decrypt(
                nonce, body, _bound(self.stored.id, slot, number)
            )
        except (InvalidTag, ValueError):
            raise ChecksumError(
                f"key {number} of slot {slot} of a set of keys was changed",
                hint="put the object with the keys back from a copy",
                code="key_lost",
            ) from None


def made_key_set(
    wrapper: KeyWrapper, chance: Callable[[int], bytes] = os.urandom
) -> OpenedKeySet:
    """Return a new set of keys.

    Raises:
        UnavailableError: who has the master key is away.
    """
    plain = chance(KEY_BYTES)
    empty = KeySet(FORMAT, chance(ID_BYTES), wrapper.name, wrapper.wrap(plain), [])
    bare = OpenedKeySet(empty, AESGCM(plain), chance)
    return bare.with_slots([[bare.new_key(slot, 1)] for slot in range(SLOTS + 1)])


def opened_key_set(
    stored: KeySet, wrapper: KeyWrapper, chance: Callable[[int], bytes] = os.urandom
) -> OpenedKeySet:
    """Return a set of keys, unwrapped.

    Raises:
        UnavailableError: it is another master key, or it is away.
    """
    check_set_master(stored, wrapper)
    return OpenedKeySet(stored, AESGCM(wrapper.unwrap(stored.wrapped)), chance)


def check_set_master(stored: KeySet, wrapper: KeyWrapper) -> None:
    """Check that a master key is the one of a set.

    Raises:
        UnavailableError: it is another one (code `wrong_key`).
    """
    if wrapper.name != stored.master:
        raise UnavailableError(
            f"the cluster is encrypted with the master key {stored.master}; the"
            f" setting {FIELD} names {wrapper.name}",
            field=FIELD,
            hint="name the key that it was encrypted with",
            code="wrong_key",
        )


def rewrapped_key_set(
    opened: OpenedKeySet, before: KeyWrapper, after: KeyWrapper
) -> KeySet:
    """Return a set under another master key; the keys in it stay the same.

    Raises:
        UnavailableError: one of the master keys is away.
    """
    plain = before.unwrap(opened.stored.wrapped)
    return msgspec.structs.replace(
        opened.stored, master=after.name, wrapped=after.wrap(plain)
    )


def encode_key_set(stored: KeySet) -> bytes:
    """Return the bytes of a set, with their checksum."""
    data = _encode(stored)
    return data + _hash(data)


def decode_key_set(data: bytes, what: str) -> KeySet:
    """Invert `encode_key_set`.

    Args:
        data: The bytes.
        what: Names them in errors.

    Raises:
        ChecksumError: they are damaged.
        UnknownVersionError: a newer turnstate made them.
    """
    body, told = data[:-_HASH_BYTES], data[-_HASH_BYTES:]
    if _hash(body) != told:
        raise ChecksumError(
            f"the keys {what} are damaged",
            hint="put the object back from a copy: what it wraps cannot be read",
            code="key_lost",
        )
    try:
        found = _decode(body)
    except (msgspec.MsgspecError, ValueError) as error:
        raise CorruptDataError(f"the keys {what}: {error}") from error
    if found.format > FORMAT:
        raise UnknownVersionError(
            f"{what} has format {found.format}, this is {FORMAT}",
            hint="use a newer turnstate",
        )
    if len(found.slots) != SLOTS + 1 or not all(found.slots):
        raise CorruptDataError(f"the keys {what} are not whole")
    return found


def _after(number: int) -> int:
    r"""Return the number of the next key of a slot.

    Example:
        >>> _after(1), _after(65535)
        (2, 1)
    """
    return number % (_NUMBERS_END - 1) + 1


def _bound(set_id: bytes, slot: int, number: int) -> bytes:
    return b"turnstate slot key %b %d %d" % (set_id, slot, number)


def _hash(data: bytes) -> bytes:
    return blake2b(data, digest_size=_HASH_BYTES, person=_PERSON).digest()
