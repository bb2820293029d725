"""Frames to bytes and back: LZ4 against a dictionary, and both checksums."""
# lz4 and google-crc32c ship no types:
# pyright: reportUnknownMemberType=false

import struct
from hashlib import blake2b
from typing import Final

from turnstate.schemas.errors import (
    ChecksumError,
    CorruptDataError,
    InvalidInputError,
    UnknownVersionError,
)
from turnstate.schemas.limits import DICTIONARY_BYTES_MAX
from turnstate.storage.frames import header as layout
from turnstate.storage.frames.chain import LINK_BYTES
from turnstate.storage.frames.dictionary import SHARED
from turnstate.storage.frames.gate import is_delta
from turnstate.storage.frames.header import CHECKED_BYTES, HEADER_BYTES, Header
from turnstate.storage.frames.native import (
    Lz4Error,
    crc32c,
    crc32c_more,
    lz4_compress,
    lz4_decompress,
)

FAST: Final = 0
"""Level: LZ4, for frames, which are soon replaced by a segment."""

SMALL: Final = 9
"""Level: LZ4-HC, for what is written once. 12 gives 0.3 % and takes twice as
long, since the optimal parser reads the whole dictionary (docs/bench.md)."""

SESSION_HASH_BYTES: Final = 8

_NO_HASH: Final = bytes(4)
_pack: Final = layout.pack


def session_hash(session_key: bytes) -> bytes:
    r"""Return the 8 bytes by which a frame names its session.

    Example:
        >>> session_hash(b"\x00\x01ts").hex()
        '8b746005a6d901ab'
    """
    return blake2b(session_key, digest_size=SESSION_HASH_BYTES).digest()


def dictionary_of(records: bytes) -> bytes:
    """Return the end of the records since the last seal that a frame may use."""
    return records[-DICTIONARY_BYTES_MAX:]


def encode_frame(
    kind: int,
    body: bytes,
    *,
    session_hash: bytes,
    incarnation: int,
    from_version: int,
    to_version: int,
    previous_link: bytes,
    dictionary: bytes = b"",
    level: int = FAST,
    key_id: int = 0,
    time_ms: int = 0,
) -> bytes:
    """Return a whole frame, header and body.

    The body is LZ4 where that is shorter, else as it is. A dictionary is used
    where the entropy gate says so; a frame that leaves the store gets none. A
    dictionary that ships with the format (`dictionary.SHARED`) is always used
    and every reader has it.

    Args:
        kind: `header.HEAD`, `FRAME` or `SEGMENT`.
        body: What it holds, decoded.
        session_hash: See `session_hash`.
        incarnation: The life of the session.
        from_version: The version that it starts from (exclusive).
        to_version: The version that it leads to (inclusive).
        previous_link: The chain link of the frame before, or `START_LINK`.
        dictionary: What the reader will have: see `dictionary_of`.
        level: `FAST` or `SMALL`.
        key_id: The key of the chain, 0 = none.
        time_ms: When it is written, epoch milliseconds; 0 = not told.

    Raises:
        InvalidInputError: a number does not fit its field, or the body is
            longer than `header.RAW_BYTES_MAX`.
    """
    assert len(session_hash) == SESSION_HASH_BYTES, "hash the session key"
    assert len(previous_link) == LINK_BYTES, "a link has 16 bytes"
    assert kind in layout.KINDS, "head, frame or segment"
    flags, named = 0, _NO_HASH
    if dictionary:
        named = crc32c(dictionary).to_bytes(4, "little")
        if SHARED.get(named) == dictionary:
            flags = layout.SHARED
        elif is_delta(body, dictionary):
            assert len(dictionary) <= DICTIONARY_BYTES_MAX, "see dictionary_of"
            flags = layout.DELTA
    if not flags:
        dictionary, named = b"", _NO_HASH
    stored, codec = _packed(body, dictionary, level)
    if codec == layout.RAW:
        flags, dictionary, named = 0, b"", _NO_HASH
    try:
        checked = _pack(
            layout.MAGIC,
            layout.FORMAT_VERSION,
            kind,
            codec,
            flags,
            layout.key_and_time(key_id, time_ms) if key_id or time_ms else 0,
            session_hash,
            incarnation,
            from_version,
            to_version,
            len(body),
            len(stored),
            len(dictionary),
            named,
            crc32c(body),
            previous_link,
        )
    except struct.error as error:
        raise InvalidInputError(
            f"a frame cannot hold versions {from_version} to {to_version} of"
            f" incarnation {incarnation}",
            field="version",
        ) from error
    checksum = crc32c_more(crc32c(checked), stored)
    return b"%b%b%b" % (checked, checksum.to_bytes(4, "little"), stored)


