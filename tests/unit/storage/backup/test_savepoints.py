"""Savepoints: whole or not at all, read back part by part, deleted by name only."""

import pytest

from support.memory_objects import MemoryObjects
from turnstate.schemas.errors import ConflictError, CorruptDataError, NotFoundError
from turnstate.storage.backup.manifest import StoreFacts
from turnstate.storage.backup.savepoints import (
    PART_BYTES,
    SavepointWriter,
    delete_savepoint,
    open_savepoint,
    read_savepoint,
    savepoints,
)

FACTS = StoreFacts("aa", "log", ["log"], 7)


@pytest.fixture(name="objects")
def fixture_objects() -> MemoryObjects:
    return MemoryObjects(lambda: 0)


def _made(objects: MemoryObjects, name: str, data: bytes) -> None:
    writer = SavepointWriter(objects, name)
    for at in range(0, len(data), 1 << 20):
        writer.write(data[at : at + (1 << 20)])
    writer.commit(FACTS, 5, 3)


@pytest.mark.parametrize("size", [0, 1, PART_BYTES - 1, PART_BYTES, 2 * PART_BYTES + 7])
def test_it_reads_back(objects: MemoryObjects, size: int) -> None:
    data = bytes(at % 251 for at in range(1000)) * (size // 1000 + 1)
    _made(objects, "s", data[:size])
    card = read_savepoint(objects, "s")
    assert (card.bytes, card.operations) == (size, 3)
    with open_savepoint(objects, card) as file:
        assert file.read(10) == data[:size][:10]
        assert file.read() == data[:size][10:]


def test_without_a_commit_there_is_none(objects: MemoryObjects) -> None:
    SavepointWriter(objects, "s").write(bytes(PART_BYTES))
    assert list(savepoints(objects)) == []
    with pytest.raises(NotFoundError):
        read_savepoint(objects, "s")
    _made(objects, "s", b"again")
    assert [card.name for card in savepoints(objects)] == ["s"]
    assert delete_savepoint(objects, "s") == 3
    assert objects.held == {}


def test_a_name_is_given_once(objects: MemoryObjects) -> None:
    late = SavepointWriter(objects, "s")
    _made(objects, "s", b"first")
    with pytest.raises(ConflictError):
        SavepointWriter(objects, "s")
    late.write(b"second")
    with pytest.raises(ConflictError):
        late.commit(FACTS, 6, 1)
    with open_savepoint(objects, read_savepoint(objects, "s")) as file:
        assert file.read() == b"first"


def test_a_damaged_and_a_missing_part_are_named(objects: MemoryObjects) -> None:
    _made(objects, "s", b"abc")
    (name,) = [each for each in objects.held if not each.endswith("card.json")]
    card = read_savepoint(objects, "s")
    objects.held[name] = (b"abd", 0)
    with open_savepoint(objects, card) as file, pytest.raises(CorruptDataError):
        file.read()
    del objects.held[name]
    with (
        open_savepoint(objects, card) as file,
        pytest.raises(CorruptDataError, match=name),
    ):
        file.read()


def test_a_damaged_card_is_named(objects: MemoryObjects) -> None:
    _made(objects, "s", b"abc")
    objects.held["savepoints/s/card.json"] = (b'{"format":1}\nxx\n', 0)
    with pytest.raises(CorruptDataError, match="'s'"):
        read_savepoint(objects, "s")


def test_deleting_one_leaves_its_neighbour(objects: MemoryObjects) -> None:
    _made(objects, "s", b"abc")
    _made(objects, "s2", b"abc")
    delete_savepoint(objects, "s")
    assert [card.name for card in savepoints(objects)] == ["s2"]
    with open_savepoint(objects, read_savepoint(objects, "s2")) as file:
        assert file.read() == b"abc"
    with pytest.raises(NotFoundError):
        delete_savepoint(objects, "s")
