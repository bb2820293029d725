"""Segments: what is in one, and how it is written, read back and opened."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct

from turnstate.schemas.clocks import Dot
from turnstate.schemas.errors import CorruptDataError
from turnstate.schemas.limits import SEGMENT_BYTES, SEGMENT_TURNS
from turnstate.storage.frames import header as layout
from turnstate.storage.frames.chain import LINK_BYTES
from turnstate.storage.frames.codec import SMALL, decode_frame, encode_frame
from turnstate.storage.frames.column_reader import ColumnReader, gives_back
from turnstate.storage.frames.columns import Columns, columns_of
from turnstate.storage.frames.dictionary import NEWEST
from turnstate.storage.frames.header import Header
from turnstate.storage.frames.operations import (
    DECODE_ERRORS,
    PositionRange,
    bases_of,
    stored_bases,
)


class _Stored(Struct, array_like=True, frozen=True, gc=False):
    start_head: bytes
    replaced_link: bytes
    positions: list[PositionRange]
    bases: list[tuple[str, int, bytes]]
    columns: Columns


_encode: Final = msgspec.msgpack.Encoder(order="deterministic").encode
_decode: Final = msgspec.msgpack.Decoder(_Stored).decode


class Contents(NamedTuple):
    """What a segment is made of.

    Attributes:
        records: Canonical records in version order.
        start_head: The head that it starts from, opaque; empty for an empty
            session.
        replaced_link: The chain link of the last frame that it replaces.
        positions: The log positions of its operations.
        bases: As in `FrameBody`.
    """

    records: Sequence[bytes]
    start_head: bytes
    replaced_link: bytes
    positions: Sequence[PositionRange] = ()
    bases: Mapping[Dot, bytes] = {}


class Segment:
    """A decoded segment: any operation without decoding the others.

    Attributes:
        header: Its header.
        start_head: The head that it starts from, opaque.
        replaced_link: The chain link of the last frame that it replaced.
        positions: The log positions of its operations.
        bases: Branch states, opaque, by the dot of the turn that they hold at.
    """

    __slots__ = (
        "_reader",
        "bases",
        "header",
        "positions",
        "replaced_link",
        "start_head",
    )

    def __init__(self, header: Header, body: bytes) -> None:
        try:
            stored = _decode(body)
        except DECODE_ERRORS as error:
            raise CorruptDataError(f"a segment body cannot be read: {error}") from error
        self.header = header
        self.start_head = stored.start_head
        self.replaced_link = stored.replaced_link
        self.positions = stored.positions
        self.bases = bases_of(stored.bases)
        self._reader = ColumnReader(stored.columns)
        if self._reader.count != header.to_version - header.from_version:
            raise CorruptDataError(
                f"a segment of versions {header.from_version} to"
                f" {header.to_version} holds {self._reader.count} operations"
            )

    def records(self) -> list[bytes]:
        """Return all canonical records; the n-th leads to from-version + n.

        Raises:
            CorruptDataError: the columns give no records.
        """
        try:
            return self._reader.records()
        except DECODE_ERRORS as error:
            raise CorruptDataError(f"a segment gives no records: {error}") from error

    def record(self, version: int) -> bytes:
        """Return the record of the operation that led to a version.

        Raises:
            IndexError: the version is not in this segment.
            CorruptDataError: the columns give no record.
        """
        try:
            return self._reader.record(version - self.header.from_version - 1)
        except IndexError:
            raise
        except DECODE_ERRORS as error:
            raise CorruptDataError(f"a segment gives no record: {error}") from error


def open_segment(frame: bytes) -> Segment:
    """Decode a frame of kind `SEGMENT`.

    Raises:
        CorruptDataError: see `codec.decode_frame`; or it is no segment.
    """
    header, body = decode_frame(frame)
    if header.kind != layout.SEGMENT:
        raise CorruptDataError(f"a {header.kind_name} is no segment")
    return Segment(header, body)


def is_due(operations: int, record_bytes: int) -> bool:
    """Say whether what came since the last seal fills a segment.

    Example:
        >>> is_due(63, 9000), is_due(64, 9000), is_due(1, 65536)
        (False, True, True)
    """
    return operations >= SEGMENT_TURNS or record_bytes >= SEGMENT_BYTES


def cuts(records: Sequence[bytes]) -> list[int]:
    """Return where to end each segment of many records; the last may be short.

    Example:
        >>> cuts([b""] * 150)
        [64, 128, 150]
    """
    ends: list[int] = []
    begin = size = 0
    for place, record in enumerate(records, 1):
        size += len(record)
        if is_due(place - begin, size):
            ends.append(place)
            begin, size = place, 0
    if begin < len(records):
        ends.append(len(records))
    return ends


def encode_segment(
    contents: Contents,
    *,
    session_hash: bytes,
    incarnation: int,
    from_version: int,
    previous_link: bytes,
    key_id: int = 0,
    time_ms: int = 0,
) -> bytes:
    """Return the segment of some contents, after reading it back.

    Args:
        contents: What it holds.
        session_hash: See `codec.session_hash`.
        incarnation: The life of the session.
        from_version: The version of `start_head`.
        previous_link: The chain link of the segment before, or `START_LINK`.
        key_id: The key of the chain, 0 = none.
        time_ms: When it is written.

    Raises:
        CorruptDataError: what was read back is not what was put in.
    """
    assert len(contents.replaced_link) == LINK_BYTES, "a link has 16 bytes"
    records = contents.records

    def framed(columns: Columns) -> bytes:
        return encode_frame(
            layout.SEGMENT,
            _body_of(contents, columns),
            session_hash=session_hash,
            incarnation=incarnation,
            from_version=from_version,
            to_version=from_version + len(records),
            previous_link=previous_link,
            dictionary=NEWEST,
            level=SMALL,
            key_id=key_id,
            time_ms=time_ms,
        )

    frame = framed(columns_of(records))
    if not _reads_back(frame, contents):
        odd = {at for at, record in enumerate(records) if not gives_back(record)}
        frame = framed(columns_of(records, odd))
        if not _reads_back(frame, contents):
            raise CorruptDataError(
                f"a segment of versions {from_version} to"
                f" {from_version + len(records)} does not read back as it was written"
            )
    return frame


def _body_of(contents: Contents, columns: Columns) -> bytes:
    return _encode(
        (
            contents.start_head,
            contents.replaced_link,
            contents.positions,
            stored_bases(contents.bases),
            columns,
        )
    )


def _reads_back(frame: bytes, contents: Contents) -> bool:
    try:
        read = open_segment(frame)
        return (
            read.records() == list(contents.records)
            and read.start_head == contents.start_head
            and read.replaced_link == contents.replaced_link
            and read.positions == list(contents.positions)
            and read.bases == dict(contents.bases)
        )
    except CorruptDataError:
        return False


def merged_positions(positions: Iterable[PositionRange]) -> list[PositionRange]:
    """Return one range for each partition of each log, in order.

    Example:
        >>> a = PositionRange(b"l", 0, (5, 0), (6, 0))
        >>> merged_positions([a, PositionRange(b"l", 0, (7, 0), (9, 2))])
        [PositionRange(log=b'l', partition=0, first=(5, 0), last=(9, 2))]
    """
    merged: dict[tuple[bytes, int], PositionRange] = {}
    for one in positions:
        name = (one.log, one.partition)
        known = merged.get(name, one)
        merged[name] = PositionRange(
            *name, min(known.first, one.first), max(known.last, one.last)
        )
    return [merged[name] for name in sorted(merged)]
