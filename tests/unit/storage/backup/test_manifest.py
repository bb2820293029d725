"""The manifest of a backup: read back as written, and nothing else is believed."""

import msgspec
import pytest

from support.memory_objects import MemoryObjects
from turnstate.schemas.errors import (
    ChecksumError,
    CorruptDataError,
    NotFoundError,
    UnknownVersionError,
)
from turnstate.storage.backup.content import content_hash
from turnstate.storage.backup.manifest import (
    FORMAT,
    BackupFile,
    Manifest,
    PackCopy,
    StoreFacts,
    decode_manifest,
    encode_manifest,
    manifest_name,
    numbers,
    read_manifest,
)

FACTS = StoreFacts("aa", "log", ["log"], 7)
PACK = "packs/00000000000000000003-01HF7YAT000000000000000000"


def _manifest(number: int = 1, name: str = "1.sst", pack: str = PACK) -> Manifest:
    return Manifest(
        FORMAT,
        number,
        FACTS,
        5,
        [BackupFile(name, 3, content_hash(b"abc"))],
        [PackCopy(pack, 2, 4, content_hash(b"abcd"))],
    )


def test_it_reads_back_and_says_its_bytes() -> None:
    manifest = _manifest()
    assert decode_manifest(encode_manifest(manifest), "m") == manifest
    assert manifest.bytes == 7


@pytest.mark.parametrize("at", [0, 30, -10])
def test_a_flipped_bit_is_damage(at: int) -> None:
    data = bytearray(encode_manifest(_manifest()))
    data[at] ^= 1
    with pytest.raises(CorruptDataError):
        decode_manifest(bytes(data), "m")


@pytest.mark.parametrize("cut", [0, 1, 40, -1, -30])
def test_a_cut_one_is_damage(cut: int) -> None:
    data = encode_manifest(_manifest()).rstrip(b"\n")
    with pytest.raises(ChecksumError):
        decode_manifest(data[:cut], "m")


def test_a_newer_format_is_refused_by_name() -> None:
    newer = msgspec.structs.replace(_manifest(), format=FORMAT + 1)
    with pytest.raises(UnknownVersionError):
        decode_manifest(encode_manifest(newer), "m")


@pytest.mark.parametrize("name", ["../x", "a/b", "..", ".", "", "/etc/passwd", "a\0b"])
def test_a_file_outside_its_folder_is_refused(name: str) -> None:
    with pytest.raises(CorruptDataError):
        decode_manifest(encode_manifest(_manifest(name=name)), "m")


def test_a_pack_that_is_none_is_refused() -> None:
    with pytest.raises(CorruptDataError):
        decode_manifest(encode_manifest(_manifest(pack="packs/../x")), "m")


def test_the_latest_is_the_highest_number() -> None:
    objects = MemoryObjects(lambda: 0)
    with pytest.raises(NotFoundError):
        read_manifest(objects)
    for number in (9, 10, 2):
        objects.create(manifest_name(number), encode_manifest(_manifest(number)))
    objects.create("manifests/note.txt", b"not ours")
    assert numbers(objects) == [2, 9, 10]
    assert read_manifest(objects).number == 10
    assert read_manifest(objects, 2).number == 2
    with pytest.raises(NotFoundError) as missing:
        read_manifest(objects, 3)
    assert missing.value.hint == "there are 2, 9, 10"


def test_a_manifest_under_another_number_is_damage() -> None:
    objects = MemoryObjects(lambda: 0)
    objects.create(manifest_name(4), encode_manifest(_manifest(3)))
    with pytest.raises(CorruptDataError):
        read_manifest(objects, 4)
