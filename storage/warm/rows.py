"""One RocksDB with a table for everything: open, rows, batches, files."""

import gc
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rocksdict import (
    AccessType,
    BottommostLevelCompaction,
    Cache,
    Checkpoint,
    CompactOptions,
    Rdict,
    WriteOptions,
)

from turnstate.schemas.errors import (
    ErasedKeyError,
    UnavailableError,
    UnknownVersionError,
)
from turnstate.storage.encryption.cipher import is_encrypted
from turnstate.storage.encryption.key_file import FIELD, KeyWrapper
from turnstate.storage.encryption.row_cipher import RowCipher
from turnstate.storage.encryption.store_keys import (
    check_master,
    store_keys,
    unlocked,
)
from turnstate.storage.warm import tables
from turnstate.storage.warm.batch import Batch
from turnstate.storage.warm.failures import closed_on_failure, guarded, opening_failed
from turnstate.storage.warm.options import database_options, table_options
from turnstate.storage.warm.tables import (
    ENCRYPTED_TABLES,
    META,
    STORE_VERSION,
    STORE_VERSION_COLD,
    TABLES,
    VERSION_KEY,
)


class RocksTables:
    """Own one RocksDB; opened by one process at a time.

    Everything that belongs together goes into one `Batch`, so that a crash
    leaves all of it or none. Rows of the embedded log ride in the same batch.

    Args:
        path: The folder; made if it is not there.
        log_name: The name under which the log stamps.
        cache_bytes: Of the block cache that all tables share.
        cache: One that other stores share, in place of one of its own.
        write_buffer_bytes: Of all memtables together.
        read_only: Open without becoming the owner.
        wrapper: Who has the master key; None = what is written is not
            encrypted, and what is encrypted cannot be read.

    Attributes:
        row_cipher: Encrypts and opens rows, None where nothing is encrypted.

    Raises:
        UnavailableError: another process owns it, or it is encrypted with
            another master key.
        UnknownVersionError: a newer version of turnstate wrote it.
        CorruptDataError: RocksDB cannot read it.
    """

    def __init__(
        self,
        path: Path,
        *,
        log_name: str,
        cache_bytes: int = 64 << 20,
        write_buffer_bytes: int = 64 << 20,
        read_only: bool = False,
        cache: Cache | None = None,
        wrapper: KeyWrapper | None = None,
    ) -> None:
        self.path = path
        self.log_name = log_name
        cache = cache or Cache(cache_bytes)
        access = AccessType.read_only() if read_only else AccessType.read_write()
        families = {table: table_options(table, cache) for table in TABLES}
        families["default"] = table_options("default", cache)
        self.row_cipher: RowCipher | None = None
        try:
            if read_only:
                # A table that an older turnstate did not make is an empty one.
                there = Rdict.list_cf(str(path))
                families = {name: families[name] for name in there if name in families}
            self._db: Any = Rdict(
                str(path),
                database_options(write_buffer_bytes),
                column_families=families,
                access_type=access,
            )
        except Exception as error:
            raise opening_failed(path, error) from error
        made: list[str] = [table for table in TABLES if table in families]
        self._tables = {table: self._db.get_column_family(table) for table in made}
        self.handles = {
            table: self._db.get_column_family_handle(table) for table in made
        }
        self._sync = WriteOptions()
        self._sync.sync = True
        self._no_sync = WriteOptions()
        self.syncs = 0
        with closed_on_failure(self):
            self._check_version(read_only)
            if wrapper is not None:
                self.unlock(wrapper, may_make=not read_only)

    # -- encryption ----------------------------------------------------------

    def unlock(self, wrapper: KeyWrapper, *, may_make: bool = True) -> None:
        """Encrypt what is written from now on, and read what is encrypted.

        Args:
            wrapper: Who has the master key.
            may_make: Whether a store that has no key yet gets one.

        Raises:
            UnavailableError: another master key wraps the store's.
        """
        self.row_cipher = RowCipher(unlocked(self, wrapper, may_make=may_make), wrapper)

    def refuse_locked(self) -> None:
        """Refuse a store that is encrypted, where no master key was given.

        Raises:
            UnavailableError: it is (code `encrypted`).
        """
        if self.row_cipher is None:
            for found in store_keys(self):
                check_master(found, None)

    def opened(self, table: str, key: bytes, row: bytes) -> bytes:
        """Return a row of a table as it was before it was encrypted.

        Raises:
            ErasedKeyError: its key was destroyed.
            UnavailableError: it is encrypted, and no master key was given.
            CorruptDataError: it was changed, moved, or its key is lost.
        """
        if self.row_cipher is not None:
            return self.row_cipher.decrypt(table, key, row)
        if is_encrypted(row):
            raise UnavailableError(
                f"a row of {table} is encrypted, and the setting {FIELD} is empty",
                field=FIELD,
                hint="set TURNSTATE_ENCRYPTION=keyfile:PATH to where its key is",
                code="encrypted",
            )
        return row

    def _check_version(self, read_only: bool) -> None:
        row = self.meta(VERSION_KEY)
        if row is None:
            if not read_only:
                batch = self.batch()
                batch.put(META, VERSION_KEY, bytes([STORE_VERSION]))
                self.write(batch, sync=True)
        elif row[0] > STORE_VERSION_COLD:
            raise UnknownVersionError(
                f"the store {self.path} has format {row[0]}, this knows"
                f" {STORE_VERSION_COLD}",
                hint="use a newer turnstate; the store is untouched",
            )

    # -- rows and batches --------------------------------------------------

    def batch(self) -> "Batch":
        """Return an empty batch."""
        return Batch(self.handles, self.log_name, self.row_cipher)

    def write(self, batch: "Batch", *, sync: bool) -> None:
        """Write a batch, all or nothing; with `sync` it survives a power cut."""
        guarded(self._db.write, batch.native, self._sync if sync else self._no_sync)
        self.syncs += sync
        if self.row_cipher is not None and batch.new_keys:
            self.row_cipher.ring.saved(batch.new_keys)

    def get(self, table: str, key: bytes) -> bytes | None:
        """Return one row; see `opened` for what it may raise."""
        row = self.stored(table, key)
        if row is None or table not in ENCRYPTED_TABLES:
            return row
        return self.opened(table, key, row)

    def stored(self, table: str, key: bytes) -> bytes | None:
        """Return one row as it lies, encrypted or not."""
        if table not in self._tables:
            return None
        row: bytes | None = guarded(self._tables[table].get, key)
        return row

    def meta(self, key: bytes) -> bytes | None:
        """Return a row about the store itself."""
        return self.get(META, key)

    def rows(
        self, table: str, prefix: bytes = b"", start: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield (key, row) that start with a prefix, in order, from `start`.

        A row whose key was destroyed is left out: it is as good as gone.
        """
        if table not in ENCRYPTED_TABLES:
            yield from self.stored_rows(table, prefix, start)
            return
        for key, row in self.stored_rows(table, prefix, start):
            try:
                plain = self.opened(table, key, row)
            except ErasedKeyError:
                continue
            yield key, plain

    def stored_rows(
        self, table: str, prefix: bytes = b"", start: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield (key, row) as `rows` does, rows as they lie, encrypted or not."""
        if table not in self._tables:
            return
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

    def checkpoint(self, folder: Path) -> None:
        """Link all files, as of now, into a new folder on the same file system.

        Memtables are written to files first, so that it needs no log. It
        shares bytes with the store and keeps them until it is removed.
        """
        guarded(Checkpoint(self._db).create_checkpoint, str(folder))

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
