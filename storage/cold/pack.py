"""The bytes of a pack: many sessions' images, an index of them, a bloom filter.

Header, images one after another, index, bloom filter, tail. The tail has a
fixed length, so whoever reads the last bytes of a pack finds the rest. The
offset tables are in schemas/FORMAT.md; tests/compat reads old ones.
"""

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

import msgspec

from turnstate.schemas.errors import (
    ChecksumError,
    CorruptDataError,
    UnknownVersionError,
)
from turnstate.storage.cold.bloom import Bloom
from turnstate.storage.frames.native import crc32c

MAGIC: Final = b"\x89TSP"
PACK_VERSION: Final = 1
"""What this code writes, and the newest that it reads."""

HEADER: Final = MAGIC + PACK_VERSION.to_bytes(4, "little")
HEADER_BYTES: Final = len(HEADER)

PACK_BYTES_MAX: Final = 64 << 20
"""The largest limit; a session that is longer gets a pack of its own."""

_CHECKED: Final = Struct("<QIIIIII")
_END: Final = Struct("<I4s")
TAIL_BYTES: Final = _CHECKED.size + _END.size

_ROW_BYTES: Final = 56
"""At most of a row of the index beside its key, and of its share of the filter."""


class Entry(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Where one session stands in a pack.

    Attributes:
        key: The session key; it stands once in a pack.
        incarnation: Which life of the session.
        version: The version of its head.
        offset: Of its first byte, from the beginning of the pack.
        length: In bytes; 0 says that the session left the cold tier, and hides
            what older packs have of it.
        front_bytes: How many of them are enough for `decode_front`.
        crc: CRC32C of its bytes.
        order: When it was written first, among all packs; 0 = when this pack
            was. A compaction keeps it, so that a copy is never newer than
            what came after the original.
    """

    key: bytes
    incarnation: int
    version: int
    offset: int
    length: int
    front_bytes: int
    crc: int
    order: int = 0

    def taken_from(self, data: bytes, begin: int = 0) -> bytes:
        """Return its bytes out of some that begin at an offset of the pack.

        Raises:
            ChecksumError: they are cut or damaged.
        """
        at = self.offset - begin
        piece = data[at : at + self.length]
        if len(piece) != self.length or crc32c(piece) != self.crc:
            raise ChecksumError(
                f"the image at {self.offset} of a pack does not match its checksum"
            )
        return piece


class Tail(NamedTuple):
    """The last bytes of a pack: where its parts are, and their checksums.

    Attributes:
        body_bytes: Header and images; the index begins there.
        index_bytes: Of the index.
        index_crc: CRC32C of the index.
        bloom_bytes: Of the bloom filter, behind the index.
        bloom_crc: CRC32C of the filter.
        entries: How many sessions the index has.
        pack_version: The version of the format.
    """

    body_bytes: int
    index_bytes: int
    index_crc: int
    bloom_bytes: int
    bloom_crc: int
    entries: int
    pack_version: int

    @property
    def footer_bytes(self) -> int:
        """Return how many bytes follow the images."""
        return self.index_bytes + self.bloom_bytes + TAIL_BYTES

    @property
    def pack_bytes(self) -> int:
        """Return the length of the whole pack."""
        return self.body_bytes + self.footer_bytes


class EncodedPack(NamedTuple):
    """A pack as bytes, and what its footer says.

    Attributes:
        data: The bytes.
        tail: Its tail.
        entries: Its index, in the order of the images.
        bloom: Its filter.
    """

    data: bytes
    tail: Tail
    entries: Sequence[Entry]
    bloom: Bloom


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(list[Entry])


class PackWriter:
    """Gather images until a pack is full.

    Args:
        limit_bytes: What a pack may have; one image alone may exceed it.

    Example:
        >>> writer = PackWriter(1 << 20)
        >>> entry = writer.add(b"key", 1, 7, b"image", 5)
        >>> decode_pack(writer.finish().data).entries == [entry]
        True
    """

    def __init__(self, limit_bytes: int) -> None:
        assert 0 < limit_bytes <= PACK_BYTES_MAX
        self._limit = limit_bytes
        self._pieces = [HEADER]
        self._body_bytes = HEADER_BYTES
        self._footer_bytes = TAIL_BYTES
        self._entries: dict[bytes, Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def takes(self, key: bytes, length: int) -> bool:
        """Say whether an image still belongs here: it fits, and its key is new."""
        if not self._entries:
            return True
        grown = self._body_bytes + self._footer_bytes + length + len(key) + _ROW_BYTES
        return key not in self._entries and grown <= self._limit

    def add(
        self,
        key: bytes,
        incarnation: int,
        version: int,
        data: bytes,
        front_bytes: int,
        order: int = 0,
    ) -> Entry:
        """Put an image behind the others; no bytes = the session left."""
        assert self.takes(key, len(data)), "ask first"
        entry = Entry(
            key,
            incarnation,
            version,
            self._body_bytes,
            len(data),
            front_bytes,
            crc32c(data),
            order,
        )
        self._entries[key] = entry
        self._pieces.append(data)
        self._body_bytes += len(data)
        self._footer_bytes += len(key) + _ROW_BYTES
        return entry

    def finish(self) -> EncodedPack:
        """Return the pack; the writer is used up."""
        entries = list(self._entries.values())
        index = _encoder.encode(entries)
        bloom = Bloom.of(self._entries.keys())
        tail = Tail(
            self._body_bytes,
            len(index),
            crc32c(index),
            len(bloom.bits),
            crc32c(bloom.bits),
            len(entries),
            PACK_VERSION,
        )
        checked = _CHECKED.pack(*tail)
        self._pieces += [index, bloom.bits, checked, _END.pack(crc32c(checked), MAGIC)]
        data = b"".join(self._pieces)
        self._pieces.clear()
        return EncodedPack(data, tail, entries, bloom)


def check_header(data: bytes) -> None:
    """Check what a pack begins with.

    Raises:
        UnknownVersionError: a newer turnstate wrote it.
        CorruptDataError: it is no pack.
    """
    if len(data) < HEADER_BYTES or data[:4] != MAGIC:
        raise CorruptDataError("this is no pack, or its first bytes are lost")
    _check_version(int.from_bytes(data[4:HEADER_BYTES], "little"))


def _check_version(found: int) -> None:
    if found > PACK_VERSION:
        raise UnknownVersionError(
            f"the pack has format {found}, this is {PACK_VERSION}",
            hint="use a newer turnstate; nothing was changed",
        )
    if found != PACK_VERSION:
        raise CorruptDataError(f"no format of packs has version {found}")


def decode_tail(data: bytes) -> Tail:
    """Return the tail of a pack out of its last bytes, however many they are.

    Raises:
        UnknownVersionError: a newer turnstate wrote it.
        CorruptDataError: they are not the end of a pack.
    """
    last = data[-TAIL_BYTES:]
    if len(last) < TAIL_BYTES or last[-4:] != MAGIC:
        raise CorruptDataError("this is not the end of a pack: it is cut, or no pack")
    checked = last[: _CHECKED.size]
    tail = Tail(*_CHECKED.unpack(checked))
    if crc32c(checked) != _END.unpack_from(last, _CHECKED.size)[0]:
        raise ChecksumError("the tail of a pack does not match its checksum")
    _check_version(tail.pack_version)
    return tail


def decode_bloom(tail: Tail, data: bytes) -> Bloom:
    """Return the filter, given its bytes.

    Raises:
        ChecksumError: they are cut or damaged.
    """
    if len(data) != tail.bloom_bytes or crc32c(data) != tail.bloom_crc:
        raise ChecksumError("the bloom filter of a pack does not match its checksum")
    return Bloom(data)


def decode_index(tail: Tail, data: bytes) -> list[Entry]:
    """Return the index, given its bytes.

    Raises:
        ChecksumError: they are cut or damaged.
        CorruptDataError: they are no index of this pack.
    """
    if len(data) != tail.index_bytes or crc32c(data) != tail.index_crc:
        raise ChecksumError("the index of a pack does not match its checksum")
    try:
        entries = _decoder.decode(data)
    except (msgspec.MsgspecError, ValueError) as error:
        raise CorruptDataError(f"the index of a pack: {error}") from error
    at = HEADER_BYTES
    for entry in entries:
        if entry.offset != at or entry.length < 0:
            raise CorruptDataError("the index of a pack leaves a hole")
        at += entry.length
    if at != tail.body_bytes or len(entries) != tail.entries:
        raise CorruptDataError("the index of a pack does not cover its images")
    return entries


def decode_pack(data: bytes) -> EncodedPack:
    """Read a whole pack, checking everything but the images.

    Raises:
        UnknownVersionError: a newer turnstate wrote it.
        CorruptDataError: it is cut or damaged.
    """
    tail = decode_tail(data)
    if tail.pack_bytes != len(data):
        raise CorruptDataError(
            f"the pack has {len(data)} bytes, its tail says {tail.pack_bytes}"
        )
    check_header(data)
    middle = tail.body_bytes + tail.index_bytes
    return EncodedPack(
        data,
        tail,
        decode_index(tail, data[tail.body_bytes : middle]),
        decode_bloom(tail, data[middle : middle + tail.bloom_bytes]),
    )


def images_of(pack: EncodedPack) -> Iterator[tuple[Entry, bytes]]:
    """Yield the images of a pack, each checked.

    Raises:
        ChecksumError: one is damaged.
    """
    for entry in pack.entries:
        yield entry, entry.taken_from(pack.data)
