"""Write the golden pack, manifest and lease of a format version that has none yet.

Run once, when a format version is born:

    python tests/compat/make_golden_packs.py

It refuses where they are there: old bytes are what old programs wrote. The
pack holds three sessions with all that an image may have, one that left, and
one that a compaction copied; `expected.json` says what has to come out.
"""

import json
import sys
from pathlib import Path
from random import Random
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[1]))

from compat.make_golden import record_hash

from support.framed import frame, frames_of, segment, turn_records
from support.memory_objects import MemoryObjects
from turnstate.storage.cold.lease import Leases
from turnstate.storage.cold.manifest import Manifests, PackInfo, with_packs, with_pin
from turnstate.storage.cold.names import pack_name
from turnstate.storage.cold.pack import PACK_VERSION, PackWriter
from turnstate.storage.frames import header
from turnstate.storage.session_image import IndexRow, SessionImage, encode_image

FOLDER: Final = Path(__file__).parent / "golden" / "cold" / f"v{PACK_VERSION}"
TIME_MS: Final = 1_700_000_000_000


def golden_images() -> list[SessionImage]:
    """Return the sessions of the pack."""
    records = turn_records(70)
    state = frame(b"state" * 20, kind=header.HEAD, from_version=64, to_version=64)
    index = [
        IndexRow(b"e" + (5).to_bytes(5, "big"), b""),
        IndexRow(b"i" + bytes(range(8)), bytes(9)),
        IndexRow(b"i" + b"\xff" * 8, b"\1" * 300),
    ]
    return [
        SessionImage(
            b"\x00\x01ts",
            1,
            70,
            b"the row of a head",
            state,
            [segment(records[:64]), *frames_of(records[64:], [2, 4], after=64)],
            index,
        ),
        SessionImage(b"\x00\x06\xe5\xbe\x90s", 3, 0, b"a tombstone", None, [], []),
        SessionImage(b"key", (1 << 53) - 1, 64, b"", None, [segment(records[:64])], []),
    ]


def golden_pack() -> bytes:
    """Return the pack."""
    writer = PackWriter(1 << 20)
    for image, order in zip(golden_images(), (0, 0, 7), strict=True):
        writer.add(*encode_image(image), order)
    writer.add(b"left", 2, 9, b"", 0)
    return writer.finish().data


def golden_objects() -> dict[str, bytes]:
    """Return file name → bytes of a manifest and a lease."""
    objects = MemoryObjects(lambda: TIME_MS)
    chance = Random(5).randbytes
    manifests = Manifests(objects, chance)
    first, second = (pack_name(n, TIME_MS + n, bytes([n] * 10)) for n in (1, 2))
    size = len(golden_pack())
    infos = {
        first: PackInfo(size, 4, 900, 450, TIME_MS, 0),
        second: PackInfo(10, 1, 5, 5, TIME_MS, 0),
    }
    manifests.commit(with_packs(infos), epoch=0)
    manifests.commit(with_pin("checkpoint é", None), epoch=2)
    manifests.commit(with_pin("reader", TIME_MS + 5), epoch=2)
    leases = Leases(objects, chance)
    leases.renew(leases.take("host:1:é", TIME_MS), TIME_MS + 1)
    names = {"manifest.json": "manifest/", "lease.json": "lease/"}
    return {
        file: max((n, d) for n, (d, _) in objects.held.items() if n.startswith(prefix))[
            1
        ]
        for file, prefix in names.items()
    }


def expectation() -> dict[str, Any]:
    """Return what has to come out of the pack."""
    images = golden_images()
    return {
        "images": [
            {
                "key": image.key.hex(),
                "incarnation": image.incarnation,
                "version": image.version,
                "row": image.row.hex(),
                "base": None if image.base is None else record_hash(image.base),
                "frames": [record_hash(each) for each in image.frames],
                "index": [[one.suffix.hex(), one.row.hex()] for one in image.entries],
                "order": order,
            }
            for image, order in zip(images, (0, 0, 7), strict=True)
        ],
        "left": {"key": b"left".hex(), "incarnation": 2, "version": 9},
    }


def main() -> None:
    """Write the files of the format version that this program writes."""
    if FOLDER.exists():
        raise SystemExit(f"{FOLDER} is written; it stays as it is")
    FOLDER.mkdir(parents=True)
    (FOLDER / "pack.bin").write_bytes(golden_pack())
    for file, data in golden_objects().items():
        (FOLDER / file).write_bytes(data)
    text = json.dumps(expectation(), indent=1, sort_keys=True) + "\n"
    (FOLDER / "expected.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
