"""Partitions that may be read: this worker's, restored, and that all the while."""

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final, NamedTuple, Protocol

from turnstate.schemas.errors import UnavailableError
from turnstate.streams.embedded.events import START
from turnstate.streams.expiry import NEVER, Expiry
from turnstate.streams.kafka.membership import MembershipLease
from turnstate.streams.kafka.partition import Partition
from turnstate.streams.kafka.partition_reader import PartitionReader
from turnstate.streams.kafka.read_gate import GateShutError
from turnstate.streams.kafka.restore import RestoreProgress

READS_AT_ONCE: Final = 2
"""More wait: each takes its share of the interpreter from the fold."""

WAIT_S: Final = 10.0
"""How long a read waits for its turn."""

SLICE_S: Final = 0.5
"""After that a page of a long read ends, however short it is."""


class Owner(Protocol):
    """Who knows the partitions of a worker: its application."""

    partitions: dict[int, Partition]
    membership: MembershipLease
    restoring: RestoreProgress | None


class Fresh(NamedTuple):
    """A partition that may be read, and the log position that it reflects."""

    partition: Partition
    reader: PartitionReader
    reflects: str
    until: float

    def is_over(self) -> bool:
        """Say whether a page has to end: it took its time, or the store closes."""
        return time.monotonic() > self.until or not self.partition.is_fresh


class FreshPartitions:
    """Give partitions to readers in any thread, a few at a time.

    Args:
        owner: Knows the partitions.
        log: The 16 bytes of the topic id of turns, for positions.
        expiry: Says what is served no more.
    """

    def __init__(self, owner: Owner, log: bytes, expiry: Expiry = NEVER) -> None:
        self.owner = owner
        self.log = log
        self.expiry = expiry
        self._turn = threading.BoundedSemaphore(READS_AT_ONCE)

    @contextmanager
    def fresh(self, number: int) -> Generator[Fresh]:
        """Give a partition that is this worker's, before and after it is read.

        Raises:
            UnavailableError: it is elsewhere (`not_here`), or not ready
                (`not_fresh`), or too many ask (`busy`).
        """
        if not self._turn.acquire(timeout=WAIT_S):
            raise UnavailableError(
                "the worker has too many reads to do",
                hint="ask again in a moment",
                code="busy",
            )
        try:
            partition = self.partition(number)
            with partition.gate.reading():
                self.check_fresh(partition)
                epoch = partition.epoch
                found = Fresh(
                    partition,
                    PartitionReader(partition, self.expiry),
                    self.token(partition),
                    time.monotonic() + SLICE_S,
                )
                try:
                    yield found
                finally:
                    # What it found may be a store in the middle of a restore,
                    # so this error stands in the place of any other.
                    self.check_fresh(partition)
                    if partition.epoch != epoch:
                        raise self._not_fresh(number)
        except GateShutError:
            raise self._not_fresh(number) from None
        finally:
            self._turn.release()

    def partition(self, number: int) -> Partition:
        """Return a partition of this worker, ready or not.

        Raises:
            UnavailableError: it is elsewhere (`not_here`).
        """
        partition = self.owner.partitions.get(number)
        if partition is None:
            raise UnavailableError(
                f"partition {number} is not this worker's",
                field="partition",
                hint="ask the worker that the group's metadata name now",
                code="not_here",
            )
        return partition

    def check_fresh(self, partition: Partition) -> None:
        """Make sure that a partition may be read.

        Raises:
            UnavailableError: not now (`not_fresh`).
        """
        if not self.is_fresh(partition):
            raise self._not_fresh(partition.number)

    def is_fresh(self, partition: Partition) -> bool:
        """Say whether a partition is this worker's, certainly, and restored."""
        return (
            partition.is_fresh
            and self.owner.membership.holds
            and self.owner.partitions.get(partition.number) is partition
        )

    def _not_fresh(self, number: int) -> UnavailableError:
        progress = self.owner.restoring
        if progress is None:
            what = f"partition {number} is being handed over"
        else:
            share = 100 * progress.done // max(progress.total, 1)
            what = f"partition {number} is being restored, {share} % done"
        return UnavailableError(
            what, field="partition", hint="ask again in a moment", code="not_fresh"
        )

    def token(self, partition: Partition) -> str:
        """Return the position of the log that a partition reflects."""
        folded = partition.folded
        if folded is None:
            return START
        return f"{self.log.hex()}:{partition.number}:{folded[0]}"
