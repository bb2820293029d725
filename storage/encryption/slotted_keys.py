"""Data keys that a set of keys beside the store wraps, a slot of it at a time."""

import os
from collections.abc import Callable, Iterator
from typing import Final

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from turnstate.storage.encryption.cipher import ID_BYTES
from turnstate.storage.encryption.key_set import OpenedKeySet
from turnstate.storage.encryption.keys import KeyRing, KeyTable, name_of
from turnstate.storage.warm.tables import KEYS

_NO_KEYS: Final[dict[int, AESGCM]] = {}


class SlottedKeyRing(KeyRing):
    """The data keys of a store whose wrapping keys lie elsewhere.

    Args:
        table: The store.
        keys: What wraps them.
        chance: Makes keys.
    """

    def __init__(
        self,
        table: KeyTable,
        keys: OpenedKeySet,
        chance: Callable[[int], bytes] = os.urandom,
    ) -> None:
        super().__init__(table, _NO_KEYS, chance)
        self._slots: dict[int, dict[int, AESGCM]] = {}
        self.keys = keys

    def newest(self, key_id: bytes) -> int:
        """Return the number of the slot's key that wraps a data key from now on."""
        return self.keys.stored.slots[key_id[0]][-1][0]

    def store_key(self, key_id: bytes, number: int) -> AESGCM | None:
        """Return the slot's key of a number; None where it is destroyed."""
        slot = key_id[0]
        found = self._slots.get(slot)
        if found is None or number not in found:
            found = self._slots[slot] = self.keys.slot_keys(slot)
        return found.get(number)

    def take(self, keys: OpenedKeySet) -> None:
        """Go on with another state of the set; only in the owner's thread."""
        self.keys = keys
        self._slots = {}
        self.drop_unsaved()

    def rewrapped_rows(self, slot: int) -> Iterator[tuple[bytes, bytes]]:
        """Yield the rows of a slot's data keys that an older key of it wraps, anew.

        Raises:
            CorruptDataError: one is damaged.
        """
        for key_id, row in list(self._table.stored_rows(KEYS, bytes([slot]))):
            if len(key_id) == ID_BYTES:
                again = self.rewrapped(key_id, row)
                if again is not None:
                    yield key_id, again


def slot_of(session: bytes) -> int:
    """Return the slot of all data keys of a session.

    Args:
        session: The session key.
    """
    return name_of(session)[0]
