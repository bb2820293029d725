"""Read frames by schemas/FORMAT.md alone: the page is enough if this can.

Nothing here is shared with the package but the dictionary, which is data: its
own CRC32C, LZ4 and MessagePack, as slow and plain as they can be.
"""

import struct
from hashlib import blake2b
from typing import Any, NamedTuple, cast

from turnstate.storage.frames.dictionary import SHARED

KINDS = {1: "head", 2: "frame", 3: "segment"}
CODECS = {0: "raw", 1: "lz4", 2: "lz4hc"}


class Frame(NamedTuple):
    """What the header says, and the decoded body."""

    kind: str
    codec: str
    key_id: int
    time_ms: int
    session_hash: str
    incarnation: int
    versions: list[int]
    previous_link: str
    body: bytes


def crc32c(data: bytes) -> int:
    crc = 0xFFFF_FFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F6_3B78 if crc & 1 else 0)
    return crc ^ 0xFFFF_FFFF


def read_frame(data: bytes, dictionary: bytes = b"") -> Frame:
    magic, version, kind, codec, flags = struct.unpack_from("<4sBBBB", data, 0)
    assert (magic, version) == (b"\x89TSF", 1)
    body = data[78:]
    raw_length, body_length = struct.unpack_from("<II", data, 40)
    assert body_length == len(body)
    assert int.from_bytes(data[74:78], "little") == crc32c(data[:74] + body)
    if codec:
        length = int.from_bytes(data[48:50], "little")
        before = SHARED[data[50:54]] if flags == 2 else dictionary
        before = before[len(before) - length :]
        assert int.from_bytes(data[50:54], "little") == (length and crc32c(before))
        body = unlz4(body, before)
    assert len(body) == raw_length
    assert crc32c(body) == int.from_bytes(data[54:58], "little")
    return Frame(
        KINDS[kind],
        CODECS[codec] + ("+delta" if flags == 1 else ""),
        int.from_bytes(data[8:10], "little"),
        int.from_bytes(data[10:16], "little"),
        data[16:24].hex(),
        int.from_bytes(data[24:32], "little"),
        list(struct.unpack_from("<II", data, 32)),
        data[58:74].hex(),
        body,
    )


def link(data: bytes, key: bytes = b"") -> str:
    return blake2b(
        data[:74] + data[78:], digest_size=16, key=key, person=b"turnstate.chain"
    ).hexdigest()


def unlz4(block: bytes, dictionary: bytes) -> bytes:
    out = bytearray(dictionary)
    at = 0
    while True:
        token = block[at]
        length, at = extended(block, at + 1, token >> 4)
        out += block[at : at + length]
        at += length
        if at == len(block):
            return bytes(out[len(dictionary) :])
        offset = int.from_bytes(block[at : at + 2], "little")
        length, at = extended(block, at + 2, token & 15)
        for _ in range(length + 4):
            out.append(out[-offset])


def extended(block: bytes, at: int, length: int) -> tuple[int, int]:
    if length == 15:
        while block[at] == 255:
            length, at = length + 255, at + 1
        length, at = length + block[at], at + 1
    return length, at


class Raw(bytes):
    """The undecoded bytes of a MessagePack value."""

    __slots__ = ()


def unpack(data: bytes, at: int = 0, *, raw_maps: bool = False) -> tuple[Any, int]:
    """Return the value that starts at a place, and where it ends."""
    first, begin = data[at], at
    at += 1
    if first < 0x80:
        return first, at
    if first >= 0xE0:
        return first - 256, at
    if first in {0xC0, 0xC2, 0xC3}:
        return {0xC0: None, 0xC2: False, 0xC3: True}[first], at
    if 0xCC <= first <= 0xD3:
        size = 1 << (first - 0xCC) % 4
        whole = data[at : at + size]
        return int.from_bytes(whole, "big", signed=first >= 0xD0), at + size
    if first == 0xCB:
        return struct.unpack_from(">d", data, at)[0], at + 8
    kind, count, at = sized(data, first, at)
    if kind in "sb":
        found = data[at : at + count]
        return found.decode() if kind == "s" else found, at + count
    items: list[Any] = []
    for _ in range(count * 2 if kind == "m" else count):
        item, at = unpack(data, at, raw_maps=raw_maps)
        items.append(item)
    if kind == "a":
        return items, at
    if raw_maps:
        return Raw(data[begin:at]), at
    return dict(zip(items[::2], items[1::2], strict=True)), at


