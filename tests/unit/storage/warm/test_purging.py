"""Purged rows are in no file, though the store is written and read meanwhile."""

import secrets
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.plain_worker import write_plain_blocks
from turnstate.storage.warm.purging import RANGES_MAX, purge, ranges_of
from turnstate.storage.warm.rocksdb import WarmStore
from turnstate.storage.warm.tables import FRAMES, HEADS, META, SEGMENTS, session_prefix

MARK = (b"purging", b"")


@pytest.fixture(name="store")
def fixture_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[WarmStore]:
    write_plain_blocks(monkeypatch)
    store = WarmStore(tmp_path / "store", log_name="log")
    yield store
    store.close()


def there(store: WarmStore, word: bytes) -> bool:
    return any(
        word in path.read_bytes() for path in store.path.iterdir() if path.is_file()
    )


def put(store: WarmStore, table: str, key: bytes, row: bytes) -> None:
    batch = store.batch()
    batch.put(table, key, row)
    store.write(batch, sync=False)


def test_deleted_and_replaced_rows_leave_the_files(store: WarmStore) -> None:
    words = [secrets.token_bytes(24) for _ in range(4)]
    key, prefix = b"\x00\x01ts", session_prefix(b"\x00\x01ts")
    put(store, FRAMES, prefix + b"1", words[0])
    store.flush()
    put(store, SEGMENTS, prefix + b"1", words[1])
    put(store, HEADS, key, words[2])
    put(store, HEADS, b"\x00\x01tz", words[3])
    batch = store.batch()
    batch.delete_range(FRAMES, prefix, prefix + b"\xff")
    batch.delete(SEGMENTS, prefix + b"1")
    batch.put(HEADS, key, b"tombstone")
    store.write(batch, sync=False)
    assert all(there(store, word) for word in words)
    ended = threading.Event()

    def write() -> None:
        at = 0
        while not ended.is_set():
            put(store, META, b"busy", b"%d" % at)
            put(store, FRAMES, b"\x00\x04\x00\x01tz" + b"%d" % at, b"more")
            at += 1

    busy = threading.Thread(target=write)
    busy.start()
    try:
        assert purge(store, [key], MARK) == []
    finally:
        ended.set()
        busy.join()
    assert [there(store, word) for word in words] == [False, False, False, True]
    assert store.get(HEADS, key) == b"tombstone"


def test_a_file_that_is_read_is_waited_for_and_then_named(store: WarmStore) -> None:
    key, prefix = b"\x00\x01ts", session_prefix(b"\x00\x01ts")
    put(store, FRAMES, prefix + b"1", b"x" * 100)
    store.flush()
    walk = store.rows(FRAMES)
    next(walk)
    batch = store.batch()
    batch.delete(FRAMES, prefix + b"1")
    store.write(batch, sync=False)
    left = purge(store, [key], MARK, patience_s=0.1)
    assert [name[-4:] for name in left] == [".sst"]
    walk.close()  # type: ignore[attr-defined]
    put(store, HEADS, b"\x00\x01tz", b"row")
    assert purge(store, [key], MARK) == []


def test_a_store_that_closes_is_not_waited_for(store: WarmStore) -> None:
    assert purge(store, [b"\x00\x01ts"], MARK, goes_on=lambda: False)


def test_many_sessions_are_one_range() -> None:
    keys = [b"\x00\x01t%04d" % at for at in range(RANGES_MAX + 1)]
    assert len(ranges_of(keys)) == 4
    assert (HEADS, keys[0], keys[-1]) in ranges_of(keys)
    assert len(ranges_of(keys[1:])) == 4 * RANGES_MAX
