"""What one session's change writes, as one record of a changelog, and back."""

from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from turnstate.schemas.errors import CorruptDataError, UnknownVersionError
from turnstate.schemas.ids import turn_id_hash
from turnstate.schemas.operation import Op
from turnstate.storage.frames.chain import link_of
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
OWNER_KIND: Final = b"O"
"""An owner begins: what an earlier one writes behind this record is void."""

MARK_KIND: Final = b"M"
"""Up to where an owner has folded the log; its record is written over."""

_LINK_BYTES: Final = 8
"""Of a frame's chain link, enough to tell two owners' frames of a version apart."""

POSITION_KEY: Final = b"position"
"""Row of the store: offset and index that were folded last, and of which log."""

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

    def key(self, kind: bytes) -> bytes:
        """Return the key of a record that each owner has one of."""
        owner = self.number.to_bytes(8, "big") + self.generation.to_bytes(8, "big")
        return kind + owner


class RowRecord(NamedTuple):
    """A record of a changelog: its key, and its value or None for a tombstone."""

    key: bytes
    value: bytes | None


class _Wire(msgspec.Struct, array_like=True, frozen=True, gc=False):
    version: int
    epoch: Epoch
    rows: list[tuple[int, int, bytes, bytes]]


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Wire).decode


class ChangelogBatch(Batch):
    """A batch that also says what it writes, one record a session.

    All rows of a change travel in one record, the head among them, so any
    beginning of a changelog is a state in which every session is whole.

    An owner that was replaced may not know it yet, and readers leave out what
    it writes; compaction does not, it keeps the last record of a key. So a key
    names session, version and the chain link of what the record brings, which
    no other owner's record has, or the owner itself. For the same reason the
    tombstones of a seal are apart: they are sent once it is known that the
    seal is an owner's.

    Args:
        store: The partition's store.
        epoch: Of the owner.

    Attributes:
        records: To send, in order.
        tombstones: To send after those, by who is certainly the owner still.
    """

    def __init__(self, store: WarmStore, epoch: Epoch) -> None:
        super().__init__(store.handles, store.log_name)
        self.records: list[RowRecord] = []
        self.tombstones: list[RowRecord] = []
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
        after = change.after
        prefix = life_prefix(change.key, after.head.incarnation)
        ranges: list[tuple[int, int, bytes, bytes]] = []
        if change.erased:
            self._bury(change.key)
            ranges = [row for row in self._rows if row[0] == _DELETE_RANGE]
        if change.frame is not None:
            # What came after an erase goes with a seal; the erase stays.
            self._rows = [row for row in self._rows if row[0] != _DELETE_RANGE]
            at = version_key(prefix, after.head.version)
            self._end(_key(FRAME_KIND, at, after.link))
            self._rows = ranges
        if change.erased:
            self._end(ERASE_KIND + prefix + self._epoch.key(b""))

    def stage_seal(self, sealed: Sealed) -> None:
        """Put in a seal: one record, and tombstones for what it replaces.

        The index entries of the sealed turns go along: their own records end
        with the frames.
        """
        super().stage_seal(sealed)
        after = sealed.after
        prefix = life_prefix(sealed.key, after.head.incarnation)
        for version in sealed.replaced:
            at = version_key(prefix, version)
            frame = self._store.get(FRAMES, at)
            if frame is not None:
                self.tombstones.append(
                    RowRecord(_key(FRAME_KIND, at, link_of(frame)), None)
                )
        for key, row in self._entries(sealed, prefix):
            self._rows.append((_PUT, _PLACE[INDEX], key, row))
        at = version_key(prefix, after.sealed_version)
        self._end(_key(SEGMENT_KIND, at, after.segment_link))

    def mark(self, offset: int, index: int, log: bytes = b"") -> None:
        """Say up to where a log is folded."""
        row = _encode((offset, index, log))
        self.put(META, POSITION_KEY, row)
        self._end(self._epoch.key(MARK_KIND))

    def _end(self, key: bytes) -> None:
        wire = _Wire(RECORD_VERSION, self._epoch, self._rows)
        self.records.append(RowRecord(key, _encode(wire)))
        self._rows = []

    def _bury(self, key: bytes) -> None:
        """Add tombstones for every record that an erased session has."""
        prefix = session_prefix(key)
        for kind, table in ((FRAME_KIND, FRAMES), (SEGMENT_KIND, SEGMENTS)):
            for at, row in self._store.rows(table, prefix):
                self.records.append(RowRecord(_key(kind, at, link_of(row)), None))

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


def owner_record(epoch: Epoch) -> RowRecord:
    """Return the first record of an owner, behind which earlier ones are void.

    It is never written over: as long as it stands, whatever an earlier owner
    wrote behind it can be told apart, however the topic is compacted.
    """
    wire = _Wire(RECORD_VERSION, epoch, [])
    return RowRecord(epoch.key(OWNER_KIND), _encode(wire))


def _key(kind: bytes, at: bytes, link: bytes) -> bytes:
    return kind + at + link[:_LINK_BYTES]


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
        if wire.epoch < self.epoch:
            self.stale += 1
            return
        self.epoch = wire.epoch
        for how, place, key, row in wire.rows:
            if how == _PUT:
                batch.put(_TABLES[place], key, row)
            elif how == _DELETE:
                batch.delete(_TABLES[place], key)
            else:
                batch.delete_range(_TABLES[place], key, row)


def folded_position(
    store: WarmStore, log: bytes | None = None
) -> tuple[int, int] | None:
    """Return (offset, index) of the record that a partition's store folded last.

    Args:
        store: The store.
        log: Only of this log: the offsets of one that was made anew begin anew.

    Raises:
        CorruptDataError: the row is damaged.
    """
    row = store.meta(POSITION_KEY)
    if row is None:
        return None
    try:
        offset, index, of_log = msgspec.msgpack.decode(row, type=tuple[int, int, bytes])
    except msgspec.MsgspecError as error:
        raise CorruptDataError(f"the row {POSITION_KEY!r}: {error}") from error
    return (offset, index) if log in (None, of_log) else None
