"""The checksum in front of a row: CRC32C of what follows, little-endian."""

from typing import Final

from turnstate.schemas.errors import ChecksumError
from turnstate.storage.frames.native import crc32c

CHECKSUM_BYTES: Final = 4


def with_checksum(data: bytes) -> bytes:
    """Return a row: the checksum of some bytes, and the bytes."""
    return crc32c(data).to_bytes(CHECKSUM_BYTES, "little") + data


def has_checksum(row: bytes) -> bool:
    """Say whether a row matches the checksum that it begins with."""
    return _matches(row, row[CHECKSUM_BYTES:])


def without_checksum(row: bytes, what: str) -> bytes:
    """Invert `with_checksum`.

    Args:
        row: The row.
        what: Names it in the error.

    Raises:
        ChecksumError: the row does not match its checksum.

    Example:
        >>> without_checksum(with_checksum(b"data"), "this")
        b'data'
    """
    data = row[CHECKSUM_BYTES:]
    if not _matches(row, data):
        raise ChecksumError(f"{what} does not match its checksum")
    return data


def _matches(row: bytes, data: bytes) -> bool:
    return crc32c(data) == int.from_bytes(row[:CHECKSUM_BYTES], "little")
