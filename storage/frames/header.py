"""The fixed header of a frame: what it holds, readable without its body.

The offset table is in schemas/FORMAT.md; tests/compat reads old ones.
"""

from struct import Struct
from typing import Final, NamedTuple

from turnstate.schemas.errors import (
    CorruptDataError,
    InvalidInputError,
    UnknownVersionError,
)

MAGIC: Final = b"\x89TSF"
"""0x89 starts no UTF-8 text, so no JSON, and no canonical record."""

FORMAT_VERSION: Final = 1
"""What this code writes, and the newest that it reads."""

HEAD, FRAME, SEGMENT = 1, 2, 3
"""Kinds of frame."""

RAW, LZ4, LZ4HC = 0, 1, 2
"""Codecs of a body. `LZ4HC` decodes as `LZ4` does."""

DELTA: Final = 1
"""Flag: the body cannot be read without the caller's dictionary."""

SHARED: Final = 2
"""Flag: the body was written with a dictionary that ships with the format."""

RAW_BYTES_MAX: Final = 64 << 20
"""A decoded body; sealing at 64 KB and turns of 1 MiB stay far below it."""

BATCH_BYTES_MAX: Final = 16 << 20
"""What a writer puts in one frame before it starts the next (a hint)."""

VERSION_MAX: Final = (1 << 32) - 1
"""Dots folded into one session; the header gives them 4 bytes."""

KINDS: Final = {HEAD: "head", FRAME: "frame", SEGMENT: "segment"}
CODECS: Final = {RAW: "raw", LZ4: "lz4", LZ4HC: "lz4hc"}

_LAYOUT: Final = Struct("<4sBBBBQ8sQIIIIH4sI16sI")
_CHECKED: Final = Struct("<4sBBBBQ8sQIIIIH4sI16s")
HEADER_BYTES: Final = _LAYOUT.size
CHECKED_BYTES: Final = _CHECKED.size
"""The header without its last field, the CRC32C of all that is before it."""

_KEY_ID_BITS: Final = 16
_KEY_ID_MAX: Final = (1 << _KEY_ID_BITS) - 1
_TIME_MAX: Final = (1 << 48) - 1
_FLAGS_KNOWN: Final = DELTA | SHARED
_EXPANSION_MAX: Final = 255
"""One byte of an LZ4 block never stands for more (its length bytes)."""

pack: Final = _CHECKED.pack


class Header(NamedTuple):
    """What a frame says about itself.

    Attributes:
        magic: `MAGIC`.
        format_version: The version of the format that wrote it.
        kind: `HEAD`, `FRAME` or `SEGMENT`.
        codec: `RAW`, `LZ4` or `LZ4HC`.
        flags: `DELTA`, `SHARED` or neither.
        key_and_time: `key_id` in the low 16 bits, `time_ms` above them.
        session_hash: 8 bytes, see `session_hash`.
        incarnation: The life of the session.
        from_version: Exclusive: the version that it starts from.
        to_version: Inclusive: the version that it leads to.
        raw_length: Bytes of the decoded body.
        body_length: Bytes of the stored body.
        dictionary_length: Bytes of the dictionary, 0 = none.
        dictionary_hash: CRC32C of the dictionary, little-endian.
        raw_checksum: CRC32C of the decoded body.
        previous_link: The chain link of the frame before (16 bytes).
        checksum: CRC32C of the header before this field, then the body.
    """

    magic: bytes
    format_version: int
    kind: int
    codec: int
    flags: int
    key_and_time: int
    session_hash: bytes
    incarnation: int
    from_version: int
    to_version: int
    raw_length: int
    body_length: int
    dictionary_length: int
    dictionary_hash: bytes
    raw_checksum: int
    previous_link: bytes
    checksum: int

    @property
    def key_id(self) -> int:
        """Return which key its chain link was made with; 0 = none."""
        return self.key_and_time & _KEY_ID_MAX

    @property
    def time_ms(self) -> int:
        """Return when it was written, epoch milliseconds; 0 = not told."""
        return self.key_and_time >> _KEY_ID_BITS

    @property
    def kind_name(self) -> str:
        """Return `head`, `frame` or `segment`."""
        return KINDS[self.kind]

    @property
    def codec_name(self) -> str:
        """Return the codec, with `+delta` where a dictionary is needed.

        Example:
            >>> Header._make([b"", 1, FRAME, LZ4, DELTA, *[0] * 12]).codec_name
            'lz4+delta'
        """
        return CODECS[self.codec] + ("+delta" if self.flags & DELTA else "")

    @property
    def frame_bytes(self) -> int:
        """Return the length of header and body together."""
        return HEADER_BYTES + self.body_length


def key_and_time(key_id: int, time_ms: int) -> int:
    """Return both numbers in the 8 bytes that they share.

    Raises:
        InvalidInputError: one does not fit (16 and 48 bits).

    Example:
        >>> hex(key_and_time(7, 1))
        '0x10007'
    """
    if not 0 <= key_id <= _KEY_ID_MAX:
        raise InvalidInputError(f"key id {key_id} has no 16 bits", field="key_id")
    if not 0 <= time_ms <= _TIME_MAX:
        raise InvalidInputError(f"time {time_ms} has no 48 bits", field="time_ms")
    return time_ms << _KEY_ID_BITS | key_id


def decode_header(data: bytes, at: int = 0) -> Header:
    """Read the header that starts at a place; the body is not touched.

    Nothing is believed yet: `decode_frame` compares the checksums. But every
    length has been held against its limit, so that a reader may use it.

    Raises:
        UnknownVersionError: a newer version wrote it.
        CorruptDataError: these bytes start no frame.
    """
    try:
        header = Header._make(_LAYOUT.unpack_from(data, at))
    except Exception as error:
        raise CorruptDataError(
            f"{max(len(data) - at, 0)} bytes are too few for a frame"
        ) from error
    if header.magic != MAGIC:
        raise CorruptDataError(f"{header.magic!r} starts no frame")
    if header.format_version != FORMAT_VERSION:
        if header.format_version > FORMAT_VERSION:
            raise UnknownVersionError(
                f"the frame has format version {header.format_version}",
                hint=f"this program reads up to {FORMAT_VERSION}; upgrade it",
            )
        raise CorruptDataError(f"no format has version {header.format_version}")
    wrong = _contradiction(header)
    if wrong:
        raise CorruptDataError(f"a frame header is wrong: {wrong}")
    return header


def _contradiction(header: Header) -> str | None:
    if header.kind not in KINDS:
        return f"unknown kind {header.kind}"
    if header.codec not in CODECS:
        return f"unknown codec {header.codec}"
    flags = header.flags
    if flags & ~_FLAGS_KNOWN or flags == DELTA | SHARED:
        return f"unknown flags {flags:#x}"
    if header.from_version > header.to_version:
        return f"versions {header.from_version} to {header.to_version}"
    raw_length, body_length = header.raw_length, header.body_length
    if raw_length > RAW_BYTES_MAX:
        return f"it claims {raw_length} bytes"
    if header.codec == RAW:
        if raw_length != body_length:
            return f"{body_length} raw bytes for {raw_length}"
    elif not body_length or raw_length > body_length * _EXPANSION_MAX:
        return f"{body_length} bytes cannot hold {raw_length}"
    if (flags != 0) != (header.dictionary_length != 0):
        return f"flags {flags:#x} with {header.dictionary_length} dictionary bytes"
    return None
