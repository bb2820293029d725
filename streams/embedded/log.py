"""The embedded log: records in offset order, packed a chunk a commit."""

import secrets
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from turnstate.schemas.errors import ChecksumError, CorruptDataError
from turnstate.storage.frames.native import (
    Lz4Error,
    crc32c,
    lz4_compress,
    lz4_decompress,
)
from turnstate.storage.warm.rocksdb import Batch, WarmStore
from turnstate.storage.warm.tables import LOG, META

_IDENTITY_KEY: Final = b"log_identity"
_END_KEY: Final = b"log_end"
_IDENTITY_BYTES: Final = 16
_OFFSET_BYTES: Final = 8
_CRC_BYTES: Final = 4
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(list[bytes]).decode


class EmbeddedLog:
    """Append records to the store's own log table; one partition, number 0.

    A chunk lies in the same batch as the state that it folds into, so log and
    state are never apart. Offsets run from 0 without holes. A trimmed log
    keeps its end: no offset is used twice.

    Args:
        store: The store that it is part of.
    """

    partition = 0

    def __init__(self, store: WarmStore) -> None:
        self._store = store
        identity = store.meta(_IDENTITY_KEY)
        if identity is None:
            identity = secrets.token_bytes(_IDENTITY_BYTES)
            batch = store.batch()
            batch.put(META, _IDENTITY_KEY, identity)
            store.write(batch, sync=True)
        self.identity = identity
        end = store.meta(_END_KEY)
        self.end = int.from_bytes(end, "big") if end else 0

    def stage(self, batch: Batch, records: Sequence[bytes]) -> None:
        """Put a chunk into a batch; it counts once `appended` is called."""
        packed = pack_chunk(records)
        batch.put(LOG, self.end.to_bytes(_OFFSET_BYTES, "big"), packed)
        end = self.end + len(records)
        batch.put(META, _END_KEY, end.to_bytes(_OFFSET_BYTES, "big"))

    def appended(self, count: int) -> None:
        """Move the end once the batch is written."""
        self.end += count

    def read(self, from_offset: int = 0) -> Iterator[tuple[int, bytes]]:
        """Yield (offset, record) from an offset on.

        Raises:
            CorruptDataError: a chunk is damaged; the message names its offset.
        """
        for key, row in self._chunks(from_offset):
            first = int.from_bytes(key, "big")
            for offset, record in enumerate(unpack_chunk(row, first), start=first):
                if offset >= from_offset:
                    yield offset, record

    def _chunks(self, from_offset: int) -> Iterator[tuple[bytes, bytes]]:
        """Yield the chunks that hold an offset and all after it."""
        before: tuple[bytes, bytes] | None = None
        for key, row in self._store.rows(LOG):
            if int.from_bytes(key, "big") > from_offset and before is not None:
                yield before
            before = (key, row)
        if before is not None:
            yield before

    def chunks(self) -> Iterator[tuple[int, list[bytes]]]:
        """Yield (offset of the first, records) of each chunk.

        Raises:
            CorruptDataError: a chunk is damaged; the message names its offset.
        """
        for key, row in self._store.rows(LOG):
            first = int.from_bytes(key, "big")
            yield first, unpack_chunk(row, first)

    def stage_rewrite(self, batch: Batch, first: int, records: Sequence[bytes]) -> None:
        """Put other records in the place of a chunk's; the offsets stay."""
        batch.put(LOG, first.to_bytes(_OFFSET_BYTES, "big"), pack_chunk(records))

    def check_end(self) -> int:
        """Return where the last chunk begins, once it is known to be the last.

        Raises:
            CorruptDataError: the log does not end where the store says.
        """
        at = self._store.last_key(LOG)
        if at is None:
            return self.end
        first = int.from_bytes(at, "big")
        row = self._store.get(LOG, at)
        assert row is not None, "it was there"
        end = first + len(unpack_chunk(row, first))
        if end != self.end:
            raise CorruptDataError(
                f"the log ends at offset {end}, the store says {self.end}",
                hint="restore from a backup: turnstate restore",
            )
        return first

    def faults(self) -> Iterator[str]:
        """Yield what is wrong with the log, chunk by chunk; goes on past damage."""
        end = self.end
        next_offset: int | None = None
        try:
            for key, row in self._store.rows(LOG):
                first = int.from_bytes(key, "big")
                if first >= end:
                    break
                if next_offset is not None and first != next_offset:
                    yield f"the log goes from offset {next_offset} to {first}"
                try:
                    next_offset = first + len(unpack_chunk(row, first))
                except CorruptDataError as error:
                    next_offset = None
                    yield str(error)
        except CorruptDataError as error:
            yield str(error)
            return
        if next_offset is not None and next_offset < end:
            yield f"the log breaks off at offset {next_offset}, its end is {end}"

    def stage_trim(self, batch: Batch, below: int) -> None:
        """Remove the chunks that lie wholly below an offset."""
        starts = [int.from_bytes(key, "big") for key, _ in self._store.rows(LOG)]
        kept = [start for start in starts if start <= below]
        if kept:
            batch.delete_range(
                LOG, bytes(_OFFSET_BYTES), kept[-1].to_bytes(_OFFSET_BYTES, "big")
            )


def pack_chunk(records: Sequence[bytes]) -> bytes:
    """Return the bytes of a chunk: CRC32C, raw length, LZ4 of a MessagePack list.

    Example:
        >>> unpack_chunk(pack_chunk([b"a", b"b"]), 0)
        [b'a', b'b']
    """
    packed = lz4_compress(_encode(records))
    return crc32c(packed).to_bytes(_CRC_BYTES, "little") + packed


def unpack_chunk(row: bytes, first_offset: int) -> list[bytes]:
    """Invert `pack_chunk`.

    Raises:
        CorruptDataError: the chunk is damaged.
    """
    packed = row[_CRC_BYTES:]
    if crc32c(packed) != int.from_bytes(row[:_CRC_BYTES], "little"):
        raise ChecksumError(f"the log chunk at offset {first_offset} is damaged")
    try:
        return _decode(lz4_decompress(packed))
    except (msgspec.MsgspecError, Lz4Error, ValueError) as error:
        raise CorruptDataError(
            f"the log chunk at offset {first_offset} cannot be read: {error}"
        ) from error
