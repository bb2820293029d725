"""The embedded log: records in offset order, packed a chunk a commit."""

import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from turnstate.agents.session.rebuild import session_key_of
from turnstate.schemas.errors import CorruptDataError
from turnstate.storage.encryption.keys import NOBODY
from turnstate.storage.frames.native import (
    Lz4Error,
    lz4_compress,
    lz4_decompress,
)
from turnstate.storage.hot.memory import MemoryTier
from turnstate.storage.log_names import LOG_NAMES_KEY, decode_log_names
from turnstate.storage.row_checksum import with_checksum, without_checksum
from turnstate.storage.stored_head import StoredHead
from turnstate.storage.tier import SessionChange
from turnstate.storage.warm.batch import Batch
from turnstate.storage.warm.rocksdb import WarmStore
from turnstate.storage.warm.tables import LOG, META, life_prefix
from turnstate.streams.embedded.encrypted_chunks import (
    chunk_encrypted_again,
    encrypted_chunk,
    erased_records,
    is_encrypted_chunk,
    opened_chunk,
)

_IDENTITY_KEY: Final = b"log_identity"
_END_KEY: Final = b"log_end"
_IDENTITY_BYTES: Final = 16
_OFFSET_BYTES: Final = 8
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(list[bytes]).decode


class EmbeddedLog:
    """Append records to the store's own log table; one partition, number 0.

    A chunk lies in the same batch as the state that it folds into, so log and
    state are never apart. Offsets run from 0 without holes. A trimmed log
    keeps its end: no offset is used twice.

    Attributes:
        identity: What tells it from every other log.
        end: The offset that the next record gets.
        names: Under which name it stamps, and stamped before it was restored.

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
        self.names = decode_log_names(store.meta(LOG_NAMES_KEY), store.log_name)

    def stage(
        self,
        batch: Batch,
        records: Sequence[bytes],
        life_of: "LifeOf | None" = None,
    ) -> None:
        """Put a chunk into a batch; it counts once `appended` is called.

        Args:
            batch: The batch.
            records: The records.
            life_of: Tells the life that a session is in; where the store is
                encrypted each record is so with the key of its life.
        """
        at = self.end.to_bytes(_OFFSET_BYTES, "big")
        if self._store.row_cipher is None:
            packed = pack_chunk(records)
        else:
            lives = [life_of_record(raw, life_of or _never_lived) for raw in records]
            packed = encrypted_chunk(batch, at, records, lives)
        batch.put(LOG, at, packed)
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
            for offset, record in enumerate(self.unpacked(key, row), start=first):
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
            yield int.from_bytes(key, "big"), self.unpacked(key, row)

    def unpacked(self, at: bytes, row: bytes) -> list[bytes]:
        """Return the records of a chunk; those whose key was destroyed are blank.

        Args:
            at: The key of its row.
            row: The row.

        Raises:
            CorruptDataError: it is damaged; the message names its offset.
            UnavailableError: it is encrypted, and no master key was given.
        """
        if not is_encrypted_chunk(row):
            return unpack_chunk(row, int.from_bytes(at, "big"))
        return opened_chunk(self._store, at, row)

    def erased(self) -> int:
        """Return how many records no key opens any more; reads the whole log."""
        row_cipher = self._store.row_cipher
        if row_cipher is None:
            return 0
        return sum(
            erased_records(row_cipher.ring, row)
            for _, row in self._store.rows(LOG)
            if is_encrypted_chunk(row)
        )

    def stage_rewrite(self, batch: Batch, first: int, records: Sequence[bytes]) -> None:
        """Put other records in the place of a chunk's; the offsets stay.

        Each is encrypted with the key that the record before it had; a chunk from
        before the store was encrypted stays as it is, not encrypted.
        """
        at = first.to_bytes(_OFFSET_BYTES, "big")
        row_cipher = self._store.row_cipher
        before = None if row_cipher is None else self._store.get(LOG, at)
        if row_cipher is not None and before is not None and is_encrypted_chunk(before):
            packed = chunk_encrypted_again(batch, row_cipher.ring, at, before, records)
        else:
            packed = pack_chunk(records)
        batch.put(LOG, at, packed)

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
        end = first + len(self.unpacked(at, row))
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
                    next_offset = first + len(self.unpacked(key, row))
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


LifeOf = Callable[[bytes], int]
"""Says which life a session is in; 0 where nothing of it was ever folded."""


def life_of_record(raw: bytes, life_of: LifeOf) -> bytes:
    """Return the life whose key encrypts a record, as `life_prefix` says it."""
    key = session_key_of(raw) if raw else None
    return NOBODY if key is None else life_prefix(key, life_of(key))


def lives_after(
    changes: Sequence[SessionChange], hot: MemoryTier, store: WarmStore
) -> LifeOf:
    """Return what says which life each session is in after some changes.

    Of a session that is not among them it is looked up; a cold one is not read.
    """
    changed = {each.key: each.after.head.incarnation for each in changes}

    def life_of(key: bytes) -> int:
        life = changed.get(key)
        if life is not None:
            return life
        found = hot.peek(key) or store.located([key])[0]
        if isinstance(found, StoredHead):
            return found.head.incarnation
        return 0 if found is None else found.incarnation

    return life_of


def _never_lived(key: bytes) -> int:
    del key
    return 0


def pack_chunk(records: Sequence[bytes]) -> bytes:
    """Return the bytes of a chunk: CRC32C, raw length, LZ4 of a MessagePack list.

    Example:
        >>> unpack_chunk(pack_chunk([b"a", b"b"]), 0)
        [b'a', b'b']
    """
    return with_checksum(lz4_compress(_encode(records)))


def unpack_chunk(row: bytes, first_offset: int) -> list[bytes]:
    """Invert `pack_chunk`.

    Raises:
        CorruptDataError: the chunk is damaged.
    """
    packed = without_checksum(row, f"the log chunk at offset {first_offset}")
    try:
        return _decode(lz4_decompress(packed))
    except (msgspec.MsgspecError, Lz4Error, ValueError) as error:
        raise CorruptDataError(
            f"the log chunk at offset {first_offset} cannot be read: {error}"
        ) from error
