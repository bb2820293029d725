"""Write and read recordings: stamped operations as a file that proves itself whole."""

import random
from collections.abc import Iterable, Iterator
from functools import lru_cache
from struct import Struct
from typing import BinaryIO, Final, NamedTuple, NoReturn

import msgspec

from turnstate.schemas.errors import (
    ChecksumError,
    CorruptDataError,
    InvalidInputError,
    UnknownVersionError,
)
from turnstate.schemas.ids import SessionName
from turnstate.schemas.operation import Op
from turnstate.storage.frames.native import (
    Lz4Error,
    crc32c,
    lz4_compress,
    lz4_decompress,
)

MAGIC: Final = b"\x89TSREC\r\n"
"""First bytes: no text, and a transfer that changes line ends breaks them."""

VERSION: Final = 1
"""The version that is written; every version up to it is read."""

BLOCK_BYTES: Final = 256 << 10
"""A block is closed when its records reach this; one record is never divided."""

BLOCK_BYTES_MAX: Final = 16 << 20
"""A block that says that it unpacks to more is corrupt: nothing writes such."""

TORN_CODE: Final = "torn_recording"
"""Code of the error by which a recording that was cut short is named."""

_HEADER: Final = Struct("<8sHHI")  # magic, version, flags, CRC32C of these
_BLOCK: Final = Struct("<BBHIIIII")
# kind, codec, reserved, sequence, raw length, body length, CRC32C of the body,
# CRC32C of the header so far
_RECORDS, _END = 1, 2
_RAW, _LZ4 = 0, 1


class RecordedOperation(NamedTuple):
    """One stamped operation of a session, as its canonical bytes.

    Attributes:
        name: The session.
        incarnation: The life of the session that it belongs to.
        record: `Op.record`, stamp included.
    """

    name: SessionName
    incarnation: int
    record: bytes

    @classmethod
    def of(cls, name: SessionName, op: Op) -> "RecordedOperation":
        """Return how an operation is recorded."""
        return cls(name, op.incarnation, op.record)

    def op(self) -> Op:
        """Decode the operation.

        Raises:
            CorruptDataError: the bytes are no operation of that incarnation.
        """
        try:
            op = Op.decode(self.record)
        except (ValueError, TypeError, RecursionError) as error:
            raise CorruptDataError(
                f"a record of session {self.name.session!r} is no operation: {error}"
            ) from error
        if op.incarnation != self.incarnation:
            raise CorruptDataError(
                f"operation {op.dot.address()} of session {self.name.session!r} is of"
                f" incarnation {op.incarnation}, recorded under {self.incarnation}"
            )
        return op


class RecordedErasure(NamedTuple):
    """An erasure: it has no dot, and names the incarnation that it ends."""

    name: SessionName
    incarnation: int


RecordedItem = RecordedOperation | RecordedErasure


class RecordingTotals(NamedTuple):
    """What a recording holds, as its end marker says."""

    operations: int
    erasures: int
    blocks: int


class _Group(msgspec.Struct, array_like=True, gc=False):
    """Successive operations of one session; without records, an erasure."""

    key: bytes
    incarnation: int
    records: list[bytes] | None


_groups_decoder: Final = msgspec.msgpack.Decoder(list[_Group])
_totals_decoder: Final = msgspec.msgpack.Decoder(RecordingTotals)
_encoder: Final = msgspec.msgpack.Encoder()


def is_recording(first: bytes) -> bool:
    """Say whether a file that begins with these bytes is meant as a recording."""
    return first[: len(MAGIC)] == MAGIC


