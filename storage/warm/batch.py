"""One atomic write to all tables of a warm store, row by row or change by change."""

from collections.abc import Callable, Mapping
from typing import Any

from rocksdict import WriteBatch

from turnstate.schemas.ids import turn_id_hash
from turnstate.storage.encryption.keys import DataKey
from turnstate.storage.encryption.row_cipher import FRAME_TABLES, RowCipher
from turnstate.storage.seal import Sealed
from turnstate.storage.session_image import SessionImage
from turnstate.storage.stored_head import (
    StoredHead,
    decode_stored_head,
    encode_entry,
    encode_stored_head,
)
from turnstate.storage.tier import SessionChange
from turnstate.storage.warm.cold_rows import ColdHead, encode_cold_head
from turnstate.storage.warm.encrypted_heads import head_front
from turnstate.storage.warm.opened_image import place_of_frame
from turnstate.storage.warm.tables import (
    DEAD,
    FRAMES,
    HEADS,
    INDEX,
    KEYS,
    META,
    SEGMENTS,
    STORE_VERSION_COLD,
    VERSION_BYTES,
    VERSION_KEY,
    aside_key,
    life_prefix,
    session_prefix,
    version_key,
)


class Batch:
    """Collect rows of all tables for one atomic write.

    Args:
        handles: Of the tables.
        log_name: The name under which the log stamps.
        row_cipher: Encrypts rows; None = they lie as they are.

    Attributes:
        new_keys: Data keys whose rows this batch brings.
    """

    def __init__(
        self,
        handles: Mapping[str, Any],
        log_name: str,
        row_cipher: RowCipher | None = None,
    ) -> None:
        self.native: Any = WriteBatch(raw_mode=True)
        self.new_keys: dict[bytes, DataKey] = {}
        self._handles = handles
        self._log_name = log_name
        self._row_cipher = row_cipher

    def put(self, table: str, key: bytes, row: bytes) -> None:
        """Set one row; frames and segments are encrypted where the store is."""
        if self._row_cipher is not None and table in FRAME_TABLES:
            row = self.encrypted(key[:-VERSION_BYTES], table, key, row)
        self.put_stored(table, key, row)

    def put_stored(self, table: str, key: bytes, row: bytes) -> None:
        """Set one row as it lies: a copy of another store's, or encrypted already."""
        self.native.put(key, row, self._handles[table])

    def put_head(self, key: bytes, stored: StoredHead, row: bytes) -> None:
        """Set the row of a head, which is `stored`."""
        if self._row_cipher is not None:
            life = life_prefix(key, stored.head.incarnation)
            row = self.encrypted(life, HEADS, key, row, head_front(stored))
        self.put_stored(HEADS, key, row)

    def put_letter(self, key: bytes, row: bytes, life: Callable[[], bytes]) -> None:
        """Set a dead letter, encrypted with the key of the life that it is about.

        Args:
            key: Its number.
            row: The letter.
            life: Asked only where it is encrypted; returns what `tables.life_prefix`
                says, `keys.NOBODY` where no session is named.
        """
        if self._row_cipher is not None:
            row = self.encrypted(life(), DEAD, key, row)
        self.put_stored(DEAD, key, row)

    def encrypted(
        self, life: bytes, table: str, at: bytes, row: bytes, front: bytes = b""
    ) -> bytes:
        """Return a row as it is stored; its data key comes into this batch if new."""
        assert self._row_cipher is not None, "the store is encrypted"
        data_key = self._row_cipher.ring.current(life)
        return self.encrypted_with(data_key, table, at, row, front)

    def encrypted_with(
        self, data_key: DataKey, table: str, at: bytes, row: bytes, front: bytes = b""
    ) -> bytes:
        """Return a row encrypted with a key that is known already."""
        assert self._row_cipher is not None, "the store is encrypted"
        made = self._row_cipher.encrypt(data_key, table, at, row, front)
        if not data_key.is_saved:
            self.new_keys[data_key.id] = data_key
            self.put_key(data_key.id, data_key.row.encode())
        return made

    def put_key(self, key_id: bytes, row: bytes) -> None:
        """Set the row of a data key."""
        self.native.put(key_id, row, self._handles[KEYS])

    def put_local(self, table: str, key: bytes, row: bytes) -> None:
        """Set one row that says something of this store alone, of no session."""
        self.native.put(key, row, self._handles[table])

    def delete(self, table: str, key: bytes) -> None:
        """Remove one row."""
        self.native.delete(key, self._handles[table])

    def delete_local(self, table: str, key: bytes) -> None:
        """Remove a row that `put_local` set."""
        self.native.delete(key, self._handles[table])

    def delete_range(self, table: str, start: bytes, end: bytes) -> None:
        """Remove the rows from `start` to below `end`."""
        self.native.delete_range(start, end, self._handles[table])

    def stage_seal(self, sealed: Sealed) -> None:
        """Put in segments and remove the frames and the state they replace.

        One deletion a frame: with a range for each session every later seek
        has all those ranges to look through (measured: 100 000 sessions took
        474 s to seal).
        """
        prefix = life_prefix(sealed.key, sealed.after.head.incarnation)
        for version, segment in sealed.segments:
            self.put(SEGMENTS, version_key(prefix, version), segment)
        for version in (sealed.before.sealed_version, *sealed.replaced):
            self.delete(FRAMES, version_key(prefix, version))
        self.put_head(sealed.key, sealed.after, encode_stored_head(sealed.after))

    def stage(self, change: SessionChange) -> None:
        """Put in one session's change."""
        if change.woken is not None and not change.erased:
            self.stage_image(change.woken)
        key, head = change.key, change.after.head
        prefix = life_prefix(key, head.incarnation)
        if change.erased:
            end = life_prefix(key, change.erased + 1)
            for table in (FRAMES, SEGMENTS, INDEX):
                self.delete_range(table, session_prefix(key), end)
        if change.base is not None:
            at = version_key(prefix, change.before.sealed_version)
            self.put(FRAMES, at, change.base)
        if change.frame is not None:
            self.put(FRAMES, version_key(prefix, head.version), change.frame)
        ids = prefix + b"i"
        for turn_id, entry in change.ids.items():
            row = encode_entry(entry, self._log_name)
            self.put(INDEX, ids + turn_id_hash(turn_id), row)
        for version in change.asides:
            self.put(INDEX, aside_key(prefix, version), b"")
        self.put_head(key, change.after, change.row)

    def stage_cooled(self, image: SessionImage, cold: ColdHead) -> None:
        """Put a pointer in the place of a session's head; its rows go.

        One deletion a row, as in `stage_seal` and for the same reason.
        """
        prefix = life_prefix(image.key, image.incarnation)
        for frame in image.frames:
            self.delete(*place_of_frame(prefix, frame))
        if image.base is not None:
            self.delete(*place_of_frame(prefix, image.base))
        for entry in image.entries:
            self.delete(INDEX, prefix + entry.suffix)
        self.put(HEADS, image.key, encode_cold_head(cold))
        self.put_local(META, VERSION_KEY, bytes([STORE_VERSION_COLD]))

    def stage_pointed(self, key: bytes, before: ColdHead, after: ColdHead) -> None:
        """Put another pointer in the place of one."""
        assert before.version == after.version, "it is the same session"
        self.put(HEADS, key, encode_cold_head(after))

    def stage_image(self, image: SessionImage) -> None:
        """Put in every row of a session, its head in the place of its pointer."""
        prefix = life_prefix(image.key, image.incarnation)
        for frame in image.frames:
            self.put(*place_of_frame(prefix, frame), frame)
        if image.base is not None:
            self.put(*place_of_frame(prefix, image.base), image.base)
        for entry in image.entries:
            self.put(INDEX, prefix + entry.suffix, entry.row)
        self.put_head(image.key, decode_stored_head(image.row), image.row)
