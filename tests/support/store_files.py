"""Look at a store's files and rows from outside, as they were at a moment."""

import shutil
from pathlib import Path
from typing import Final

from turnstate.storage.warm.rocksdb import WarmStore
from turnstate.storage.warm.tables import TABLES
from turnstate.streams.embedded.store import STORE_FOLDER

Rows = dict[str, list[tuple[bytes, bytes]]]
"""table → all its rows in order."""

LOG_NAME: Final = "log"


def rows_of(store: WarmStore) -> Rows:
    """Return everything that a store holds."""
    return {table: list(store.rows(table)) for table in TABLES}


def rows_in(data: Path) -> Rows:
    """Open the store of a data folder and return everything that it holds."""
    store = WarmStore(data / STORE_FOLDER, log_name=LOG_NAME)
    try:
        return rows_of(store)
    finally:
        store.close()


def wal_of(data: Path) -> Path:
    """Return the file that RocksDB writes ahead to, the newest one."""
    return max((data / STORE_FOLDER).glob("*.log"))


def image(data: Path, target: Path) -> Path:
    """Copy a data folder as it lies on the disk while its owner is alive."""
    shutil.rmtree(target, ignore_errors=True)
    passing = shutil.ignore_patterns("LOG*", "LOCK", "*.sock")
    shutil.copytree(data, target, ignore=passing)
    return target