def _packed(body: bytes, dictionary: bytes, level: int) -> tuple[bytes, int]:
    if len(body) > layout.RAW_BYTES_MAX:
        raise InvalidInputError(
            f"a frame body of {len(body)} bytes",
            field="body",
            hint=f"write several frames of up to {layout.BATCH_BYTES_MAX} bytes",
        )
    if level == FAST:
        codec = layout.LZ4
        stored = lz4_compress(body, store_size=False, dict=dictionary)
    else:
        codec = layout.LZ4HC
        stored = lz4_compress(
            body,
            mode="high_compression",
            compression=level,
            store_size=False,
            dict=dictionary,
        )
    return (stored, codec) if len(stored) < len(body) else (body, layout.RAW)


def decode_frame(data: bytes, *, dictionary: bytes = b"") -> tuple[Header, bytes]:
    """Return the header and the decoded body of exactly one frame.

    Whether a dictionary is needed is read from the frame alone; one that is
    not needed is ignored.

    Args:
        data: A whole frame and nothing else.
        dictionary: The dictionary that it was written with, or what precedes
            and then the dictionary: the frame knows how much of the end it is.

    Raises:
        UnknownVersionError: a newer version wrote it.
        ChecksumError: bytes were changed, or it is another dictionary.
        CorruptDataError: it is cut, or no frame.
    """
    header = layout.decode_header(data)
    stored = data[HEADER_BYTES:]
    if len(stored) != header.body_length:
        raise CorruptDataError(
            f"a frame body has {len(stored)} bytes instead of {header.body_length}"
        )
    if crc32c_more(crc32c(data[:CHECKED_BYTES]), stored) != header.checksum:
        raise ChecksumError("the bytes of a frame do not match its checksum")
    if header.codec == layout.RAW:
        body = stored
    else:
        body = _unpacked(stored, header, dictionary if header.flags else b"")
    if crc32c(body) != header.raw_checksum:
        raise ChecksumError("the decoded body of a frame does not match its checksum")
    return header, body


def _unpacked(stored: bytes, header: Header, dictionary: bytes) -> bytes:
    if header.flags & layout.SHARED:
        dictionary = SHARED.get(header.dictionary_hash, b"")
        if len(dictionary) != header.dictionary_length:
            raise UnknownVersionError(
                "a frame was written with a dictionary that this program lacks",
                hint="a newer version wrote it; upgrade",
            )
    elif header.dictionary_length:
        dictionary = dictionary[-header.dictionary_length :]
        named = crc32c(dictionary).to_bytes(4, "little")
        if (len(dictionary), named) != (
            header.dictionary_length,
            header.dictionary_hash,
        ):
            raise ChecksumError(
                "a frame was written with another dictionary",
                hint="give the records between the last seal and this frame",
                code="wrong_dictionary",
            )
    try:
        body = lz4_decompress(
            stored, uncompressed_size=header.raw_length, dict=dictionary
        )
    except (Lz4Error, ValueError) as error:
        raise CorruptDataError(f"a frame body is no LZ4 block: {error}") from error
    if len(body) != header.raw_length:
        raise CorruptDataError(
            f"a frame body decodes to {len(body)} bytes instead of {header.raw_length}"
        )
    return body