def write_recording(file: BinaryIO, items: Iterable[RecordedItem]) -> RecordingTotals:
    """Write a recording, in the order given, and say what it holds.

    Streams: at most one block is held. Only the end marker makes the file whole,
    so a caller that is interrupted leaves nothing that could be taken for whole.

    Args:
        file: Open for binary writing; it need not seek and is not closed.
        items: Operations and erasures. Successive operations of one session
            share a header, so an order by session gives the smallest file.

    Example:
        >>> from io import BytesIO
        >>> write_recording(BytesIO(), [RecordedErasure(SessionName("t", "s"), 1)])
        RecordingTotals(operations=0, erasures=1, blocks=1)
    """
    head = _HEADER.pack(MAGIC, VERSION, 0, 0)[:-4]
    file.write(head + _crc(head))
    groups: list[_Group] = []
    records: list[bytes] = []
    open_name: tuple[SessionName, int] | None = None
    operations = erasures = blocks = size = 0
    for item in items:
        name, incarnation = item[0], item[1]
        if isinstance(item, RecordedErasure):
            groups.append(_Group(name.key(), incarnation, None))
            open_name = None
            erasures += 1
            size += 64
        else:
            if open_name != (name, incarnation):
                open_name = (name, incarnation)
                records = []
                groups.append(_Group(name.key(), incarnation, records))
                size += 64
            records.append(item.record)
            operations += 1
            size += len(item.record)
        if size >= BLOCK_BYTES:
            _write_block(file, _RECORDS, blocks, _encoder.encode(groups))
            blocks += 1
            groups, open_name, size = [], None, 0
    if groups:
        _write_block(file, _RECORDS, blocks, _encoder.encode(groups))
        blocks += 1
    totals = RecordingTotals(operations, erasures, blocks)
    _write_block(file, _END, blocks, _encoder.encode(totals))
    return totals


def _crc(data: bytes) -> bytes:
    return crc32c(data).to_bytes(4, "little")


def _write_block(file: BinaryIO, kind: int, sequence: int, raw: bytes) -> None:
    assert len(raw) <= BLOCK_BYTES_MAX, "a record is no larger than a turn may be"
    body = lz4_compress(raw, store_size=False)
    codec = _LZ4
    if len(body) >= len(raw):
        body, codec = raw, _RAW
    head = _BLOCK.pack(
        kind,
        codec,
        0,
        sequence,
        len(raw),
        len(body),
        crc32c(body),
        0,
    )[:-4]
    file.write(head + _crc(head))
    file.write(body)


def read_recording(file: BinaryIO) -> Iterator[RecordedItem]:
    """Yield what a recording holds, block by block as each proves good.

    What is damaged or cut is found when it is reached, after everything before
    it has been yielded. A caller that must not act on half a recording reads it
    once beforehand.

    Args:
        file: Open for binary reading, at the start of the recording.

    Raises:
        UnknownVersionError: a newer version wrote it.
        ChecksumError: bytes were changed; the message says which.
        CorruptDataError: it is no recording, or was cut short (`TORN_CODE`).
    """
    reader = _Reader(file)
    reader.read_header()
    operations = erasures = 0
    while (groups := reader.read_groups(operations)) is not None:
        for group in groups:
            name = _name(group.key)
            incarnation = group.incarnation
            if group.records is None:
                erasures += 1
                yield RecordedErasure(name, incarnation)
            else:
                operations += len(group.records)
                for record in group.records:
                    yield RecordedOperation(name, incarnation, record)
    reader.check_end(operations, erasures)


@lru_cache(maxsize=1024)
def _name(key: bytes) -> SessionName:
    try:
        return SessionName.from_key(key)
    except InvalidInputError as error:
        raise CorruptDataError("a recorded session key is none") from error