def sized(data: bytes, first: int, at: int) -> tuple[str, int, int]:
    """Return what a header starts, how long it is, and where it begins."""
    if first < 0x90:
        return "m", first & 15, at
    if first < 0xA0:
        return "a", first & 15, at
    if first < 0xC0:
        return "s", first & 31, at
    kind, size = {
        0xC4: ("b", 1),
        0xC5: ("b", 2),
        0xC6: ("b", 4),
        0xD9: ("s", 1),
        0xDA: ("s", 2),
        0xDB: ("s", 4),
        0xDC: ("a", 2),
        0xDD: ("a", 4),
        0xDE: ("m", 2),
        0xDF: ("m", 4),
    }[first]
    return kind, int.from_bytes(data[at : at + size], "big"), at + size


def pack(value: Any) -> bytes:
    if isinstance(value, Raw):
        return value
    if value is None:
        return b"\xc0"
    if isinstance(value, int):
        return packed_int(value)
    if isinstance(value, str):
        text = value.encode()
        return header(len(text), 0xA0, 32, (0xD9, 0xDA, 0xDB)) + text
    if isinstance(value, dict):
        items = sorted(cast("dict[str, Any]", value).items())
        pairs = [pack(key) + pack(item) for key, item in items]
        return header(len(pairs), 0x80, 16, (None, 0xDE, 0xDF)) + b"".join(pairs)
    return header(len(value), 0x90, 16, (None, 0xDC, 0xDD)) + b"".join(map(pack, value))


def packed_int(value: int) -> bytes:
    if -32 <= value < 128:
        return value.to_bytes(1, "big", signed=value < 0)
    first = 0xCC if value >= 0 else 0xD0
    for power in range(4):
        bits = 8 << power
        if (0 if value >= 0 else -1 << bits - 1) <= value < 1 << bits:
            size = 1 << power
            return bytes((first + power,)) + value.to_bytes(
                size, "big", signed=value < 0
            )
    raise AssertionError(value)


def header(
    length: int, small: int, below: int, firsts: tuple[int | None, int, int]
) -> bytes:
    if length < below:
        return bytes((small | length,))
    for first, size in zip(firsts, (1, 2, 4), strict=True):
        if first is not None and length < 1 << 8 * size:
            return bytes((first,)) + length.to_bytes(size, "big")
    raise AssertionError(length)


def segment_records(columns: list[Any]) -> list[bytes]:
    runs, times, roles, role_of, rests, lengths, texts, whole = columns
    records: list[bytes] = []
    clock = text_at = 0
    for (
        count,
        replica,
        counter,
        lamport,
        seen,
        incarnation,
        parents,
        branch,
        ids,
    ) in runs:
        for k in range(count):
            at = len(records)
            time = times[at]
            if isinstance(time, int):
                clock += time
                time = clock
            before = counter + k - 1
            body = [pack("r"), pack(roles[role_of[at]])]
            size = lengths[at]
            if size == -1:
                body += [pack("c"), b"\xc0"]
            elif size >= 0:
                body += [pack("c"), pack(texts[text_at : text_at + size].decode())]
                text_at += size
            _, count_of_rest, begin = sized(rests[at], rests[at][0], 1)
            pairs = len(body) // 2 + count_of_rest
            body = [b"\xde", pairs.to_bytes(2, "big"), *body, rests[at][begin:]]
            fields = [
                replica,
                counter + k,
                lamport + k,
                {**seen, replica: before} if k else seen,
                incarnation,
                [[replica, before]] if k else parents,
                branch,
                turn_id(ids, k),
                time,
                Raw(b"".join(body)),
            ]
            records.append(pack(fields))
    for place, record in sorted(whole):
        records.insert(place, record)
    return records


def turn_id(ids: Any, k: int) -> str | None:
    if ids is None or isinstance(ids, int):
        return None if ids is None else str(ids + k)
    if isinstance(ids, dict):
        ((prefix, number),) = cast("dict[str, int]", ids).items()
        return prefix + str(number + k)
    if isinstance(ids, bytes):
        text = ids[16 * k : 16 * k + 16].hex()
        parts = (text[:8], text[8:12], text[12:16], text[16:20], text[20:])
        return "-".join(parts)
    found: str | None = ids[k]
    return found


def read_segment(body: bytes) -> tuple[list[Any], list[bytes]]:
    """Return the five values of a segment's body, and its records."""
    value, end = unpack(body)
    assert end == len(body)
    columns = raw_rests(body)
    return value, segment_records(columns)


def raw_rests(body: bytes) -> list[Any]:
    """Return the columns, the rests undecoded."""
    at = 1
    for _ in range(4):
        _, at = unpack(body, at)
    columns: list[Any] = []
    at += 1
    for place in range(8):
        value, at = unpack(body, at, raw_maps=place == 4)
        columns.append(value)
    return columns
