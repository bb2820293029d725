"""All rows of one session as one piece of bytes, to move it between tiers whole."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from turnstate.schemas.errors import (
    ChecksumError,
    CorruptDataError,
    UnknownVersionError,
)
from turnstate.storage.encryption.cipher import front_of
from turnstate.storage.frames.header import decode_header
from turnstate.storage.frames.native import crc32c

MAGIC: Final = b"TSIM"
IMAGE_VERSION: Final = 1

PREFIX_BYTES: Final = 13
"""Magic, version, length of the front, CRC32C of the front."""


class IndexRow(NamedTuple):
    """A row of the turn index, its key without the session's prefix.

    Attributes:
        suffix: What follows the prefix of the session's life.
        row: The entry.
    """

    suffix: bytes
    row: bytes


class Part(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Where a frame or segment, or the index, stands in an image.

    Attributes:
        from_version: The version that it starts from.
        to_version: The version that it leads to.
        offset: Of its first byte, counted from the end of the front.
        length: In bytes.
        crc: CRC32C of those bytes.
    """

    from_version: int
    to_version: int
    offset: int
    length: int
    crc: int

    def taken_from(self, data: bytes, begin: int = 0) -> bytes:
        """Return its bytes out of `data`, whose first byte has offset `begin`.

        A range that was read from the end of the front on begins at 0, a whole
        image at minus the length of its front.

        Raises:
            ChecksumError: they are cut or damaged.
        """
        at = self.offset - begin
        piece = data[at : at + self.length]
        if at < 0 or len(piece) != self.length or crc32c(piece) != self.crc:
            raise ChecksumError(
                f"versions {self.from_version} to {self.to_version} of an image"
                " do not match their checksum",
                field=f"version {self.to_version}",
            )
        return piece


class Front(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What an image begins with: enough to answer for the state, without text.

    Attributes:
        key: The session key.
        incarnation: Which life of the session.
        version: The version of its head.
        row: The row of its head, as every tier stores it.
        base: The frame of kind head that unsealed frames start from, if any.
        frames: Segments, then frames, in version order.
        index: Where the rows of the turn index stand.
    """

    key: bytes
    incarnation: int
    version: int
    row: bytes
    base: bytes | None
    frames: list[Part]
    index: Part


class SessionImage(NamedTuple):
    """One session at rest, all of it.

    Attributes:
        key: The session key.
        incarnation: Which life of the session.
        version: The version of its head.
        row: The row of its head.
        base: The frame of kind head that unsealed frames start from, if any.
        frames: Segments, then frames, in version order.
        entries: Rows of the turn index, in key order.
    """

    key: bytes
    incarnation: int
    version: int
    row: bytes
    base: bytes | None
    frames: Sequence[bytes]
    entries: Sequence[IndexRow]


class EncodedImage(NamedTuple):
    """An image as bytes.

    Attributes:
        key: The session key.
        incarnation: Which life of the session.
        version: The version of its head.
        data: The bytes.
        front_bytes: How many of them are enough for `decode_front`.
    """

    key: bytes
    incarnation: int
    version: int
    data: bytes
    front_bytes: int


_front_encoder: Final = msgspec.msgpack.Encoder()
_front_decoder: Final = msgspec.msgpack.Decoder(Front)
_index_encoder: Final = msgspec.msgpack.Encoder()
_index_decoder: Final = msgspec.msgpack.Decoder(list[tuple[bytes, bytes]])


def encode_image(image: SessionImage) -> EncodedImage:
    """Return an image's bytes: front, turn index, frames.

    Offsets in the front count from its own end, so that it can be written
    first; equal sessions give equal bytes.

    Example:
        >>> image = SessionImage(b"k", 1, 0, b"row", None, [], [])
        >>> encoded = encode_image(image)
        >>> decode_image(encoded.data) == image
        True
    """
    index = _index_encoder.encode([tuple(row) for row in image.entries])
    index_part = Part(0, image.version, 0, len(index), crc32c(index))
    parts: list[Part] = []
    offset = len(index)
    for frame in image.frames:
        header = decode_header(front_of(frame))
        parts.append(
            Part(
                header.from_version,
                header.to_version,
                offset,
                len(frame),
                crc32c(frame),
            )
        )
        offset += len(frame)
    front = _front_encoder.encode(
        Front(
            image.key,
            image.incarnation,
            image.version,
            image.row,
            image.base,
            parts,
            index_part,
        )
    )
    prefix = b"".join(
        (
            MAGIC,
            bytes([IMAGE_VERSION]),
            len(front).to_bytes(4, "little"),
            crc32c(front).to_bytes(4, "little"),
        )
    )
    return EncodedImage(
        image.key,
        image.incarnation,
        image.version,
        b"".join((prefix, front, index, *image.frames)),
        len(prefix) + len(front),
    )


def decode_front(data: bytes) -> tuple[Front, int]:
    """Return the front of an image and its length; more bytes may follow.

    Raises:
        UnknownVersionError: a newer turnstate wrote it.
        CorruptDataError: it is no image, is cut, or damaged.
    """
    if len(data) < PREFIX_BYTES or data[:4] != MAGIC:
        raise CorruptDataError("this is no session image, or it is cut")
    if data[4] > IMAGE_VERSION:
        raise UnknownVersionError(
            f"the session image has format {data[4]}, this is {IMAGE_VERSION}",
            hint="use a newer turnstate; nothing was changed",
        )
    if data[4] != IMAGE_VERSION:
        raise CorruptDataError(f"no format of session images has version {data[4]}")
    end = PREFIX_BYTES + int.from_bytes(data[5:9], "little")
    front = data[PREFIX_BYTES:end]
    if len(data) < end or crc32c(front) != int.from_bytes(data[9:13], "little"):
        raise ChecksumError("the front of a session image does not match its checksum")
    try:
        return _front_decoder.decode(front), end
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise CorruptDataError(f"the front of a session image: {error}") from error


def decode_index(data: bytes) -> list[IndexRow]:
    """Return the rows of the turn index that a part holds.

    Raises:
        CorruptDataError: it holds something else.
    """
    try:
        return [IndexRow(suffix, row) for suffix, row in _index_decoder.decode(data)]
    except (msgspec.MsgspecError, ValueError) as error:
        raise CorruptDataError(f"the index of a session image: {error}") from error


def decode_image(data: bytes) -> SessionImage:
    """Invert `encode_image`, checking every part.

    Raises:
        UnknownVersionError: a newer turnstate wrote it.
        CorruptDataError: a part is cut or damaged.
    """
    front, end = decode_front(data)
    return SessionImage(
        front.key,
        front.incarnation,
        front.version,
        front.row,
        front.base,
        list(_frames(front, data, end)),
        decode_index(front.index.taken_from(data, -end)),
    )


def _frames(front: Front, data: bytes, end: int) -> Iterator[bytes]:
    for part in front.frames:
        yield part.taken_from(data, -end)
