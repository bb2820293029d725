"""The warm tier: RocksDB with every table of a store committed in one batch."""

import gc
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rocksdict import (
    AccessType,
    BottommostLevelCompaction,
    Cache,
    CompactOptions,
    Rdict,
    WriteBatch,
    WriteOptions,
)

from turnstate.schemas.dialogue.turn_index import IdEntry
from turnstate.schemas.errors import FencedError, UnknownVersionError
from turnstate.schemas.ids import turn_id_hash
from turnstate.storage.seal import Sealed
from turnstate.storage.stored_head import (
    StoredHead,
    decode_entry,
    decode_stored_head,
    encode_entry,
    encode_stored_head,
)
from turnstate.storage.tier import HAS_INDEX, KEEPS_ALL, SessionChange
from turnstate.storage.warm import tables
from turnstate.storage.warm.failures import closed_on_failure, guarded, opening_failed
from turnstate.storage.warm.options import database_options, table_options
from turnstate.storage.warm.tables import (
    FRAMES,
    HEADS,
    INDEX,
    META,
    SEGMENTS,
    TABLES,
    aside_key,
    id_key,
    life_prefix,
    session_prefix,
    version_key,
)

STORE_VERSION: Final = 1
"""Format of the tables; a store with a higher one is refused, untouched."""

_VERSION_KEY: Final = b"store_version"


