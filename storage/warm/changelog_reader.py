"""Read a changelog back into a store: its records, in the order of the topic."""

from typing import Final

from turnstate.storage.warm.batch import Batch
from turnstate.storage.warm.changelog_records import (
    CLEAR,
    CLEARED,
    DELETE,
    PUT,
    TABLES,
    Epoch,
    decode_record,
)
from turnstate.storage.warm.cold_rows import is_cold_row
from turnstate.storage.warm.rocksdb import WarmStore
from turnstate.storage.warm.tables import (
    HEADS,
    META,
    STORE_VERSION_COLD,
    VERSION_KEY,
)

_COLD_VERSION: Final = bytes([STORE_VERSION_COLD])


class ChangelogReader:
    """Apply records of a changelog to a store, in the order of the topic.

    Args:
        store: The partition's store.
        epoch: The greatest that the store has seen.

    One reader is for one batch.

    Attributes:
        epoch: The greatest that was seen.
        stale: Records of owners that had been replaced.
    """

    def __init__(self, store: WarmStore, epoch: Epoch) -> None:
        self.store = store
        self.epoch = epoch
        self.stale = 0
        self._put: dict[bytes, list[tuple[str, bytes]]] = {}

    def stage(self, batch: Batch, value: bytes | None) -> None:
        """Put the rows of a record into a batch; a tombstone says nothing new.

        What an owner wrote after another had taken over is left out.

        Raises:
            UnknownVersionError: a newer turnstate wrote it.
            CorruptDataError: it is no record of a changelog.
        """
        if value is None:
            return
        wire = decode_record(value)
        if wire.epoch < self.epoch:
            self.stale += 1
            return
        self.epoch = wire.epoch
        for how, place, key, row in wire.rows:
            if how == PUT:
                table = TABLES[place]
                # As it lies: what is encrypted goes on under the key it has.
                batch.put_stored(table, key, row)
                if table in CLEARED:
                    self._put.setdefault(_session_of(key), []).append((table, key))
                elif table == HEADS and is_cold_row(row):
                    batch.put(META, VERSION_KEY, _COLD_VERSION)
            elif how == CLEAR:
                self._clear(batch, key)
            elif how == DELETE:
                batch.delete(TABLES[place], key)
            else:
                batch.delete_range(TABLES[place], key, row)


    def _clear(self, batch: Batch, prefix: bytes) -> None:
        """Remove the rows of a life, those that are only in this batch, too.

        One deletion a row: with a range for each session every later seek has
        all those ranges to look through.
        """
        for table in CLEARED:
            for key, _ in self.store.stored_rows(table, prefix):
                batch.delete(table, key)
        session = _session_of(prefix)
        put = self._put.pop(session, [])
        for table, key in put:
            if key.startswith(prefix):
                batch.delete(table, key)
        rest = [each for each in put if not each[1].startswith(prefix)]
        if rest:
            self._put[session] = rest


def _session_of(row_key: bytes) -> bytes:
    """Return what all rows of a session start with, out of the key of one."""
    return row_key[: 2 + int.from_bytes(row_key[:2], "big")]
