"""What one session's change writes, as one record of a changelog."""

import hashlib
from collections.abc import Iterator
from typing import Final

import msgspec

from turnstate.schemas.errors import CorruptDataError, UnavailableError
from turnstate.schemas.ids import turn_id_hash
from turnstate.schemas.operation import Op
from turnstate.storage.frames.chain import link_of
from turnstate.storage.seal import Sealed, ids_named
from turnstate.storage.session_image import SessionImage
from turnstate.storage.tier import SessionChange
from turnstate.storage.warm.batch import Batch
from turnstate.storage.warm.changelog_records import (
    CLEAR,
    CLEARED,
    COLD_KIND,
    DELETE,
    DELETE_RANGE,
    ERASE_KIND,
    ERASING_KIND,
    FRAME_KIND,
    KEY_SET_KIND,
    MARK_KIND,
    PLACE,
    PUT,
    SEGMENT_KIND,
    WOKEN_KIND,
    Epoch,
    Row,
    RowRecord,
    encode,
    encode_rows,
    key_record,
    key_record_key,
    record_of,
)
from turnstate.storage.warm.cold_rows import (
    ColdHead,
    decode_cold_head,
    encode_cold_head,
    is_cold_row,
)
from turnstate.storage.warm.erase_marks import ERASED_KEY
from turnstate.storage.warm.rocksdb import WarmStore
from turnstate.storage.warm.tables import (
    FRAMES,
    HEADS,
    INDEX,
    KEYS,
    META,
    SEGMENTS,
    VERSION_BYTES,
    aside_key,
    id_key,
    life_prefix,
    session_prefix,
    version_key,
)

PART_BYTES: Final = 2 << 20
"""Of the rows of a session that comes back in one record; a segment that is
larger goes alone."""

REWRITTEN_BYTES_MAX: Final = 12 << 20
"""Of a session that is written anew: it has to be whole in one record."""

KEY_SET_KEY: Final = b"key_set"
"""Row of the store: the id of the set of keys that its data keys are wrapped by."""

POSITION_KEY: Final = b"position"
"""Row of the store: offset and index that were folded last, and of which log."""

_LINK_BYTES: Final = 8
"""Of a frame's chain link, enough to tell two owners' frames of a version apart."""

_WOKEN_KEY: Final = b"woken\0"
"""Rows of the store, behind it a session key: the records that it came back by,
to be buried when it goes again."""