class WarmStore:
    """Own one RocksDB: heads, frames, segments, turn index, log, dead letters.

    Opened by one process at a time. Everything that belongs together goes
    into one `WriteBatch`, so that a crash leaves all of it or none. Rows of
    the embedded log ride in the same batch.

    Args:
        path: The folder; made if it is not there.
        log_name: The name under which the log stamps.
        cache_bytes: Of the block cache that all tables share.
        cache: One that other stores share, in place of one of its own.
        write_buffer_bytes: Of all memtables together.
        read_only: Open without becoming the owner.

    Raises:
        UnavailableError: another process owns it.
        UnknownVersionError: a newer version of turnstate wrote it.
        CorruptDataError: RocksDB cannot read it.
    """

    name = "warm"
    capabilities = frozenset({KEEPS_ALL, HAS_INDEX})

    def __init__(
        self,
        path: Path,
        *,
        log_name: str,
        cache_bytes: int = 64 << 20,
        write_buffer_bytes: int = 64 << 20,
        read_only: bool = False,
        cache: Cache | None = None,
    ) -> None:
        self.path = path
        self.log_name = log_name
        cache = cache or Cache(cache_bytes)
        access = AccessType.read_only() if read_only else AccessType.read_write()
        families = {table: table_options(table, cache) for table in TABLES}
        families["default"] = table_options("default", cache)
        try:
            self._db: Any = Rdict(
                str(path),
                database_options(write_buffer_bytes),
                column_families=families,
                access_type=access,
            )
        except Exception as error:
            raise opening_failed(path, error) from error
        self._tables = {table: self._db.get_column_family(table) for table in TABLES}
        self.handles = {
            table: self._db.get_column_family_handle(table) for table in TABLES
        }
        self._sync = WriteOptions()
        self._sync.sync = True
        self._no_sync = WriteOptions()
        self.syncs = 0
        with closed_on_failure(self):
            self._check_version(read_only)

    def _check_version(self, read_only: bool) -> None:
        row = self.meta(_VERSION_KEY)
        if row is None:
            if not read_only:
                batch = self.batch()
                batch.put(META, _VERSION_KEY, bytes([STORE_VERSION]))
                self.write(batch, sync=True)
        elif row[0] > STORE_VERSION:
            raise UnknownVersionError(
                f"the store {self.path} has format {row[0]}, this is {STORE_VERSION}",
                hint="use a newer turnstate; the store is untouched",
            )

    # -- the tier ---------------------------------------------------------

    def heads(self, keys: Sequence[bytes]) -> list[StoredHead | None]:
        """Return the heads of many sessions in one look-up."""
        if not keys:
            return []
        rows = guarded(self._tables[HEADS].get, list(keys))
        return [None if row is None else decode_stored_head(row) for row in rows]

    def ids(self, lookups: Sequence[tuple[bytes, int, str]]) -> list[IdEntry | None]:
        """Return the index entries of (session key, incarnation, turn id)s."""
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

    def frames(
        self, key: bytes, incarnation: int, after_version: int
    ) -> Iterator[bytes]:
        """Yield segments, then frames, that lead above a version.

        Frames, at most a segment's worth, are read first: a seal that comes
        between then makes an overlap, which readers skip, and never a hole.
        """
        prefix = life_prefix(key, incarnation)
        start = version_key(prefix, after_version + 1)
        frames = [row for _, row in self.rows(FRAMES, prefix, start)]
        yield from (row for _, row in self.rows(SEGMENTS, prefix, start))
        yield from frames

    def base(self, key: bytes, incarnation: int, sealed_version: int) -> bytes | None:
        """Return the frame of kind head that the frames since the seal start from."""
        at = version_key(life_prefix(key, incarnation), sealed_version)
        row: bytes | None = guarded(self._tables[FRAMES].get, at)
        return row

    def asides(self, key: bytes, incarnation: int) -> list[int]:
        """Return the versions of a session's edits and redactions."""
        prefix = life_prefix(key, incarnation) + b"e"
        return [
            int.from_bytes(at[len(prefix) :], "big")
            for at, _ in self.rows(INDEX, prefix)
        ]

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
            batch.delete_range(table, prefix, tables.after_prefix(prefix))
        self.write(batch, sync=True)

    def keys(self, prefix: bytes = b"", after: bytes = b"") -> Iterator[bytes]:
        """Yield session keys in byte order."""
        for key, _ in self.rows(HEADS, prefix, max(prefix, after)):
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
            walker.seek(tables.after_prefix(at[: 2 + length]))
        guarded(walker.status)

    # -- rows and batches --------------------------------------------------

    def batch(self) -> "Batch":
        """Return an empty batch."""
        return Batch(self.handles, self.log_name)

    def write(self, batch: "Batch", *, sync: bool) -> None:
        """Write a batch, all or nothing; with `sync` it survives a power cut."""
        guarded(self._db.write, batch.native, self._sync if sync else self._no_sync)
        self.syncs += sync

    def get(self, table: str, key: bytes) -> bytes | None:
        """Return one row."""
        row: bytes | None = guarded(self._tables[table].get, key)
        return row

    def meta(self, key: bytes) -> bytes | None:
        """Return a row about the store itself."""
        return self.get(META, key)

    def rows(
        self, table: str, prefix: bytes = b"", start: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield (key, row) that start with a prefix, in order, from `start`."""
        walker = guarded(self._tables[table].iter)
        try:
            walker.seek(prefix if start is None else start)
            while guarded(walker.valid):
                key: bytes = walker.key()
                if not key.startswith(prefix):
                    break
                yield key, walker.value()
                walker.next()
            guarded(walker.status)
        finally:
            # A traceback would hold it, and through it the lock of the store.
            del walker

    def last_key(self, table: str) -> bytes | None:
        """Return the greatest key of a table."""
        walker = guarded(self._tables[table].iter)
        try:
            walker.seek_to_last()
            found: bytes | None = walker.key() if walker.valid() else None
            guarded(walker.status)
        finally:
            del walker
        return found

    # -- upkeep -----------------------------------------------------------

    def flush(self) -> None:
        """Write all memtables to files, so that sizes can be told."""
        for table in self._tables.values():
            guarded(table.flush)

    def compact(self, table: str, prefix: bytes | None = None) -> None:
        """Rewrite a table, or what starts with a prefix; deleted bytes go."""
        if prefix is None:
            guarded(self._tables[table].compact_range, None, None)
        else:
            end = tables.after_prefix(prefix)
            guarded(self._tables[table].compact_range, prefix, end)

    def rewrite(self, table: str, first: bytes, last: bytes) -> None:
        """Rewrite every file that may hold rows from `first` to `last`.

        Whatever was deleted or replaced there is in no live file afterwards,
        not even where it had sunk to the bottom level already.
        """
        options = CompactOptions()
        options.set_bottommost_level_compaction(BottommostLevelCompaction.force())
        guarded(
            self._tables[table].compact_range,
            first,
            tables.after_prefix(last),
            options,
        )

    def leftovers(self) -> list[str]:
        """Return files with rows that RocksDB has replaced and not removed yet.

        Table files that are no longer live, as while a reader holds them, and
        write-ahead logs but for the newest.
        """
        live = {Path(entry["name"]).name for entry in self._db.live_files()}
        tables_there = {path.name for path in self.path.glob("*.sst")}
        logs = sorted(path.name for path in self.path.glob("*.log"))
        return sorted(tables_there - live) + logs[:-1]

    def rows_about(self, table: str) -> int:
        """Return about how many rows a table has; O(1)."""
        found = self._tables[table].property_int_value("rocksdb.estimate-num-keys")
        return found or 0

    def table_bytes(self, names: Sequence[str]) -> int:
        """Return the bytes of the live files of some tables."""
        return sum(
            self._tables[name].property_int_value("rocksdb.live-sst-files-size") or 0
            for name in names
        )

    def close(self) -> None:
        """Close; readers and writers of this object fail from here on.

        Raises:
            CorruptDataError: a file is damaged; it is closed all the same.
        """
        self._tables.clear()
        self.handles.clear()
        database, self._db = self._db, None
        if database is None:
            return
        try:
            guarded(database.close)
        finally:
            # An iterator that some traceback holds would hold the lock, too.
            del database
            gc.collect()


class Batch:
    """Collect rows of all tables for one atomic write."""

    def __init__(self, handles: Mapping[str, Any], log_name: str) -> None:
        self.native: Any = WriteBatch(raw_mode=True)
        self._handles = handles
        self._log_name = log_name

    def put(self, table: str, key: bytes, row: bytes) -> None:
        """Set one row."""
        self.native.put(key, row, self._handles[table])

    def delete(self, table: str, key: bytes) -> None:
        """Remove one row."""
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
        self.put(HEADS, sealed.key, encode_stored_head(sealed.after))

    def stage(self, change: SessionChange) -> None:
        """Put in one session's change."""
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
        self.put(HEADS, key, change.row)
