"""A warm store in memory that fails when told to: before a write, or after it."""

from collections.abc import Iterator, Sequence
from typing import Any, cast

from turnstate.storage.encryption.row_cipher import RowCipher
from turnstate.storage.warm.batch import Batch
from turnstate.storage.warm.rocksdb import WarmStore
from turnstate.storage.warm.tables import TABLES

Table = dict[bytes, bytes]


class CrashError(Exception):
    """The process is gone; what it held in memory is lost."""


class _Rows:
    """What `WarmStore` asks of one RocksDB table."""

    def __init__(self, rows: Table) -> None:
        self.rows = rows

    def get(self, key: bytes | list[bytes]) -> Any:
        if isinstance(key, bytes):
            return self.rows.get(key)
        return [self.rows.get(each) for each in key]


class _Recorded:
    """Take what goes into a batch, to be done at once later."""

    def __init__(self) -> None:
        self.does: list[tuple[str, str, bytes, bytes]] = []

    def put(self, key: bytes, row: bytes, table: str) -> None:
        self.does.append(("put", table, key, row))

    def delete(self, key: bytes, table: str) -> None:
        self.does.append(("delete", table, key, b""))

    def delete_range(self, start: bytes, end: bytes, table: str) -> None:
        self.does.append(("delete_range", table, start, end))


class MemoryBatch(Batch):
    """A batch that the memory store can carry out."""

    def __init__(self, log_name: str, row_cipher: RowCipher | None = None) -> None:
        super().__init__({table: table for table in TABLES}, log_name, row_cipher)
        self.native = _Recorded()


class FaultyStore(WarmStore):
    """Keep every table in a dict; all rows of a batch come at once, or none.

    Staging and reading are `WarmStore`'s own. `fails` is for the next write:
    None, `before` or `after`; then `CrashError` is raised.
    """

    def __init__(self, log_name: str, tables: dict[str, Table] | None = None) -> None:
        self.log_name = log_name
        self.row_cipher = None
        self.rows_by_table: dict[str, Table] = tables or {t: {} for t in TABLES}
        fakes = {t: _Rows(rows) for t, rows in self.rows_by_table.items()}
        self._tables = cast("Any", fakes)
        self.fails: str | None = None
        self.writes = 0

    def batch(self) -> Batch:
        return MemoryBatch(self.log_name, self.row_cipher)

    def write(self, batch: Batch, *, sync: bool) -> None:
        fails, self.fails = self.fails, None
        self.writes += 1
        if fails == "before":
            raise CrashError
        for does, table, key, row in batch.native.does:
            rows = self.rows_by_table[table]
            if does == "put":
                rows[key] = row
            elif does == "delete":
                rows.pop(key, None)
            else:
                for each in [one for one in rows if key <= one < row]:
                    del rows[each]
        if fails == "after":
            raise CrashError

    def stored_rows(
        self, table: str, prefix: bytes = b"", start: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        rows = self.rows_by_table[table]
        first = prefix if start is None else start
        for key in sorted(rows):
            if key >= first and key.startswith(prefix):
                yield key, rows[key]

    def last_key(self, table: str) -> bytes | None:
        return max(self.rows_by_table[table], default=None)

    def close(self) -> None:
        pass

    def keys_of(self, table: str) -> Sequence[bytes]:
        """Return the keys of a table in order."""
        return sorted(self.rows_by_table[table])