_decode_keys: Final = msgspec.msgpack.Decoder(list[bytes]).decode


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

    A session that goes to the cold tier is one record: all its rows go, by a
    word in place of one deletion a row, and a pointer stands where its head
    was. It comes back in records of bounded size, its head in the last: until
    that one is read the pointer counts, and a session that is read half is
    cold (docs/decisions/0014-cold-sessions-in-the-changelog.md).

    Args:
        store: The partition's store.
        epoch: Of the owner.

    Attributes:
        key_records: Data keys by id, to send before anything that needs them.
        row_records: What sessions are, to send in order.
        tombstones: To send after those, by who is certainly the owner still.
    """

    def __init__(self, store: WarmStore, epoch: Epoch) -> None:
        super().__init__(store.handles, store.log_name, store.row_cipher)
        self.key_records: dict[bytes, RowRecord] = {}
        self.row_records: list[RowRecord] = []
        self.tombstones: list[RowRecord] = []
        self._store = store
        self._epoch = epoch
        self._rows: list[Row] = []

    @property
    def records(self) -> list[RowRecord]:
        """Return what is to be sent, in order."""
        return [*self.key_records.values(), *self.row_records]

    def put_stored(self, table: str, key: bytes, row: bytes) -> None:
        """Set one row as it lies; as it lies it goes into the changelog, too."""
        super().put_stored(table, key, row)
        self._rows.append((PUT, PLACE[table], key, row))

    def put_key(self, key_id: bytes, row: bytes) -> None:
        """Set the row of a data key: one record, and a tombstone for the one before."""
        super().put_key(key_id, row)
        self.key_records[key_id] = key_record(self._epoch, key_id, row)
        before = self._store.stored(KEYS, key_id)
        if before is not None and before != row:
            old = key_record_key(key_id, before)
            self.tombstones.append(RowRecord(old, None))

    def delete(self, table: str, key: bytes) -> None:
        """Remove one row."""
        super().delete(table, key)
        self._rows.append((DELETE, PLACE[table], key, b""))

    def delete_range(self, table: str, start: bytes, end: bytes) -> None:
        """Remove the rows from `start` to below `end`."""
        super().delete_range(table, start, end)
        self._rows.append((DELETE_RANGE, PLACE[table], start, end))

    def stage(self, change: SessionChange) -> None:
        """Put in one session's change, and its record."""
        super().stage(change)
        after = change.after
        prefix = life_prefix(change.key, after.head.incarnation)
        ranges: list[Row] = []
        if change.erased:
            self._bury(change.key, self.row_records)
            self._forget_woken(change.key)
            ranges = [row for row in self._rows if row[0] != PUT]
        if change.frame is not None:
            # What came after an erase goes with a seal; the erase stays.
            if change.erased:
                self._rows = [row for row in self._rows if row[0] == PUT]
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
            self._rows.append((PUT, PLACE[INDEX], key, row))
        at = version_key(prefix, after.sealed_version)
        self._end(_key(SEGMENT_KIND, at, after.segment_link))

    def stage_cooled(self, image: SessionImage, cold: ColdHead) -> None:
        """Put in that a session went to the cold tier: one record, and tombstones."""
        super().stage_cooled(image, cold)
        prefix = life_prefix(image.key, image.incarnation)
        self._bury(image.key, self.tombstones)
        # One word in the place of all deletions: it stays as long as it is cold.
        self._rows = [(CLEAR, 0, prefix, b"")]
        self._forget_woken(image.key)
        self._rows.append((PUT, PLACE[HEADS], image.key, encode_cold_head(cold)))
        self._end(_cold_key(image.key, cold))

    def stage_pointed(self, key: bytes, before: ColdHead, after: ColdHead) -> None:
        """Put in that a cold session lies elsewhere: one record, and a tombstone."""
        super().stage_pointed(key, before, after)
        prefix = life_prefix(key, after.incarnation)
        self._rows.insert(0, (CLEAR, 0, prefix, b""))
        self._end(_cold_key(key, after))
        self.tombstones.append(RowRecord(_cold_key(key, before), None))

    def stage_image(self, image: SessionImage) -> None:
        """Put in that a cold session came back: records, and a tombstone.

        What an earlier try has left half is cleared by the first of them.
        """
        row = self._store.stored(HEADS, image.key)
        super().stage_image(image)
        prefix = life_prefix(image.key, image.incarnation)
        rows, self._rows = self._rows, []
        assert rows[-1][1] == PLACE[HEADS], "the head comes last"
        begin = len(self.row_records)
        size = 0
        self._rows.append((CLEAR, 0, prefix, b""))
        for row_told in rows[:-1]:
            if size and size + len(row_told[3]) > PART_BYTES:
                self._end_part(prefix, len(self.row_records) - begin)
                size = 0
            self._rows.append(row_told)
            size += len(row_told[2]) + len(row_told[3])
        keys = [each.key for each in self.row_records[begin:]]
        keys.append(self._part_key(prefix, len(keys)))
        self.put(META, _WOKEN_KEY + image.key, encode(keys))
        self._rows.append(rows[-1])
        self._end(keys[-1])
        if row is not None and is_cold_row(row):
            cold = decode_cold_head(row)
            self.tombstones.append(RowRecord(_cold_key(image.key, cold), None))

    def _end_part(self, prefix: bytes, number: int) -> None:
        self._end(self._part_key(prefix, number))

    def _part_key(self, prefix: bytes, number: int) -> bytes:
        """Return the key of a part: of this owner, who brings it back once."""
        return WOKEN_KIND + prefix + number.to_bytes(4, "big") + self._epoch.key(b"")

    def stage_rewritten(self, image: SessionImage) -> None:
        """Put in a session out of which text was taken: one record, and tombstones.

        One, so that no beginning of a changelog has half of it: its head stands
        already, and would have no rows.

        Raises:
            UnavailableError: it is more than one record may hold.
        """
        prefix = life_prefix(image.key, image.incarnation)
        self._bury(image.key, self.tombstones)
        for table in CLEARED:
            for at, _ in self._store.stored_rows(table, prefix):
                super().delete(table, at)
        self._rows.append((CLEAR, 0, prefix, b""))
        super().stage_image(image)
        self._forget_woken(image.key)
        at = version_key(prefix, image.version)
        self._end(_key(SEGMENT_KIND, at, link_of(image.frames[-1])))
        made = self.row_records[-1].value or b""
        if len(made) > REWRITTEN_BYTES_MAX:
            raise UnavailableError(
                f"the session takes {len(made)} bytes, more than one record may hold",
                hint="what was redacted is shown to nobody; its bytes stay",
                code="too_long_to_rewrite",
            )

    def stage_erasing(self, key: bytes, mark: bytes) -> None:
        """Put in how far the erase of a session has come."""
        self.put(META, ERASED_KEY + key, mark)
        self._end(ERASING_KIND + session_prefix(key) + self._epoch.key(b""))

    def stage_key_set(self, set_id: bytes) -> None:
        """Put in which set of keys wraps the data keys."""
        self.put(META, KEY_SET_KEY, set_id)
        self._end(self._epoch.key(KEY_SET_KIND))

    def mark(self, offset: int, index: int, log: bytes = b"") -> None:
        """Say up to where a log is folded."""
        row = encode((offset, index, log))
        self.put(META, POSITION_KEY, row)
        self._end(self._epoch.key(MARK_KIND))

    def _end(self, key: bytes) -> None:
        self.row_records.append(RowRecord(key, encode_rows(self._epoch, self._rows)))
        self._rows = []

    def _bury(self, key: bytes, into: list[RowRecord]) -> None:
        """Add tombstones for every record that a session has."""
        prefix = session_prefix(key)
        for kind, table in ((FRAME_KIND, FRAMES), (SEGMENT_KIND, SEGMENTS)):
            for at, row in self._store.rows(table, prefix):
                into.append(RowRecord(_key(kind, at, link_of(row)), None))
        into += [RowRecord(part, None) for part in woken_parts(self._store, key)]

    def _forget_woken(self, key: bytes) -> None:
        if self._store.get(META, _WOKEN_KEY + key) is not None:
            self.delete(META, _WOKEN_KEY + key)

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


