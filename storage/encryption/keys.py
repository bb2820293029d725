"""Data keys: one a life of a session, wrapped by the store's key, and destroyed."""

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any, Final, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from turnstate.schemas.errors import ChecksumError, CorruptDataError, ErasedKeyError
from turnstate.schemas.limits import ENCRYPTIONS_A_KEY_MAX
from turnstate.storage.encryption.cipher import KEY_BYTES, NONCE_BYTES
from turnstate.storage.encryption.key_rows import KeyRow
from turnstate.storage.warm.tables import KEYS, LIFE_BYTES, life_prefix

NOBODY: Final = life_prefix(b"", 0)
"""Whose data key encrypts what names no session, as a dead letter that is no turn.
It is never destroyed."""

CACHED_MAX: Final = 32_768
"""Data keys that are held unwrapped; about 500 bytes each."""

SAMPLED: Final = 1 << 16
"""Uses of a key are counted by chance: those whose nonce begins with two zero
bytes, each for so many. Exact to half a percent where a key is full, and no
row has to be written for each use."""

SAMPLES_MAX: Final = ENCRYPTIONS_A_KEY_MAX // SAMPLED * 31 // 32
"""Where a key counts as full; eight standard deviations below the limit."""

_PERSON: Final = b"turnstate.keys"
_SERIAL_BYTES: Final = 4


class KeyBatch(Protocol):
    """One atomic write to the table of keys."""

    def put_local(self, table: str, key: bytes, row: bytes) -> None:
        """Set one row."""
        ...

    def delete_local(self, table: str, key: bytes) -> None:
        """Remove one row."""
        ...


