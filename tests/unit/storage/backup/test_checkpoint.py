"""A checkpoint is the store as of one moment, whatever is written after it."""

from contextlib import closing
from pathlib import Path

import pytest

from turnstate.schemas.errors import UnavailableError
from turnstate.storage.backup.checkpoint import (
    checkpoint_folder,
    files_of,
    make_checkpoint,
    remove_checkpoint,
)
from turnstate.storage.warm.rocksdb import WarmStore
from turnstate.storage.warm.tables import LOG, META


def _store(path: Path) -> WarmStore:
    return WarmStore(path, log_name="log")


def _put(store: WarmStore, table: str, key: bytes, row: bytes) -> None:
    batch = store.batch()
    batch.put(table, key, row)
    store.write(batch, sync=False)


def test_it_has_what_was_written_before_and_nothing_after(tmp_path: Path) -> None:
    with closing(_store(tmp_path / "store")) as store:
        _put(store, META, b"k", b"before")
        _put(store, LOG, b"k", b"row" * 1000)
        folder = make_checkpoint(store)
        _put(store, META, b"k", b"after")
        store.compact(LOG)
        with closing(WarmStore(folder, log_name="log", read_only=True)) as found:
            assert found.meta(b"k") == b"before"
            assert found.get(LOG, b"k") == b"row" * 1000
        assert store.meta(b"k") == b"after"


def test_tables_are_linked_not_copied(tmp_path: Path) -> None:
    with closing(_store(tmp_path / "store")) as store:
        _put(store, LOG, b"k", b"row")
        folder = make_checkpoint(store)
        tables = [path for path in files_of(folder) if path.suffix == ".sst"]
        assert tables
        assert all(path.stat().st_nlink == 2 for path in tables)


def test_one_that_was_left_is_replaced(tmp_path: Path) -> None:
    left = checkpoint_folder(tmp_path / "store")
    left.mkdir()
    (left / "old").write_bytes(b"")
    with closing(_store(tmp_path / "store")) as store:
        assert make_checkpoint(store) == left
    assert not (left / "old").exists()
    assert remove_checkpoint(left)
    assert not remove_checkpoint(left)


def test_one_that_cannot_be_removed_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "file"
    folder.write_bytes(b"")
    with pytest.raises(UnavailableError, match="file"):
        remove_checkpoint(folder)
