"""Faust's table store over our own: one RocksDB a partition, opened as assigned."""

from collections.abc import Iterator
from typing import Any, Final, Protocol, cast

from faust.stores.base import SerializedStore
from faust.types import TP

from turnstate.storage.warm.tables import HEADS
from turnstate.streams.kafka.partition import Partition

SCHEME: Final = "turnstate-store"
"""Of table stores that take this driver (entry point `faust.stores`)."""


class Host(Protocol):
    """The application that a store runs in."""

    partitions: dict[int, Partition]


class StateStore(SerializedStore[bytes, bytes]):
    """Show the heads of all assigned partitions as a table: key → row of the head.

    Faust asks it where each partition's changelog is persisted. It is written
    by checkpoints alone, in whole batches (`checkpoint.py`), and restored by
    `restore.py`; a table write from elsewhere is a mistake.
    """

    @property
    def partitions(self) -> dict[int, Partition]:
        """Return the partitions that are assigned to this worker."""
        return cast("Host", self.app).partitions

    def persisted_offset(self, tp: TP) -> int | None:
        """Return the offset of the changelog record that was applied last."""
        partition = self.partitions.get(tp.partition)
        if partition is None or partition.applied.offset < 0:
            return None
        return partition.applied.offset

    def set_persisted_offset(self, tp: TP, offset: int) -> None:
        """Do nothing: the offset is in the batch of the rows that came with it."""

    def apply_changelog_batch(
        self, batch: Any, to_key: object, to_value: object
    ) -> None:
        """Do nothing: the batch loop has read all that counts.

        Faust may still read what an owner that was replaced wrote after it.
        """

    def _get(self, key: bytes) -> bytes | None:
        for partition in self.partitions.values():
            row = partition.store.get(HEADS, key)
            if row is not None:
                return row
        return None

    def _set(self, key: bytes, value: bytes | None) -> None:
        raise TypeError("the state is written by checkpoints, not as a table")

    def _del(self, key: bytes) -> None:
        raise TypeError("the state is written by checkpoints, not as a table")

    def _clear(self) -> None:
        raise TypeError("the state is written by checkpoints, not as a table")

    def _iteritems(self) -> Iterator[tuple[bytes, bytes]]:
        for partition in self.partitions.values():
            yield from partition.store.rows(HEADS)

    def _iterkeys(self) -> Iterator[bytes]:
        return (key for key, _ in self._iteritems())

    def _itervalues(self) -> Iterator[bytes]:
        return (row for _, row in self._iteritems())

    def _size(self) -> int:
        return sum(each.store.rows_about(HEADS) for each in self.partitions.values())

    def _contains(self, key: bytes) -> bool:
        return self._get(key) is not None

    def reset_state(self) -> None:
        """Do nothing: what is on the disk is the state."""

    async def backup_partition(
        self,
        tp: TP | int,
        flush: bool = True,
        purge: bool = False,
        keep: int = 1,
    ) -> None:
        """Refuse: the changelog is the copy, and backups are not Faust's."""
        raise TypeError("a partition is rebuilt from its changelog, not a backup")

    def restore_backup(
        self,
        tp: TP | int,
        latest: bool = True,
        backup_id: int = 0,
    ) -> None:
        """Refuse, as `backup_partition`."""
        raise TypeError("a partition is rebuilt from its changelog, not a backup")