class KeyTable(Protocol):
    """What is needed of the store in whose table `KEYS` the keys lie."""

    def stored(self, table: str, key: bytes) -> bytes | None:
        """Return one row as it lies."""
        ...

    def stored_rows(
        self, table: str, prefix: bytes = b"", start: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield rows as they lie."""
        ...

    def batch(self) -> Any:
        """Return an empty `KeyBatch`."""
        ...

    def write(self, batch: Any, *, sync: bool) -> None:
        """Write a batch."""
        ...


class DataKey:
    """A data key, unwrapped.

    Attributes:
        id: Its id.
        cipher: Encrypts with it.
        row: What the table says of it, or is going to say.
        is_saved: Whether the table says so already; a batch that encrypts with
            one that is not saved has to bring its row.
    """

    __slots__ = ("cipher", "id", "is_saved", "row")

    def __init__(
        self, key_id: bytes, cipher: AESGCM, row: KeyRow, *, is_saved: bool
    ) -> None:
        self.id = key_id
        self.cipher = cipher
        self.row = row
        self.is_saved = is_saved


class KeyRing:
    """The data keys of a store; safe from any thread.

    The key of a life of a session is made when it is first needed and written
    with the rows that it encrypts. Which number of the session's keys it is says
    the end of its id, so that all of a session's keys lie side by side.

    Args:
        table: The store.
        store_keys: Number → the store's key, unwrapped; the highest wraps.
        chance: Makes keys.
    """

    def __init__(
        self,
        table: KeyTable,
        store_keys: Mapping[int, AESGCM],
        chance: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._table = table
        self._store_keys = dict(store_keys)
        self._chance = chance
        self._lock = threading.Lock()
        self._by_id: OrderedDict[bytes, DataKey] = OrderedDict()
        self._by_life: OrderedDict[bytes, DataKey] = OrderedDict()
        self._unsaved: dict[bytes, DataKey] = {}

    # -- encrypting and opening ------------------------------------------------

    def current(self, life: bytes) -> DataKey:
        """Return the key that encrypts the rows of a life of a session.

        Args:
            life: What `tables.life_prefix` says of it.
        """
        with self._lock:
            found = self._by_life.get(life)
            if found is None or found.row.samples >= SAMPLES_MAX:
                found = self._chosen(life)
                _kept(self._by_life, life, found)
            return found

    def find(self, key_id: bytes) -> DataKey:
        """Return a key by its id.

        Raises:
            ErasedKeyError: it was destroyed.
            CorruptDataError: it is not here, or damaged.
        """
        with self._lock:
            found = self._by_id.get(key_id) or self._unsaved.get(key_id)
            if found is None:
                row = self._table.stored(KEYS, key_id)
                if row is None:
                    raise CorruptDataError(
                        f"the data key {key_id.hex()} is not in this store",
                        hint="restore from a backup, which brings its keys",
                        code="key_lost",
                    )
                found = self._loaded(key_id, KeyRow.decode(row))
            return found

    def is_destroyed(self, key_id: bytes) -> bool:
        """Say whether an erase has destroyed a key."""
        with self._lock:
            if key_id in self._by_id or key_id in self._unsaved:
                return False
        row = self._table.stored(KEYS, key_id)
        return row is not None and KeyRow.decode(row).is_destroyed

    def last_destroyed(self, key: bytes) -> int:
        """Return the last life of a session whose key was destroyed, 0 = none."""
        name, check = _names(key)
        return max(
            (
                row.life
                for _, row in self._rows(name)
                if row.check == check and row.is_destroyed
            ),
            default=0,
        )

    def used(self, key: DataKey, nonce: bytes) -> None:
        """Note that a key encrypted a row under a nonce; one in 65 536 counts."""
        if nonce[:2] == b"\0\0":
            with self._lock:
                # As it lies: it may have been wrapped anew, or destroyed.
                stored = self._table.stored(KEYS, key.id)
                row = key.row if stored is None else KeyRow.decode(stored)
                key.row = row._replace(samples=row.samples + 1)
                key.is_saved = False
                self._unsaved[key.id] = key

    def saved(self, keys: Mapping[bytes, DataKey]) -> None:
        """Be told that a batch with the rows of keys was written."""
        with self._lock:
            for key in keys.values():
                key.is_saved = True
                self._unsaved.pop(key.id, None)
                _kept(self._by_id, key.id, key)

    # -- destroying ------------------------------------------------------------

    def destroy(self, lives: Mapping[bytes, int]) -> list[bytes]:
        """Destroy the keys of lives of sessions; what they encrypted is lost for good.

        Only in the owner's thread. What says that they were destroyed stays.

        Args:
            lives: session key → the last of its lives that ends.

        Returns:
            The ids of the keys.
        """
        left = self.destroyed_rows(lives)
        if left:
            batch: KeyBatch = self._table.batch()
            for key_id, row in left.items():
                batch.put_local(KEYS, key_id, row)
            self._table.write(batch, sync=True)
        self.forget(left)
        return list(left)

    def destroyed_rows(self, lives: Mapping[bytes, int]) -> dict[bytes, bytes]:
        """Return what is to stand in the place of the keys of lives; by their ids.

        Once it does, `forget` them. Keys that are destroyed already are left out.
        """
        found: dict[bytes, bytes] = {}
        for key, last in lives.items():
            name, check = _names(key)
            for key_id, row in self._rows(name):
                if row.check == check and row.life <= last and not row.is_destroyed:
                    left = row._replace(store_key=0, samples=0, wrapped=b"")
                    found[key_id] = left.encode()
        return found

    def forget(self, key_ids: Iterable[bytes]) -> None:
        """Hold keys no longer that were destroyed."""
        with self._lock:
            for key_id in key_ids:
                self._by_id.pop(key_id, None)
                self._unsaved.pop(key_id, None)
            # By life they cannot be told apart in little time; they come back.
            self._by_life.clear()

    # -- wrapping ---------------------------------------------------------------

    def newest(self, key_id: bytes) -> int:
        """Return the number of the store key that wraps a data key from now on."""
        del key_id
        return max(self._store_keys)

    def store_key(self, key_id: bytes, number: int) -> AESGCM | None:
        """Return the store key of a number that a data key is wrapped by."""
        del key_id
        return self._store_keys.get(number)

    def add_store_key(self, number: int, store_key: AESGCM) -> None:
        """Wrap with another key of the store from now on."""
        with self._lock:
            self._store_keys[number] = store_key

    def rewrapped(self, key_id: bytes, row: bytes) -> bytes | None:
        """Return the row of a data key under the newest store key, None if it is.

        Raises:
            CorruptDataError: it is damaged.
        """
        found = KeyRow.decode(row)
        with self._lock:
            newest = self.newest(key_id)
            if found.is_destroyed or found.store_key == newest:
                return None
            plain = self._unwrapped(key_id, found)
            again = self._wrapped(key_id, found._replace(store_key=newest), plain)
            for kept in (self._by_id.get(key_id), self._unsaved.get(key_id)):
                if kept is not None:
                    samples = max(kept.row.samples, again.samples)
                    again = again._replace(samples=samples)
                    kept.row = again
            return again.encode()

    def drop_unsaved(self) -> None:
        """Hold no keys that were made for batches which were never written."""
        with self._lock:
            for key_id in list(self._unsaved):
                if self._table.stored(KEYS, key_id) is None:
                    del self._unsaved[key_id]
            self._by_life.clear()

    # -- inside ---------------------------------------------------------------

    def _chosen(self, life: bytes) -> DataKey:
        """Return the key of a life, made where there is none that is not full."""
        key, number = _life_of(life)
        name, check = _names(key)
        serial = 0
        if self._table.stored(KEYS, name + _serial(serial)) is not None:
            for key_id, row in self._rows(name):
                serial = int.from_bytes(key_id[len(name) :], "big") + 1
                if (
                    (row.check, row.life) == (check, number)
                    and not row.is_destroyed
                    and row.samples < SAMPLES_MAX
                ):
                    return self._by_id.get(key_id) or self._loaded(key_id, row)
        key_id = name + _serial(serial)
        while (found := self._unsaved.get(key_id)) is not None:
            if (found.row.check, found.row.life) == (
                check,
                number,
            ) and found.row.samples < SAMPLES_MAX:
                return found
            serial += 1
            key_id = name + _serial(serial)
        plain = self._chance(KEY_BYTES)
        row = KeyRow(check, number, self.newest(key_id), 0, b"")
        row = self._wrapped(key_id, row, plain)
        made = DataKey(key_id, AESGCM(plain), row, is_saved=False)
        self._unsaved[key_id] = made
        return made

    def _rows(self, name: bytes) -> Iterator[tuple[bytes, KeyRow]]:
        """Yield the keys of a session's name in the order of their making."""
        for key_id, row in self._table.stored_rows(KEYS, name):
            if len(key_id) == len(name) + _SERIAL_BYTES:
                yield key_id, KeyRow.decode(row)

    def _loaded(self, key_id: bytes, row: KeyRow) -> DataKey:
        if row.is_destroyed:
            raise ErasedKeyError(
                "this was erased: the key that it was encrypted with is destroyed",
                hint="nothing brings it back",
            )
        cipher = AESGCM(self._unwrapped(key_id, row))
        found = DataKey(key_id, cipher, row, is_saved=True)
        _kept(self._by_id, key_id, found)
        return found

    def _wrapped(self, key_id: bytes, row: KeyRow, plain: bytes) -> KeyRow:
        nonce = self._chance(NONCE_BYTES)
        store_key = self.store_key(key_id, row.store_key)
        assert store_key is not None, "it is the newest"
        body = store_key.encrypt(nonce, plain, row.bound(key_id))
        return row._replace(wrapped=nonce + body)

    def _unwrapped(self, key_id: bytes, row: KeyRow) -> bytes:
        nonce, body = row.wrapped[:NONCE_BYTES], row.wrapped[NONCE_BYTES:]
        store_key = self.store_key(key_id, row.store_key)
        if store_key is None:
            raise CorruptDataError(
                f"the data key {key_id.hex()} is wrapped by key {row.store_key} of"
                " the store, which is not here",
                hint="restore from a backup, which brings its keys",
                code="key_lost",
            )
        try:
            return store_key.decrypt(nonce, body, row.bound(key_id))
        except InvalidTag:
            raise ChecksumError(
                f"the row of the data key {key_id.hex()} was changed",
                hint="restore from a backup, which brings its keys",
                code="key_lost",
            ) from None


def name_of(key: bytes) -> bytes:
    """Return what the ids of all data keys of a session begin with."""
    return _names(key)[0]


def _names(key: bytes) -> tuple[bytes, bytes]:
    """Return what a session's keys are found by, and what tells it from others."""
    both = blake2b(key, digest_size=16, person=_PERSON).digest()
    return both[:8], both[8:]


def _serial(number: int) -> bytes:
    return number.to_bytes(_SERIAL_BYTES, "big")


def _life_of(life: bytes) -> tuple[bytes, int]:
    return life[2:-LIFE_BYTES], int.from_bytes(life[-LIFE_BYTES:], "big")


def _kept(cache: "OrderedDict[bytes, DataKey]", name: bytes, key: DataKey) -> None:
    cache[name] = key
    cache.move_to_end(name)
    while len(cache) > CACHED_MAX:
        cache.popitem(last=False)
