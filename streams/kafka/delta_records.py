"""Read a record of the topic `deltas`: one frame of one session."""

from typing import Any, NamedTuple

from turnstate.schemas.errors import CorruptDataError
from turnstate.schemas.operation import Op
from turnstate.storage.frames import header as layout
from turnstate.storage.frames.codec import decode_frame, session_hash
from turnstate.storage.frames.header import Header
from turnstate.storage.frames.operations import (
    DECODE_ERRORS,
    PositionRange,
    decode_operations,
)


class Delta(NamedTuple):
    """A frame that left its store.

    Attributes:
        key: The session key.
        header: Its header; versions from `from_version` (exclusive) on.
        records: Canonical records, the n-th leads to from-version + n.
        positions: Where they came from.
    """

    key: bytes
    header: Header
    records: list[bytes]
    positions: list[PositionRange]

    def op(self, at: int) -> Op:
        """Return one operation.

        Raises:
            CorruptDataError: the record is none.
        """
        try:
            return Op.decode(self.records[at])
        except DECODE_ERRORS as error:
            raise CorruptDataError(
                f"an operation of a frame cannot be read: {error}"
            ) from error


def delta_of(record: Any) -> Delta:
    """Read a record of `deltas`; every checksum is compared.

    Raises:
        CorruptDataError: it is no frame of the session that is its key.
    """
    if record.key is None or record.value is None:
        raise CorruptDataError("a record of deltas has no key or no value")
    header, body = decode_frame(record.value)
    if header.kind != layout.FRAME:
        raise CorruptDataError(f"a {header.kind_name} came by deltas")
    if header.session_hash != session_hash(record.key):
        raise CorruptDataError("the frame is of another session than its key says")
    content = decode_operations(body)
    if len(content.records) != header.to_version - header.from_version:
        raise CorruptDataError(
            f"{len(content.records)} operations lead from version"
            f" {header.from_version} to {header.to_version}"
        )
    return Delta(record.key, header, content.records, content.positions)
