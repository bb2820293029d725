"""A backup is there whole or not at all, and takes up only what is new."""

from pathlib import Path

import pytest

from support.faulty_objects import FaultyObjects, Mishap
from support.memory_objects import MemoryObjects
from turnstate.schemas.errors import (
    ChecksumError,
    ConflictError,
    TurnstateError,
    UnavailableError,
)
from turnstate.storage.backup.manifest import (
    FILES,
    StoreFacts,
    encode_manifest,
    manifest_name,
    numbers,
    read_manifest,
)
from turnstate.storage.backup.packs import ColdSource
from turnstate.storage.backup.snapshot import (
    UNUSED_AGE_MS,
    check_backup,
    collect,
    take_backup,
)

FACTS = StoreFacts("aa", "log", ["log"], 7)
OLD = 10 * UNUSED_AGE_MS
PACK = "packs/00000000000000000003-01HF7YAT000000000000000000"


@pytest.fixture(name="folder")
def fixture_folder(tmp_path: Path) -> Path:
    for name, data in [("1.sst", b"one"), ("2.sst", b"two" * 9), ("CURRENT", b"c")]:
        (tmp_path / name).write_bytes(data)
    return tmp_path


@pytest.fixture(name="objects")
def fixture_objects() -> MemoryObjects:
    return MemoryObjects(lambda: 0)


def test_the_second_one_sends_what_is_new(objects: MemoryObjects, folder: Path) -> None:
    first = take_backup(objects, folder, FACTS, 1)
    assert (first.manifest.number, first.files_new, first.bytes_new) == (1, 3, 31)
    (folder / "3.sst").write_bytes(b"three")
    (folder / "1.sst").unlink()
    before = objects.calls
    second = take_backup(objects, folder, FACTS, 2)
    assert (second.manifest.number, second.files_new, second.bytes_new) == (2, 1, 5)
    names = [file.name for file in second.manifest.files]
    assert names == ["2.sst", "3.sst", "CURRENT"]
    assert objects.calls - before < 12
    assert check_backup(objects)[1] == []


def test_equal_files_are_one_object(objects: MemoryObjects, folder: Path) -> None:
    (folder / "4.sst").write_bytes(b"one")
    take_backup(objects, folder, FACTS, 1)
    assert sum(name.startswith(FILES) for name in objects.held) == 3


@pytest.mark.parametrize("mishap", list(Mishap)[:4])
def test_whatever_call_fails_earlier_backups_stay_whole(
    folder: Path, mishap: Mishap
) -> None:
    counted = FaultyObjects(MemoryObjects(lambda: 0))
    take_backup(counted, folder, FACTS, 1)
    first, calls = counted.calls, 0
    (folder / "3.sst").write_bytes(b"three")
    take_backup(counted, folder, FACTS, 2)
    calls = counted.calls - first
    (folder / "3.sst").unlink()
    for at in range(1, calls + 1):
        objects = MemoryObjects(lambda: 0)
        take_backup(objects, folder, FACTS, 1)
        (folder / "3.sst").write_bytes(b"three")
        try:
            take_backup(FaultyObjects(objects, {at: mishap}), folder, FACTS, 2)
        except TurnstateError:
            (folder / "3.sst").unlink()
            assert check_backup(objects, 1)[1] == []
            continue
        (folder / "3.sst").unlink()
        assert check_backup(objects, 1)[1] == []
        # A read that is damaged on its way counts against what is stored.
        assert numbers(objects)[-1] == 2


def test_what_does_not_read_back_is_no_backup(
    objects: MemoryObjects, folder: Path
) -> None:
    faulty = FaultyObjects(objects, {3: Mishap.TORN})
    with pytest.raises(ChecksumError):
        take_backup(faulty, folder, FACTS, 1)
    assert numbers(objects) == []


def test_an_object_that_was_cut_since_is_not_relied_on(
    objects: MemoryObjects, folder: Path
) -> None:
    first = take_backup(objects, folder, FACTS, 1)
    name = first.manifest.files[0].object_name
    objects.held[name] = (b"", 0)
    with pytest.raises(ChecksumError, match=name):
        take_backup(objects, folder, FACTS, 2)
    assert check_backup(objects, 1)[1] == [f"{name} (1.sst) is damaged"]
    del objects.held[name]
    assert check_backup(objects, 1)[1] == [f"{name} (1.sst) is missing"]
    assert take_backup(objects, folder, FACTS, 2).files_new == 1


