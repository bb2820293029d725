"""Numbered objects are checked when read, and strangers among them are passed over."""

from contextlib import suppress

import pytest

from support.packs import memory
from turnstate.schemas.errors import (
    ChecksumError,
    CorruptDataError,
    NotFoundError,
    UnknownVersionError,
)
from turnstate.storage.cold.numbered import NumberedObjects, seal, unseal

BODY = b'{"format":1,"a":[1,2]}'


def test_the_newest_is_the_greatest_number() -> None:
    objects = memory()
    numbered = NumberedObjects(objects, "manifest/")
    assert numbered.newest(0) is None
    for number in (1, 2, 10, 9):
        assert numbered.create(number, BODY)
    objects.create("manifest/99.json", b"too short a name")
    objects.create("manifest/notes.txt", b"an operator's")
    objects.create("manifestation", b"beside")

    assert not numbered.create(9, b'{"format":1}')
    assert numbered.newest(0) == 10
    assert numbered.newest(10) is None
    assert [number for number, _ in numbered.infos()] == [1, 2, 9, 10]
    assert numbered.read(10) == BODY
    with pytest.raises(NotFoundError):
        numbered.read(3)


def test_damage_is_told_by_name() -> None:
    data = seal(BODY)
    for at in range(len(data) - 1):  # the line feed at the end says nothing
        with pytest.raises(CorruptDataError, match="manifest/1"):
            unseal(data[:at], "manifest/1")
        with suppress(CorruptDataError):
            damaged = data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]
            assert unseal(damaged, "manifest/1") == BODY
    with pytest.raises(ChecksumError):
        unseal(data.replace(b"[1,2]", b"[1,3]"), "it")


def test_a_newer_format_is_refused_by_name() -> None:
    with pytest.raises(UnknownVersionError, match="format 2"):
        unseal(seal(b'{"format":2}'), "manifest/1.json")
