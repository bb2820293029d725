"""What one session's change writes, as one record of a changelog, and back."""

from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from turnstate.schemas.errors import CorruptDataError, UnknownVersionError
from turnstate.schemas.ids import turn_id_hash
from turnstate.schemas.operation import Op
from turnstate.storage.seal import Sealed, ids_named
from turnstate.storage.tier import SessionChange
from turnstate.storage.warm.rocksdb import Batch, WarmStore
from turnstate.storage.warm.tables import (
    FRAMES,
    HEADS,
    INDEX,
    META,
    SEGMENTS,
    aside_key,
    id_key,
    life_prefix,
    session_prefix,
    version_key,
)

RECORD_VERSION: Final = 1
"""Form of a record; a higher one was written by a newer turnstate."""

FRAME_KIND: Final = b"F"
SEGMENT_KIND: Final = b"S"
ERASE_KIND: Final = b"E"
MARK_KEY: Final = b"M"
"""Key of the record that says up to where a partition is folded."""

POSITION_KEY: Final = b"position"
"""Row of the store: offset and index of the log that were folded last."""

_TABLES: Final = (HEADS, FRAMES, SEGMENTS, INDEX, META)
_PLACE: Final = {table: place for place, table in enumerate(_TABLES)}
_PUT, _DELETE, _DELETE_RANGE = 0, 1, 2


class Epoch(NamedTuple):
    """Who writes a changelog: a later owner has a greater one.

    Attributes:
        number: One more than the greatest that was read from the changelog.
        generation: Of the consumer group, where two have the same number.
    """

    number: int
    generation: int


class RowRecord(NamedTuple):
    """A record of a changelog: its key, and its value or None for a tombstone."""

    key: bytes
    value: bytes | None


class _Wire(msgspec.Struct, array_like=True, frozen=True, gc=False):
    version: int
    epoch: tuple[int, int]
    rows: list[tuple[int, int, bytes, bytes]]


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Wire).decode


class ChangelogBatch(Batch):
    """A batch that also says what it writes, one record a session.

    All rows of a change travel in one record, the head among them, so any
    beginning of a changelog is a state in which every session is whole. The
    key names session and version and is never used for anything else: a
    record of an owner that was replaced cannot take the place of a newer one
    when the topic is compacted.

    Args:
        store: The partition's store.
        epoch: Of the owner.
    """

    def __init__(self, store: WarmStore, epoch: Epoch) -> None:
        super().__init__(store.handles, store.log_name)
        self.records: list[RowRecord] = []
        self._store = store
        self._epoch = epoch
        self._rows: list[tuple[int, int, bytes, bytes]] = []

    def put(self, table: str, key: bytes, row: bytes) -> None:
        """Set one row."""
        super().put(table, key, row)
        self._rows.append((_PUT, _PLACE[table], key, row))

    def put_local(self, table: str, key: bytes, row: bytes) -> None:
        """Set one row of this store alone."""
        super().put(table, key, row)

    def delete(self, table: str, key: bytes) -> None:
        """Remove one row."""
        super().delete(table, key)
        self._rows.append((_DELETE, _PLACE[table], key, b""))

    def delete_range(self, table: str, start: bytes, end: bytes) -> None:
        """Remove the rows from `start` to below `end`."""
        super().delete_range(table, start, end)
        self._rows.append((_DELETE_RANGE, _PLACE[table], start, end))

    def stage(self, change: SessionChange) -> None:
        """Put in one session's change, and its record."""
        super().stage(change)
        prefix = life_prefix(change.key, change.after.head.incarnation)
        kind = FRAME_KIND
        if change.erased:
            kind = ERASE_KIND
            self._bury(change.key)
        self._end(kind + version_key(prefix, change.after.head.version))

    def stage_seal(self, sealed: Sealed) -> None:
        """Put in a seal: tombstones for what it replaces, one record for the rest.

        The index entries of the sealed turns go along: their own records end
        with the frames.
        """
        super().stage_seal(sealed)
        prefix = life_prefix(sealed.key, sealed.after.head.incarnation)
        for version in sealed.replaced:
            at = FRAME_KIND + version_key(prefix, version)
            self.records.append(RowRecord(at, None))
        for key, row in self._entries(sealed, prefix):
            self._rows.append((_PUT, _PLACE[INDEX], key, row))
        self._end(SEGMENT_KIND + version_key(prefix, sealed.after.sealed_version))

    def mark(self, offset: int, index: int) -> None:
        """Say up to where the log is folded."""
        row = _encode((offset, index))
        self.put(META, POSITION_KEY, row)
        self._end(MARK_KEY)

    def _end(self, key: bytes) -> None:
        wire = _Wire(RECORD_VERSION, tuple(self._epoch), self._rows)
        self.records.append(RowRecord(key, _encode(wire)))
        self._rows = []

    def _bury(self, key: bytes) -> None:
        """Add tombstones for every record that an erased session has."""
        prefix = session_prefix(key)
        for kind, table in ((FRAME_KIND, FRAMES), (SEGMENT_KIND, SEGMENTS)):
            for at, _ in self._store.rows(table, prefix):
                self.records.append(RowRecord(kind + at, None))

    def _entries(self, sealed: Sealed, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the index rows that came with the frames which a seal replaces."""
        version = sealed.before.sealed_version
        for record in sealed.records:
            version += 1
            op = Op.decode(record)
            for name in ids_named(op):
                at = id_key(prefix, turn_id_hash(name))
                row = self._store.get(INDEX, at)
                if row is not None:
                    yield at, row
            if op.body.op in ("edit", "redact"):
                yield aside_key(prefix, version), b""


class ChangelogReader:
    """Apply records of a changelog to a store, in the order of the topic.

    Args:
        store: The partition's store.
        epoch: The greatest that the store has seen.
    """

    def __init__(self, store: WarmStore, epoch: Epoch) -> None:
        self.store = store
        self.epoch = epoch
        self.stale = 0

    def stage(self, batch: Batch, value: bytes | None) -> None:
        """Put the rows of a record into a batch; a tombstone says nothing new.

        What an owner wrote after another had taken over is left out.

        Raises:
            UnknownVersionError: a newer turnstate wrote it.
            CorruptDataError: it is no record of a changelog.
        """
        if value is None:
            return
        try:
            wire = _decode(value)
        except (msgspec.MsgspecError, ValueError) as error:
            raise CorruptDataError(f"a changelog record: {error}") from error
        if wire.version > RECORD_VERSION:
            raise UnknownVersionError(
                f"the changelog has records of version {wire.version}",
                hint="use a newer turnstate",
            )
        epoch = Epoch(*wire.epoch)
        if epoch < self.epoch:
            self.stale += 1
            return
        self.epoch = epoch
        for how, place, key, row in wire.rows:
            if how == _PUT:
                batch.put(_TABLES[place], key, row)
            elif how == _DELETE:
                batch.delete(_TABLES[place], key)
            else:
                batch.delete_range(_TABLES[place], key, row)


def folded_position(store: WarmStore) -> tuple[int, int] | None:
    """Return (offset, index) of the record that a partition's store folded last."""
    row = store.meta(POSITION_KEY)
    if row is None:
        return None
    offset, index = msgspec.msgpack.decode(row, type=tuple[int, int])
    return offset, index
