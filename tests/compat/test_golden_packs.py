"""Every pack, manifest and lease that was ever written still reads, to the byte."""

import json
from pathlib import Path
from typing import Any, Final

import pytest
from compat import other_pack_reader, other_reader
from compat.make_golden import record_hash
from compat.make_golden_packs import TIME_MS, main

from support.packs import memory
from turnstate.storage.cold.lease import Lease, Leases
from turnstate.storage.cold.manifest import Manifest, Manifests, Pin
from turnstate.storage.cold.names import pack_name
from turnstate.storage.cold.pack import PACK_VERSION, decode_pack, images_of
from turnstate.storage.session_image import decode_image

GOLDEN: Final = Path(__file__).parent / "golden" / "cold"
VERSIONS: Final = sorted(path.name for path in GOLDEN.iterdir())
NAMES: Final = [pack_name(n, TIME_MS + n, bytes([n] * 10)) for n in (1, 2)]

each_version = pytest.mark.parametrize("version", VERSIONS)


def told_of(image: Any, order: int) -> dict[str, Any]:
    return {
        "key": image.key.hex(),
        "incarnation": image.incarnation,
        "version": image.version,
        "row": image.row.hex(),
        "base": None if image.base is None else record_hash(image.base),
        "frames": [record_hash(each) for each in image.frames],
        "index": [[suffix.hex(), row.hex()] for suffix, row in image.entries],
        "order": order,
    }


def expected(version: str) -> dict[str, Any]:
    text = (GOLDEN / version / "expected.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def test_every_format_version_has_files() -> None:
    assert {f"v{n}" for n in range(1, PACK_VERSION + 1)} == set(VERSIONS)


@each_version
def test_a_pack_holds_what_it_held(version: str) -> None:
    told = expected(version)
    pack = decode_pack((GOLDEN / version / "pack.bin").read_bytes())
    *kept, (left, nothing) = images_of(pack)

    assert [told_of(decode_image(data), e.order) for e, data in kept] == told["images"]
    assert (left.key.hex(), left.incarnation, left.version, nothing) == (
        told["left"]["key"],
        told["left"]["incarnation"],
        told["left"]["version"],
        b"",
    )
    assert all(pack.bloom.may_hold(entry.key) for entry in pack.entries)
    assert not pack.bloom.may_hold(b"a stranger")


@each_version
def test_the_page_is_enough_to_read_a_pack(version: str) -> None:
    told = expected(version)
    data = (GOLDEN / version / "pack.bin").read_bytes()
    entries, bloom = other_pack_reader.read_pack(data)
    images = [data[entry.offset :][: entry.length] for entry in entries]

    assert [other_reader.crc32c(image) for image in images] == [
        entry.crc for entry in entries
    ]
    assert [
        told_of(other_pack_reader.read_image(image), entry.order)
        for image, entry in zip(images[:-1], entries[:-1], strict=True)
    ] == told["images"]
    assert images[-1] == b""
    assert all(other_pack_reader.may_hold(bloom, entry.key) for entry in entries)
    assert not other_pack_reader.may_hold(bloom, b"a stranger")


@each_version
def test_a_manifest_says_what_it_said(version: str) -> None:
    data = (GOLDEN / version / "manifest.json").read_bytes()
    objects = memory()
    objects.create(f"manifest/{3:020d}.json", data)
    found = Manifests(objects, bytes).latest()

    assert (found.number, found.previous, found.epoch, found.order) == (3, 2, 2, 2)
    assert [name for name, _ in found.newest_first()] == NAMES[::-1]
    assert found.packs[NAMES[0]].live_bytes == 450
    assert found.pins == {
        "checkpoint é": Pin(None, NAMES),
        "reader": Pin(TIME_MS + 5, NAMES),
    }
    body = other_pack_reader.read_numbered(data)
    assert body.keys() == set(Manifest.__struct_fields__)
    assert body["packs"][NAMES[0]]["live_bytes"] == 450
    assert len(body["recent"]) == 3


@each_version
def test_a_lease_says_what_it_said(version: str) -> None:
    data = (GOLDEN / version / "lease.json").read_bytes()
    objects = memory()
    objects.create(f"lease/{2:020d}.json", data)
    found = Leases(objects, bytes).latest()

    assert found is not None
    assert (found.number, found.token, found.holder) == (2, 1, "host:1:é")
    assert (found.taken_ms, found.expires_ms) == (TIME_MS + 1, TIME_MS + 60_001)
    assert not found.released
    body = other_pack_reader.read_numbered(data)
    assert body.keys() == set(Lease.__struct_fields__)


def test_golden_files_are_never_written_again() -> None:
    with pytest.raises(SystemExit):
        main()