def _key(kind: bytes, at: bytes, link: bytes) -> bytes:
    return kind + at + link[:_LINK_BYTES]


def _cold_key(key: bytes, cold: ColdHead) -> bytes:
    """Return the key of the record of one copy: no other copy has it."""
    at = version_key(life_prefix(key, cold.incarnation), cold.version)
    where = f"{cold.pointer.pack} {cold.pointer.offset}".encode()
    told = hashlib.blake2b(where, digest_size=_LINK_BYTES, usedforsecurity=False)
    return COLD_KIND + at + told.digest()


def is_needed(store: WarmStore, record_key: bytes) -> bool:
    """Say whether a record of the changelog brings rows that a store has.

    Whatever brings none of them may be buried: frames that were sealed, what a
    replaced owner wrote, lives that are over.

    Args:
        store: Of the partition, with all that its owner has sent applied.
        record_key: The key of the record.
    """
    about = record_of(record_key)
    if about is None:
        return True
    prefix = life_prefix(about.session, about.incarnation)
    rest = record_key[1:]
    if about.kind == WOKEN_KIND:
        return record_key in woken_parts(store, about.session)
    if about.kind == COLD_KIND:
        (found,) = store.located([about.session])
        return isinstance(found, ColdHead) and record_key == _cold_key(
            about.session, found
        )
    table = FRAMES if about.kind == FRAME_KIND else SEGMENTS
    at = rest[: len(prefix) + VERSION_BYTES]
    row = store.get(table, at)
    return row is not None and record_key == _key(about.kind, at, link_of(row))


def woken_parts(store: WarmStore, key: bytes) -> list[bytes]:
    """Return the keys of the records by which a session came back.

    Raises:
        CorruptDataError: the row that says so is damaged.
    """
    row = store.get(META, _WOKEN_KEY + key)
    try:
        return [] if row is None else _decode_keys(row)
    except msgspec.MsgspecError as error:
        raise CorruptDataError(f"the row {_WOKEN_KEY!r}: {error}") from error


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