def test_two_at_once_make_one_backup(objects: MemoryObjects, folder: Path) -> None:
    take_backup(objects, folder, FACTS, 1)
    before = objects.calls
    other = encode_manifest(take_backup(objects, folder, FACTS, 2).manifest)
    del objects.held[manifest_name(2)]
    # A list and a read of manifests, a list of files; then the commit.
    assert objects.calls - before == 6
    objects.interrupt({4: lambda: objects.create(manifest_name(2), other)})
    with pytest.raises(ConflictError) as refused:
        take_backup(objects, folder, FACTS, 3)
    assert refused.value.code == "backup_beside"


def test_files_that_go_while_it_is_made_are_missed(
    objects: MemoryObjects, folder: Path
) -> None:
    first = take_backup(objects, folder, FACTS, 1).manifest
    calls = objects.calls
    take_backup(objects, folder, FACTS, 2)
    between = objects.calls - calls
    name = first.files[0].object_name
    objects.interrupt({between: lambda: objects.held.pop(name)})
    with pytest.raises(ConflictError, match=name):
        take_backup(objects, folder, FACTS, 3)
    assert numbers(objects) == [1, 2]


def test_a_file_that_cannot_be_read_is_told(
    objects: MemoryObjects, folder: Path
) -> None:
    for number in range(30):
        (folder / f"n{number}.sst").write_bytes(bytes([number]))
    (folder / "z.sst").write_bytes(b"z")
    with pytest.raises(UnavailableError):
        take_backup(_Late(objects, folder), folder, FACTS, 1)
    assert numbers(objects) == []


class _Late(FaultyObjects):
    """Objects of which the first that is made takes a file of the checkpoint away."""

    def __init__(self, objects: MemoryObjects, folder: Path) -> None:
        super().__init__(objects)
        self._folder = folder

    def create(self, name: str, data: bytes) -> bool:
        (self._folder / "z.sst").unlink(missing_ok=True)
        return super().create(name, data)


def test_packs_are_copied_once(objects: MemoryObjects, folder: Path) -> None:
    cold = MemoryObjects(lambda: 0)
    cold.create(PACK, b"sessions")
    source = ColdSource(cold, {PACK: 4})
    first = take_backup(objects, folder, FACTS, 1, cold=source)
    assert [(copy.pack, copy.order) for copy in first.manifest.packs] == [(PACK, 4)]
    cold.held.clear()
    second = take_backup(objects, folder, FACTS, 2, cold=source)
    assert second.files_new == 0
    assert second.manifest.packs == first.manifest.packs
    with pytest.raises(ConflictError):
        take_backup(MemoryObjects(lambda: 0), folder, FACTS, 1, cold=source)


def test_a_collection_keeps_what_is_needed(
    objects: MemoryObjects, folder: Path
) -> None:
    for number in range(1, 5):
        (folder / "n.sst").write_bytes(b"n" * number)
        take_backup(objects, folder, FACTS, number)
    objects.create(f"{FILES}{'0' * 64}-3", b"abc")
    objects.create("savepoints/s/card.json", b"{}")
    done = collect(objects, keep=2, now_ms=1)
    assert (done.backups, done.files) == ([1, 2], 2)
    assert numbers(objects) == [3, 4]
    assert all(check_backup(objects, number)[1] == [] for number in (3, 4))
    # What nobody ever named goes when it is old.
    assert collect(objects, keep=2, now_ms=OLD).files == 1
    assert "savepoints/s/card.json" in objects.held


def test_a_damaged_manifest_that_is_kept_stops_a_collection(
    objects: MemoryObjects, folder: Path
) -> None:
    take_backup(objects, folder, FACTS, 1)
    take_backup(objects, folder, FACTS, 2)
    before = dict(objects.held)
    objects.held[manifest_name(2)] = (b"{}", 0)
    with pytest.raises(ChecksumError):
        collect(objects, keep=1, now_ms=OLD)
    assert set(objects.held) == set(before)


def test_a_damaged_manifest_that_goes_takes_its_files(
    objects: MemoryObjects, folder: Path
) -> None:
    take_backup(objects, folder, FACTS, 1)
    (folder / "1.sst").unlink()
    take_backup(objects, folder, FACTS, 2)
    objects.held[manifest_name(1)] = (b"{}", 0)
    assert collect(objects, keep=1, now_ms=OLD).backups == [1]
    assert read_manifest(objects).number == 2
    assert sum(name.startswith(FILES) for name in objects.held) == 2
