"""From stored frames and segments to operations in version order."""

from collections.abc import Iterable
from typing import NamedTuple

from turnstate.schemas.clocks import Dot
from turnstate.schemas.errors import CorruptDataError
from turnstate.storage.frames import header as layout
from turnstate.storage.frames.codec import decode_frame
from turnstate.storage.frames.header import Header, decode_header
from turnstate.storage.frames.operations import (
    FrameBody,
    PositionRange,
    decode_operations,
)
from turnstate.storage.frames.segment import Segment


class Reading(NamedTuple):
    """What could be read of a session.

    Attributes:
        after: The version before the first record.
        records: Canonical records; the n-th leads to version after + n.
        positions: The log positions of the parts that were read.
        bases: The base states of the parts that were read, by dot.
        faults: What is wrong with the parts that could not be read.
        missing_after: The last good version, where more versions are named by
            some part than could be read: a torn tail or a hole; else None.
    """

    after: int
    records: list[bytes]
    positions: list[PositionRange]
    bases: dict[Dot, bytes]
    faults: list[CorruptDataError]
    missing_after: int | None

    @property
    def version(self) -> int:
        """Return the last good version."""
        return self.after + len(self.records)

    def required(self) -> "Reading":
        """Return this reading if nothing is missing.

        Raises:
            CorruptDataError: versions are missing; the first fault says why.
        """
        if self.missing_after is None:
            return self
        first = self.faults[0]
        raise CorruptDataError(
            f"versions after {self.missing_after} cannot be read: {first}",
            field=f"version {self.missing_after + 1}",
            hint="rebuild them from the log",
        ) from first


def read_operations(
    parts: Iterable[bytes], *, after: int = 0, up_to: int | None = None
) -> Reading:
    """Return the operations of some frames and segments, each version once.

    Parts may come in any order and overlap, as they do where a crash came
    between writing a segment and deleting its frames: what is there already
    is skipped, without decoding it where the whole part is. A part that is
    damaged is passed over; it is missed only if no other part has its
    versions. Where the choice is free, the longer part is read.

    Args:
        parts: Frames of kind `FRAME` and `SEGMENT` of one session.
        after: The version that the caller has.
        up_to: The version to stop at (inclusive); None = the last.
    """
    known: list[tuple[Header, bytes]] = []
    faults: list[CorruptDataError] = []
    for part in parts:
        try:
            known.append((_header_of(part, known), part))
        except CorruptDataError as error:
            faults.append(error)
    known.sort(key=lambda item: (item[0].from_version, -item[0].to_version))
    missing = bool(faults)
    progress = _Progress(_begin(known, after), up_to, faults)
    for header, part in known:
        progress.take(header, part)
    version = progress.version
    wanted = max((header.to_version for header, _ in known), default=after)
    missing = (missing or version < wanted) and not progress.done()
    return Reading(
        after,
        progress.records[after - progress.start :],
        progress.positions,
        progress.bases,
        faults,
        max(version, after) if missing else None,
    )


def _header_of(part: bytes, known: list[tuple[Header, bytes]]) -> Header:
    header = decode_header(part)
    if header.kind == layout.HEAD:
        raise CorruptDataError("a head is no part of the operations")
    if known:
        first = known[0][0]
        if (first.session_hash, first.incarnation) != (
            header.session_hash,
            header.incarnation,
        ):
            raise CorruptDataError("a frame belongs to another session")
    return header


def _begin(known: list[tuple[Header, bytes]], after: int) -> int:
    """Return where to begin: a delta frame needs the records before it too."""
    frames = [header for header, _ in known if header.kind == layout.FRAME]
    if any(h.flags & layout.DELTA and h.to_version > after for h in frames):
        return min(after, frames[0].from_version)
    return after


class _Progress:
    """The versions read so far, in order, and what stands beside them."""

    __slots__ = ("bases", "faults", "positions", "records", "start", "up_to")

    def __init__(
        self, start: int, up_to: int | None, faults: list[CorruptDataError]
    ) -> None:
        self.start = start
        self.up_to = up_to
        self.faults = faults
        self.records: list[bytes] = []
        self.positions: list[PositionRange] = []
        self.bases: dict[Dot, bytes] = {}

    @property
    def version(self) -> int:
        return self.start + len(self.records)

    def done(self) -> bool:
        return self.up_to is not None and self.version >= self.up_to

    def take(self, header: Header, part: bytes) -> None:
        """Read a part as far as it is news."""
        if header.to_version <= self.version or self.done():
            return
        if header.from_version > self.version:
            self.faults.append(
                CorruptDataError(
                    f"no part has the versions {self.version + 1} to"
                    f" {header.from_version}"
                )
            )
            return
        try:
            body = self._body(header, part)
        except CorruptDataError as error:
            self.faults.append(error)
            return
        end = header.to_version
        if self.up_to is not None:
            end = min(end, self.up_to)
        news = self.version - header.from_version
        self.records += body.records[news : end - header.from_version]
        self.positions += body.positions
        self.bases.update(body.bases)

    def _body(self, header: Header, part: bytes) -> FrameBody:
        if header.kind == layout.SEGMENT:
            segment = Segment(*decode_frame(part))
            return FrameBody(segment.records(), segment.positions, segment.bases)
        body = decode_operations(
            decode_frame(part, dictionary=self._dictionary(header))[1]
        )
        if len(body.records) != header.to_version - header.from_version:
            raise CorruptDataError(
                f"a frame of versions {header.from_version} to {header.to_version}"
                f" holds {len(body.records)} operations"
            )
        return body

    def _dictionary(self, header: Header) -> bytes:
        """Return the end of the records before a frame, as much as it names."""
        wanted = header.dictionary_length if header.flags & layout.DELTA else 0
        pieces: list[bytes] = []
        size = 0
        for place in range(header.from_version - self.start - 1, -1, -1):
            if size >= wanted:
                break
            pieces.append(self.records[place])
            size += len(self.records[place])
        return b"".join(reversed(pieces))
