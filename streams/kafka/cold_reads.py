"""Reads of a worker's cold sessions: a few at a time, each within its time."""

import threading
from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from turnstate.schemas.errors import UnavailableError
from turnstate.storage.warm.cold_rows import ColdHead
from turnstate.streams.expiry import Expiry
from turnstate.streams.kafka.fresh import Fresh
from turnstate.streams.kafka.partition import Partition
from turnstate.streams.kafka.partition_reader import ColdReader
from turnstate.streams.reading import StoreReader

COLD_READS_AT_ONCE: Final = 8
"""Reads that wait for the cold tier; they take nothing from the fold meanwhile."""

_Read = TypeVar("_Read")


class Cold(NamedTuple):
    """A cold session as a reader found it.

    Attributes:
        partition: Whose it is.
        epoch: Of the partition then.
        cold: Its pointer.
        reflects: The log position that the partition reflected.
    """

    partition: Partition
    epoch: object
    cold: ColdHead
    reflects: str


def cold_of(fresh: Fresh, key: bytes) -> Cold | None:
    """Return where a session lies, None where it is not cold."""
    partition = fresh.partition
    if not partition.store.knows_cold or partition.hot.peek(key) is not None:
        return None
    (found,) = partition.store.located([key])
    if not isinstance(found, ColdHead):
        return None
    return Cold(partition, partition.epoch, found, fresh.reflects)


class ColdReads:
    """Read cold sessions while nothing of their partition is held.

    Args:
        expiry: Says what is served no more.
    """

    def __init__(self, expiry: Expiry) -> None:
        self._expiry = expiry
        self._turn = threading.BoundedSemaphore(COLD_READS_AT_ONCE)

    def read(self, cold: Cold, read: Callable[[StoreReader], _Read]) -> _Read:
        """Return what `read` makes of a cold session.

        Raises:
            UnavailableError: no cold tier is configured here, or it is away; or
                it did not answer in the time that a read has (`OneRead`), in
                which waiting for other reads counts.
        """
        partition = cold.partition
        below = partition.below
        if below is None:
            raise UnavailableError(
                "the session is cold, and the cold tier is not configured here",
                hint="set `cold`, or [s3] in cluster.toml, to where its packs are",
                code="cold_away",
            )
        if not self._turn.acquire(timeout=below.left_s()):
            raise below.too_slow()
        try:
            return read(ColdReader(partition, cold.cold, below, self._expiry))
        finally:
            self._turn.release()