class _Reader:
    """Where a reading of one recording stands."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._at = 0
        self._blocks = 0
        self._totals: RecordingTotals | None = None

    def _take(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size and (part := self._file.read(size)):
            parts.append(part)
            size -= len(part)
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        self._at += len(data)
        return data

    def read_header(self) -> None:
        head = self._take(_HEADER.size)
        if not is_recording(head):
            raise CorruptDataError(
                "the file does not begin as a recording",
                hint="give a file that `export` wrote",
            )
        if len(head) < _HEADER.size:
            self._torn(0)
        if _crc(head[:-4]) != head[-4:]:
            raise ChecksumError("the header of the recording is damaged")
        _, version, flags, _ = _HEADER.unpack(head)
        if version > VERSION or flags:
            raise UnknownVersionError(
                f"the recording has version {version} with flags {flags:#x},"
                f" known are versions up to {VERSION}",
                hint="upgrade turnstate",
            )
        if version < 1:
            raise CorruptDataError(f"the recording has version {version}")

    def read_groups(self, operations: int) -> list[_Group] | None:
        """Return the next block's groups, or None at the end marker."""
        start = self._at
        head = self._take(_BLOCK.size)
        if len(head) < _BLOCK.size:
            self._torn(operations)
        if _crc(head[:-4]) != head[-4:]:
            raise ChecksumError(f"the block header at byte {start} is damaged")
        kind, codec, reserved, sequence, raw_length, body_length, crc, _ = (
            _BLOCK.unpack(head)
        )
        if kind not in (_RECORDS, _END) or codec not in (_RAW, _LZ4) or reserved:
            raise UnknownVersionError(
                f"the block at byte {start} is of a kind that is not known",
                hint="upgrade turnstate",
            )
        if sequence != self._blocks:
            raise CorruptDataError(
                f"block {sequence} stands at byte {start}, where"
                f" block {self._blocks} belongs"
            )
        if max(raw_length, body_length) > BLOCK_BYTES_MAX:
            raise CorruptDataError(f"the block at byte {start} is too large")
        body = self._take(body_length)
        if len(body) < body_length:
            self._torn(operations)
        if crc32c(body) != crc:
            raise ChecksumError(f"the block at byte {start} is damaged")
        raw = _unpacked(body, codec, raw_length, start)
        try:
            if kind == _RECORDS:
                self._blocks += 1
                return _groups_decoder.decode(raw)
            self._totals = _totals_decoder.decode(raw)
        except (ValueError, RecursionError) as error:
            raise CorruptDataError(
                f"the block at byte {start} holds no records: {error}"
            ) from error
        return None

    def check_end(self, operations: int, erasures: int) -> None:
        found = RecordingTotals(operations, erasures, self._blocks)
        if self._totals != found:
            raise CorruptDataError(
                f"the recording holds {found}, its end marker says {self._totals}"
            )
        if self._take(1):
            raise CorruptDataError(
                f"something stands behind the end of the recording at byte {self._at}"
            )

    def _torn(self, operations: int) -> NoReturn:
        raise CorruptDataError(
            f"the recording is cut short at byte {self._at},"
            f" after {operations} whole operations",
            hint="fetch or export it again",
            code=TORN_CODE,
        )


def _unpacked(body: bytes, codec: int, raw_length: int, start: int) -> bytes:
    raw = body
    if codec == _LZ4:
        try:
            raw = lz4_decompress(body, uncompressed_size=raw_length)
        except (Lz4Error, ValueError, MemoryError) as error:
            raise CorruptDataError(
                f"the block at byte {start} does not unpack: {error}"
            ) from error
    if len(raw) != raw_length:
        raise CorruptDataError(f"the block at byte {start} has another length")
    return raw


def shuffled(items: Iterable[RecordedItem], seed: int) -> list[RecordedItem]:
    """Return the whole recording in an order that the seed alone decides.

    Operations and erasures change places across all sessions: stamped
    operations fold to one state in any order (design §4). Held in memory: about
    200 bytes an operation beside its record, so 1 GB takes some 2 000 000
    operations of real dialogues.

    Example:
        >>> name = SessionName("t", "s")
        >>> items = [RecordedErasure(name, life) for life in range(1, 5)]
        >>> [item.incarnation for item in shuffled(items, seed=7)]
        [4, 2, 1, 3]
    """
    order = list(items)
    random.Random(seed).shuffle(order)
    return order
