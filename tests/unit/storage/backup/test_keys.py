"""Keys beside backups: one copy, the newest; and none in the files of a backup."""

from pathlib import Path

import pytest

from support.encrypting import MASTER_A, MASTER_B, Master, files_with
from support.memory_objects import MemoryObjects
from turnstate.schemas.errors import (
    ChecksumError,
    CorruptDataError,
    UnavailableError,
    UnknownVersionError,
)
from turnstate.storage.backup import keys as module
from turnstate.storage.backup.checkpoint import files_of, make_checkpoint
from turnstate.storage.backup.keys import (
    check_keys,
    copied_keys,
    copy_keys,
    without_keys,
)
from turnstate.storage.warm.rocksdb import WarmStore
from turnstate.storage.warm.tables import KEYS, LOG

ROWS = [(b"id of a key ", b"wrapped"), (b"another id  ", b"wrapped too")]


def damaged(objects: MemoryObjects, name: str) -> None:
    data = objects.read(name)
    objects.delete([name])
    assert objects.create(name, data[:-1] + b"!")


def test_a_copy_takes_the_place_of_the_one_before() -> None:
    objects = MemoryObjects(lambda: 0)
    assert copied_keys(objects) == []
    first = copy_keys(objects, ROWS[:1])
    second = copy_keys(objects, ROWS)
    assert first < second
    assert [info.name for info in objects.list("keys/")] == [second]
    assert copied_keys(objects) == ROWS


def test_of_two_copies_the_newer_counts() -> None:
    objects = MemoryObjects(lambda: 0)
    first = copy_keys(objects, ROWS[:1])
    before = objects.read(first)
    copy_keys(objects, ROWS)
    # As a crash leaves it between the two steps.
    assert objects.create(first, before)
    assert copied_keys(objects) == ROWS


def test_a_copy_that_is_damaged_or_newer_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    objects = MemoryObjects(lambda: 0)
    damaged(objects, copy_keys(objects, ROWS))
    with pytest.raises(ChecksumError, match="copy of the keys"):
        copied_keys(objects)
    monkeypatch.setattr(module, "FORMAT", 2)
    copy_keys(objects, ROWS)
    monkeypatch.setattr(module, "FORMAT", 1)
    with pytest.raises(UnknownVersionError):
        copied_keys(objects)


def test_a_checkpoint_holds_no_keys_and_is_otherwise_the_same(tmp_path: Path) -> None:
    wrapper = Master(MASTER_A)
    store = WarmStore(tmp_path / "store", log_name="log", wrapper=wrapper)
    batch = store.batch()
    batch.put_local(KEYS, b"id of a key!", b"the wrapped key")
    batch.put_local(LOG, bytes(8), b"a chunk")
    store.write(batch, sync=True)
    folder = make_checkpoint(store)
    tables = {path.name: path.read_bytes() for path in folder.glob("*.sst")}
    assert list(files_with(folder, b"the wrapped key"))

    without_keys(folder)
    assert not list(files_with(folder, b"the wrapped key"))
    left = {path.name: path.read_bytes() for path in folder.glob("*.sst")}
    assert left.items() < tables.items()
    assert not {path.name for path in files_of(folder)} & {"LOG", "LOCK"}
    without_keys(folder)
    assert store.stored(KEYS, b"id of a key!") == b"the wrapped key"
    rows = dict(store.stored_rows(KEYS))
    store.close()

    copy = WarmStore(folder, log_name="log", read_only=True)
    assert (copy.stored(LOG, bytes(8)), list(copy.stored_rows(KEYS))) == (
        b"a chunk",
        [],
    )
    copy.close()
    check_keys(list(rows.items()), wrapper)
    for other, code in ((Master(MASTER_B), "wrong_key"), (None, "encrypted")):
        with pytest.raises(UnavailableError) as refused:
            check_keys(list(rows.items()), other)
        assert refused.value.code == code
    with pytest.raises(CorruptDataError):
        check_keys([(b"store\0\1", b"\xc1")], wrapper)
