"""Read packs, manifests and leases by schemas/FORMAT.md alone."""

import json
import struct
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, NamedTuple

from compat.other_reader import crc32c, unpack


class Entry(NamedTuple):
    """A row of a pack's index."""

    key: bytes
    incarnation: int
    version: int
    offset: int
    length: int
    front_bytes: int
    crc: int
    order: int


class Image(NamedTuple):
    """A session."""

    key: bytes
    incarnation: int
    version: int
    row: bytes
    base: bytes | None
    frames: list[bytes]
    entries: list[list[bytes]]


def read_pack(data: bytes) -> tuple[list[Entry], bytes]:
    """Return the index and the bits of the filter."""
    assert data[:8] == b"\x89TSP\1\0\0\0"
    tail = data[-40:]
    body, size, size_crc, bits, bits_crc, count, version, crc, magic = struct.unpack(
        "<QIIIIIII4s", tail
    )
    assert (version, crc, magic) == (1, crc32c(tail[:32]), b"\x89TSP")
    assert body + size + bits + 40 == len(data)
    index = data[body : body + size]
    bloom = data[body + size : body + size + bits]
    assert (crc32c(index), crc32c(bloom)) == (size_crc, bits_crc)
    rows, end = unpack(index)
    assert (end, len(rows)) == (size, count)
    return [Entry(*row) for row in rows], bloom


def may_hold(bloom: bytes, key: bytes) -> bool:
    whole = blake2b(key, digest_size=16, person=b"turnstate.bloom").digest()
    start = int.from_bytes(whole[:8], "big")
    step = int.from_bytes(whole[8:], "big") | 1
    places = [(start + n * step) % (8 * len(bloom)) for n in range(7)]
    return all(bloom[place // 8] >> place % 8 & 1 for place in places)


def read_image(data: bytes) -> Image:
    assert data[:5] == b"TSIM\1"
    length, crc = struct.unpack_from("<II", data, 5)
    front = data[13 : 13 + length]
    assert crc32c(front) == crc
    (key, incarnation, version, row, base, parts, index_part), end = unpack(front)
    assert end == length

    def taken(of: list[list[int]]) -> Iterator[bytes]:
        for _, _, offset, size, part_crc in of:
            part = data[13 + length + offset :][:size]
            assert crc32c(part) == part_crc
            yield part

    (index,) = taken([index_part])
    entries, _ = unpack(index)
    return Image(key, incarnation, version, row, base, list(taken(parts)), entries)


def read_numbered(data: bytes) -> dict[str, Any]:
    """Return the body of a manifest or a lease."""
    assert data[:11] == b'{"crc32c":"'
    assert data[19:28] == b'","body":'
    assert data[-2:] == b"}\n"
    body = data[28:-2]
    assert int(data[11:19], 16) == crc32c(body)
    found: dict[str, Any] = json.loads(body)
    assert found["format"] == 1
    return found
