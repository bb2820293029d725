"""A restore fills an empty folder, verified, and what it has begun it goes on with."""

from pathlib import Path

import pytest

from support.memory_objects import MemoryObjects
from turnstate.schemas.errors import ConflictError, CorruptDataError, UnavailableError
from turnstate.storage.backup.manifest import StoreFacts
from turnstate.storage.backup.restore import (
    drop_half_restored,
    fetch_backup,
    put_in_place,
    refuse_half_restored,
    restoring_folder,
)
from turnstate.storage.backup.snapshot import take_backup

FACTS = StoreFacts("aa", "log", ["log"], 7)
CONTENTS = {"1.sst": b"one", "2.sst": b"two" * 9, "CURRENT": b"c", "empty": b""}


@pytest.fixture(name="objects")
def fixture_objects(tmp_path: Path) -> MemoryObjects:
    objects = MemoryObjects(lambda: 0)
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    for name, data in CONTENTS.items():
        (folder / name).write_bytes(data)
    take_backup(objects, folder, FACTS, 1)
    return objects


@pytest.fixture(name="store")
def fixture_store(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data" / "store"


def _held(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_every_file_is_where_it_was(objects: MemoryObjects, store: Path) -> None:
    manifest, folder = fetch_backup(objects, store)
    assert (manifest.number, manifest.facts) == (1, FACTS)
    assert not store.exists()
    put_in_place(folder, store)
    assert _held(store) == CONTENTS
    assert not restoring_folder(store).exists()


def test_an_empty_folder_is_taken_and_a_full_one_refused(
    objects: MemoryObjects, store: Path
) -> None:
    store.mkdir()
    _, folder = fetch_backup(objects, store)
    put_in_place(folder, store)
    with pytest.raises(ConflictError):
        fetch_backup(objects, store)
    store_file = store.with_name("file")
    store_file.write_bytes(b"")
    with pytest.raises(ConflictError):
        fetch_backup(objects, store_file)


def test_a_store_that_came_meanwhile_is_not_replaced(
    objects: MemoryObjects, store: Path
) -> None:
    _, folder = fetch_backup(objects, store)
    store.mkdir()
    (store / "CURRENT").write_bytes(b"mine")
    with pytest.raises(ConflictError):
        put_in_place(folder, store)
    assert _held(store) == {"CURRENT": b"mine"}


def test_what_is_half_done_is_checked_kept_and_finished(
    objects: MemoryObjects, store: Path
) -> None:
    folder = restoring_folder(store)
    folder.mkdir()
    (folder / "1.sst").write_bytes(b"one")
    (folder / "2.sst").write_bytes(b"torn")
    (folder / "9.sst").write_bytes(b"of another backup")
    (folder / "sub").mkdir()
    (folder / "CURRENT.part").write_bytes(b"")
    with pytest.raises(UnavailableError) as refused:
        refuse_half_restored(store)
    assert refused.value.code == "half_restored"
    reads = objects.calls
    _, again = fetch_backup(objects, store)
    assert _held(again) == CONTENTS
    # Two lists and manifests are read, and three of four files.
    assert objects.calls - reads == 2 + 3
    put_in_place(again, store)
    refuse_half_restored(store)


def test_all_that_is_wrong_is_named_and_nothing_is_in_place(
    objects: MemoryObjects, store: Path
) -> None:
    names = sorted(name for name in objects.held if name.startswith("files/"))
    objects.held[names[0]] = (b"others", 0)
    for name in names[1:]:
        del objects.held[name]
    with pytest.raises(CorruptDataError) as refused:
        fetch_backup(objects, store)
    assert refused.value.message.count("is missing") == len(names) - 1
    assert all(name in refused.value.message for name in names)
    assert not store.exists()
    drop_half_restored(store)
    refuse_half_restored(store)


def test_a_disk_that_refuses_is_told(objects: MemoryObjects, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UnavailableError) as refused:
        fetch_backup(objects, tmp_path / "file" / "store")
    assert refused.value.field == "data"
