"""Rounds of one partition whose topics are lists, without a broker."""

from collections.abc import Sequence
from typing import Any, Final

from aiokafka.structs import ConsumerRecord
from faust.types import TP

from support.changelogs import LOG, Owner
from support.told import turn
from turnstate.streams.kafka.metrics import WorkerMetrics
from turnstate.streams.kafka.rounds import Rounds
from turnstate.streams.kafka.topics import Topics
from turnstate.streams.kafka.transport import Chunk

TURNS: Final = TP("turns", 0)


def chunk(
    first: int, last: int, *, begin: int | None = None, session: str = "s"
) -> Chunk:
    """Return turns from the first to the last offset, fetched from `begin` on."""
    records: list[Any] = [
        ConsumerRecord(
            *TURNS, offset, 0, 0, None, turn(offset, session), None, 0, 0, ()
        )
        for offset in range(first, last + 1)
    ]
    return Chunk(TURNS, records, 1, first if begin is None else begin)


class RoundBench:
    """Keep what rounds send, and which chunks are done or read again.

    Args:
        owner: Of the partition.
    """

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self.owns = True
        self.sent: dict[str, list[Any]] = {}
        self.done: list[int] = []
        self.again: list[int] = []
        self.metrics = WorkerMetrics()

    def made_rounds(self, **more: Any) -> Rounds:
        """Return rounds of the partition that send to this."""
        return Rounds(
            sender=self,
            topics=Topics(),
            log=LOG,
            partition_of=lambda _: self.owner.partition,
            is_current=lambda generation: generation == 1,
            owns=lambda: self.owns,
            done=lambda each: self.done.append(each.last_offset),
            read_again=lambda each: self.again.append(each.begin),
            metrics=self.metrics,
            **more,
        )

    async def send_rows(
        self, topic: str, partition: int, rows: Sequence[Any]
    ) -> int | None:
        """Keep rows."""
        assert partition == 0
        kept = self.sent.setdefault(topic, [])
        kept += rows
        return len(kept) - 1 if rows else None
