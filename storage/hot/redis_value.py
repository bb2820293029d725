"""The value under which a head lies in Redis: who wrote it, until when, the row."""

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from turnstate.schemas.errors import CorruptDataError, UnknownVersionError
from turnstate.storage.frames.header import decode_header
from turnstate.storage.stored_head import StoredHead, decode_stored_head

LAYOUT: Final = 1
"""First byte of a value; the scripts leave values of other layouts alone."""

# Big-endian, so that the scripts can compare numbers as bytes: Lua's own
# numbers are exact to 2^53 only. The offsets are known to redis_script.py.
_HEADER: Final = Struct(">BQIQQ8sQQ")
_STAND: Final = Struct(">QQ")
_LIFE: Final = Struct(">Q")

HEADER_BYTES: Final = _HEADER.size
WRITE_ID_BYTES: Final = 8


class HeadValue(NamedTuple):
    """A head as it lies in Redis.

    Attributes:
        epoch: Of the owner that wrote it; a lower one may not write after it.
        generation: Counts within an epoch how often the owner gave up all that
            it had written (`HotCache`).
        incarnation: Which life of the session.
        version: The version of the head.
        write_id: Chosen anew for each write, so that one that is sent again
            after a time-out is known for the same.
        written_ms: When, by the writer's clock, epoch milliseconds.
        expires_ms: From when on it is not served.
        row: The stored head.
    """

    epoch: int
    generation: int
    incarnation: int
    version: int
    write_id: bytes
    written_ms: int
    expires_ms: int
    row: bytes

    def stored(self) -> StoredHead:
        """Return the head.

        Raises:
            CorruptDataError: it cannot be read, or is another than announced.
        """
        found = decode_stored_head(self.row)
        if (found.head.incarnation, found.head.version) != (
            self.incarnation,
            self.version,
        ):
            raise CorruptDataError(
                f"a head in Redis is announced as version {self.version}, and is"
                f" version {found.head.version}",
                field=f"version {self.version}",
            )
        return found


def encode_value(value: HeadValue) -> bytes:
    """Return the bytes of a value.

    Example:
        >>> value = HeadValue(3, 0, 1, 7, bytes(8), 1_000, 2_000, b"row")
        >>> decode_value(encode_value(value)) == value
        True
    """
    return _HEADER.pack(LAYOUT, *value[:-1]) + value.row


def decode_value(data: bytes) -> HeadValue:
    """Invert `encode_value`.

    Raises:
        UnknownVersionError: another version of turnstate wrote it.
        CorruptDataError: it is cut.
    """
    if len(data) < HEADER_BYTES:
        raise CorruptDataError("the value of a head in Redis is cut")
    if data[0] != LAYOUT:
        raise UnknownVersionError(
            f"a head in Redis has layout {data[0]}, this is {LAYOUT}",
            hint="one version of turnstate for one prefix; or wait for its TTL",
        )
    _, *fields = _HEADER.unpack_from(data)
    return HeadValue._make((*fields, data[HEADER_BYTES:]))


def encode_stand(incarnation: int, version: int) -> bytes:
    """Return where a session stands, as the scripts compare it.

    Example:
        >>> encode_stand(1, 300) < encode_stand(2, 0)
        True
    """
    return _STAND.pack(incarnation, version)


def encode_life(incarnation: int) -> bytes:
    """Return an incarnation as a tombstone holds it."""
    return _LIFE.pack(incarnation)


def frames_reaching(
    frames: Sequence[bytes], incarnation: int, version: int
) -> tuple[bytes, ...]:
    """Return the frames that lead to a version without a hole; none else.

    Redis may have thrown away the body alone, where its policy says so.
    """
    kept: list[bytes] = []
    wanted = version
    for frame in reversed(frames):
        header = decode_header(frame)
        if (header.incarnation, header.to_version) != (incarnation, wanted):
            break
        kept.append(frame)
        wanted = header.from_version
    return tuple(reversed(kept))
