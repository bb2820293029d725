"""The warm tier: sessions in RocksDB, each table's rows committed in one batch."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future

from turnstate.schemas.dialogue.head import Head
from turnstate.schemas.dialogue.turn_index import IdEntry
from turnstate.schemas.errors import (
    CorruptDataError,
    ErasedKeyError,
    FencedError,
    TurnstateError,
    UnavailableError,
)
from turnstate.schemas.ids import turn_id_hash
from turnstate.storage.encryption.cipher import is_encrypted, take_apart
from turnstate.storage.session_image import IndexRow, SessionImage
from turnstate.storage.stored_head import (
    StoredHead,
    decode_entry,
    decode_stored_head,
)
from turnstate.storage.tier import HAS_INDEX, KEEPS_ALL, SessionChange
from turnstate.storage.warm.below import Below
from turnstate.storage.warm.cold_rows import ColdHead, decode_cold_head, is_cold_row
from turnstate.storage.warm.encrypted_heads import tombstone_of
from turnstate.storage.warm.failures import guarded
from turnstate.storage.warm.opened_image import OpenedImage, opened_image
from turnstate.storage.warm.rows import RocksTables
from turnstate.storage.warm.tables import (
    FRAMES,
    HEADS,
    INDEX,
    SEGMENTS,
    STORE_VERSION_COLD,
    VERSION_KEY,
    after_prefix,
    id_key,
    life_prefix,
    session_prefix,
    version_key,
)


class WarmStore(RocksTables):
    """Keep heads, frames, segments and turn index of every session.

    It is the authority on where a session lies: one that has cooled has a
    pointer in the place of its head, and is read from the tier `below`.

    Attributes:
        below: Where cold sessions are read; None = nowhere, then asking for
            one raises `UnavailableError`.
    """

    name = "warm"
    capabilities: frozenset[str] = frozenset({KEEPS_ALL, HAS_INDEX})
    below: Below | None = None

    def heads(self, keys: Sequence[bytes]) -> list[StoredHead | None]:
        """Return the heads of many sessions in one look-up; cold ones from below.

        Raises:
            UnavailableError: a session is cold and the cold tier is away.
        """
        return [
            self._cold_head(key, found) if isinstance(found, ColdHead) else found
            for key, found in zip(keys, self.located(keys), strict=True)
        ]

    def located(self, keys: Sequence[bytes]) -> list[StoredHead | ColdHead | None]:
        """Return of many sessions the head, or where it lies; looks only here.

        Of one whose key was destroyed it is the tombstone that the erase left.
        """
        if not keys:
            return []
        rows = guarded(self._tables[HEADS].get, list(keys))
        return [
            None if row is None else self._located(key, row)
            for key, row in zip(keys, rows, strict=True)
        ]

    def _located(self, key: bytes, row: bytes) -> StoredHead | ColdHead:
        if is_cold_row(row):
            return decode_cold_head(row)
        try:
            return decode_stored_head(self.opened(HEADS, key, row))
        except ErasedKeyError:
            return tombstone_of(row)

    def is_erased(self, key: bytes) -> bool:
        """Say whether the key of a session that lies here was destroyed.

        Then only ciphertext is left of it, as in a copy of the store that is
        older than the erase. What a pack holds of a cold one is not looked at.
        """
        row = self.stored(HEADS, key)
        if row is None or self.row_cipher is None or not is_encrypted(row):
            return False
        return self.row_cipher.ring.is_destroyed(take_apart(row).key_id)

    def refuse_erased(self, key: bytes) -> None:
        """Say of a session that is not there, if so, that its key was destroyed.

        Raises:
            ErasedKeyError: it was.
        """
        row = self.stored(HEADS, key)
        if row is not None and is_cold_row(row):
            _ = self._image(key, decode_cold_head(row)).stored
        elif row is not None:
            self.opened(HEADS, key, row)

    def images(
        self, keys: Sequence[bytes]
    ) -> tuple[dict[bytes, SessionImage], dict[bytes, TurnstateError]]:
        """Return all rows of those of the sessions that are cold.

        Returns:
            The images, and what is wrong where one cannot be had; one whose key
            was destroyed is in neither.
        """
        cold, damaged = self.cold_heads(keys)
        found, failed = self._below.images(cold) if cold else ({}, {})
        opened: dict[bytes, SessionImage] = {}
        for key, image in found.items():
            try:
                opened[key] = self.opened_whole(image)
            except ErasedKeyError:
                continue
            except TurnstateError as error:
                damaged[key] = error
        return opened, dict(failed) | damaged

    def cold_heads(
        self, keys: Sequence[bytes]
    ) -> tuple[dict[bytes, ColdHead], dict[bytes, TurnstateError]]:
        """Return the pointers of those that are cold, and which rows are damaged."""
        cold: dict[bytes, ColdHead] = {}
        damaged: dict[bytes, TurnstateError] = {}
        rows = guarded(self._tables[HEADS].get, list(keys))
        for key, row in zip(keys, rows, strict=True):
            if row is not None and is_cold_row(row):
                try:
                    cold[key] = decode_cold_head(row)
                except CorruptDataError as error:
                    damaged[key] = error
        return cold, damaged

    def fetching(self, key: bytes, cold: ColdHead) -> "Future[SessionImage]":
        """Begin to fetch a cold session whole, as it lies there; never waits.

        Raises:
            UnavailableError: no cold tier is configured here, or it is behind.
        """
        return self._below.fetching(key, cold)

    def opened_whole(self, image: SessionImage) -> SessionImage:
        """Return a fetched session with its rows opened.

        Raises:
            ErasedKeyError: their key was destroyed.
            CorruptDataError: one was changed, or is another session's.
        """
        return opened_image(image, self.opened)

    @property
    def knows_cold(self) -> bool:
        """Say whether any session ever went to the cold tier."""
        row = self.meta(VERSION_KEY)
        return row is not None and row[0] >= STORE_VERSION_COLD

    def _image(self, key: bytes, cold: ColdHead) -> OpenedImage:
        image = self._below.image(cold)
        return OpenedImage(image, key, cold.incarnation, self.opened)

    def _cold_head(self, key: bytes, cold: ColdHead) -> StoredHead:
        try:
            return self._image(key, cold).stored
        except ErasedKeyError:
            head = Head(incarnation=cold.incarnation + 1)
            return StoredHead(head, cold.position, erased=True)

    @property
    def _below(self) -> Below:
        if self.below is None:
            raise UnavailableError(
                "the session is cold, and the cold tier is not configured here",
                hint="set `cold` to where its packs are: turnstate settings",
                code="cold_away",
            )
        return self.below

    def _cold(self, key: bytes, incarnation: int) -> OpenedImage | None:
        """Return the image of a session, where it is cold.

        Asked once no rows are found here: pointer and rows change in one batch,
        so one that has both, or neither, is on its way and is read again.
        """
        row = self.stored(HEADS, key)
        if row is not None and is_cold_row(row):
            found = decode_cold_head(row)
            if found.incarnation == incarnation:
                return self._image(key, found)
        return None

    def ids(self, lookups: Sequence[tuple[bytes, int, str]]) -> list[IdEntry | None]:
        """Return the index entries of (session key, incarnation, turn id)s.

        Only of sessions that are here: whoever folds has the images of others.
        """
        if not lookups:
            return []
        keys = [
            id_key(life_prefix(key, incarnation), turn_id_hash(turn_id))
            for key, incarnation, turn_id in lookups
        ]
        rows = guarded(self._tables[INDEX].get, keys)
        return [
            None if row is None else decode_entry(row, self.log_name) for row in rows
        ]

    def entry(self, key: bytes, incarnation: int, turn_id: str) -> IdEntry | None:
        """Return one index entry, of a cold session from below."""
        image = self._cold(key, incarnation)
        if image is None:
            return self.ids([(key, incarnation, turn_id)])[0]
        row = image.index().get(b"i" + turn_id_hash(turn_id))
        return None if row is None else decode_entry(row, self.log_name)

    def frames(
        self, key: bytes, incarnation: int, after_version: int
    ) -> Iterator[bytes]:
        """Yield segments, then frames, that lead above a version.

        Frames, at most a segment's worth, are read first: a seal that comes
        between then makes an overlap, which readers skip, and never a hole.
        """
        image = self._cold(key, incarnation)
        if image is not None:
            yield from image.frames(after_version)
            return
        prefix = life_prefix(key, incarnation)
        start = version_key(prefix, after_version + 1)
        frames = [row for _, row in self.rows(FRAMES, prefix, start)]
        yield from (row for _, row in self.rows(SEGMENTS, prefix, start))
        yield from frames

    def base(self, key: bytes, incarnation: int, sealed_version: int) -> bytes | None:
        """Return the frame of kind head that the frames since the seal start from."""
        image = self._cold(key, incarnation)
        if image is not None:
            return image.base
        at = version_key(life_prefix(key, incarnation), sealed_version)
        return self.get(FRAMES, at)

    def asides(self, key: bytes, incarnation: int) -> list[int]:
        """Return the versions of a session's edits and redactions."""
        image = self._cold(key, incarnation)
        if image is not None:
            found = [suffix[1:] for suffix in image.index() if suffix[:1] == b"e"]
        else:
            prefix = life_prefix(key, incarnation) + b"e"
            found = [at[len(prefix) :] for at, _ in self.rows(INDEX, prefix)]
        return [int.from_bytes(version, "big") for version in found]

    def image(self, key: bytes, stored: StoredHead, row: bytes) -> SessionImage:
        """Return all rows of a session that lies here, to move it whole.

        As they lie: encrypted ones stay encrypted wherever they go.

        Args:
            key: The session key.
            stored: Its head.
            row: The row of its head, as it lies.
        """
        incarnation = stored.head.incarnation
        prefix = life_prefix(key, incarnation)
        base = version_key(prefix, stored.sealed_version)
        has_base = stored.frame_turns and stored.sealed_version
        first = version_key(prefix, 1)
        frames = [
            row
            for table in (SEGMENTS, FRAMES)
            for at, row in self.stored_rows(table, prefix, first)
            if table == SEGMENTS or at != base
        ]
        return SessionImage(
            key,
            incarnation,
            stored.head.version,
            row,
            self.stored(FRAMES, base) if has_base else None,
            frames,
            [IndexRow(at[len(prefix) :], row) for at, row in self.rows(INDEX, prefix)],
        )

    def commit(self, changes: Sequence[SessionChange], *, sync: bool = True) -> None:
        """Take all of the changes or none; checks what they were decided from.

        Raises:
            FencedError: a stored head is not the one of `before`.
        """
        found = self.heads([change.key for change in changes])
        for change, stored in zip(changes, found, strict=True):
            here = stored.head if stored else None
            there = change.before.head
            if (here is None and there.version) or (
                here is not None
                and (here.incarnation, here.version)
                != (there.incarnation, there.version)
            ):
                raise FencedError(
                    "the store holds another version than this was decided from",
                    hint="another owner writes this session: stop",
                )
        batch = self.batch()
        for change in changes:
            batch.stage(change)
        self.write(batch, sync=sync)

    def drop(self, key: bytes) -> None:
        """Forget every life of a session."""
        batch = self.batch()
        batch.delete(HEADS, key)
        prefix = session_prefix(key)
        for table in (FRAMES, SEGMENTS, INDEX):
            batch.delete_range(table, prefix, after_prefix(prefix))
        self.write(batch, sync=True)

    def keys(self, prefix: bytes = b"", after: bytes = b"") -> Iterator[bytes]:
        """Yield session keys in byte order."""
        for key, _ in self.stored_rows(HEADS, prefix, max(prefix, after)):
            if key != after:
                yield key

    def keys_with_frames(self) -> Iterator[bytes]:
        """Yield the keys of sessions that have frames; one seek a session."""
        walker = guarded(self._tables[FRAMES].iter)
        walker.seek(b"")
        while guarded(walker.valid):
            at: bytes = walker.key()
            length = int.from_bytes(at[:2], "big")
            yield at[2 : 2 + length]
            walker.seek(after_prefix(at[: 2 + length]))
        guarded(walker.status)
