"""Fold the topic of turns into a new group beside the live one, by a worker of it."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from turnstate.schemas.errors import InvalidInputError, UnavailableError
from turnstate.streams.clock import SystemClock
from turnstate.streams.embedded.lock import OwnerLock
from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.connections import admin_client
from turnstate.streams.kafka.loops import run
from turnstate.streams.kafka.records import headers_of
from turnstate.streams.kafka.restore import RestoreProgress
from turnstate.streams.kafka.topic_ids import topic_id
from turnstate.streams.kafka.topic_reader import read_whole
from turnstate.streams.kafka.topics import Topics, create_topics
from turnstate.streams.kafka.worker import Worker
from turnstate.streams.settings import Settings

GROUPS_FOLDER: Final = "groups"
"""In the data folder: `groups/GROUP/INSTANCE/` are the workers of other groups."""

INSTANCE: Final = "replay"
"""The worker that a replay runs; the same name later goes on with its stores."""

STALL_S: Final = 120.0
"""Without any progress for so long, nobody folds; a restore is quicker."""

_LOOK_S: Final = 0.2


def beside(
    settings: Settings, cluster: ClusterSettings, group: str
) -> tuple[Settings, ClusterSettings]:
    """Return the settings of a worker of another group; its topics are made.

    Args:
        settings: Whose data folder holds the folder of the group.
        cluster: Of the live group; `group` may be that one.
        group: Its name.

    Raises:
        InvalidInputError: a group cannot be called so.
        NotFoundError: there is no topic of turns: there is nothing to fold.
        ConflictError: topics of the group differ from their plan.
        UnavailableError: no broker answers.
    """
    other = cluster.beside(group)
    if other is cluster:
        return settings, cluster
    # A group of its own makes no topic of turns: that would hide a wrong name.
    asyncio.run(topic_id(cluster, Topics.of(cluster).turns))
    asyncio.run(create_topics(other))
    return replace(settings, data=settings.data / GROUPS_FOLDER / group), other


def fold_into_group(
    settings: Settings,
    cluster: ClusterSettings,
    group: str,
    ends: Mapping[int, int],
    told: Callable[[int, int], None] | None = None,
) -> Path:
    """Run a worker of a group until it has folded the log up to some offsets.

    Args:
        settings: Whose data folder holds the folder of the group.
        cluster: Of the live group.
        group: Another one.
        ends: Partition → the offset after the last that has to be folded.
        told: Is told how many records are folded, of how many.

    Returns:
        The folder of the worker, whose stores hold the state.

    Raises:
        InvalidInputError: the group is the live one.
        TurnstateError: why the worker ended before that.
    """
    if group == cluster.group:
        raise InvalidInputError(
            f"{group!r} is the live group",
            field="group",
            hint="give the new one a name of its own",
        )
    mine, other = beside(settings, cluster, group)
    # Ports that are set are those of the live workers, perhaps of this machine.
    other = replace(other, query_port=0, metrics_port=0)
    folder = mine.data / INSTANCE
    lock = OwnerLock(folder)
    try:
        for name in ("faust", "mode"):
            logging.getLogger(name).setLevel(logging.ERROR)
        run(_UntilFolded(mine, other, ends, told).main())
    finally:
        lock.release()
    return folder


class _UntilFolded(Worker):
    """A worker that ends once its group has committed some offsets.

    Args:
        settings: Of the group.
        cluster: Of the group.
        ends: Partition → the offset that has to be committed.
        told: Is told of progress.
    """

    def __init__(
        self,
        settings: Settings,
        cluster: ClusterSettings,
        ends: Mapping[int, int],
        told: Callable[[int, int], None] | None,
    ) -> None:
        super().__init__(settings, cluster, INSTANCE, SystemClock(), _untold)
        self._ends = {number: end for number, end in ends.items() if end}
        self._folded_told = told

    async def main(self) -> None:
        """Run until it is folded.

        Raises:
            TurnstateError: why it ended before that.
        """
        watching = asyncio.create_task(
            until_committed(self.cluster, self._ends, self._folded_told)
        )
        watching.add_done_callback(lambda _: self._stop.set())
        try:
            await super().main()
        finally:
            if not watching.done():
                watching.cancel()
                await asyncio.wait([watching])
        if watching.cancelled():
            raise UnavailableError(
                "the replay was told to end before all was folded",
                field="group",
                hint=f"turnstate worker --group {self.cluster.group}"
                f" --instance {INSTANCE} goes on",
            )
        watching.result()


def _untold(_: RestoreProgress) -> None:
    """Show nothing: what is restored is folded already."""


async def until_committed(
    settings: ClusterSettings,
    ends: Mapping[int, int],
    told: Callable[[int, int], None] | None = None,
    *,
    stall_s: float = STALL_S,
) -> None:
    """Wait until a group has folded the log up to some offsets.

    Args:
        settings: Name the group.
        ends: Partition → the offset after the last.
        told: Is told how many records are folded, of how many.
        stall_s: How long nothing may move.

    Raises:
        UnavailableError: nothing moved for `stall_s` (code `no_progress`).
    """
    turns = Topics.of(settings).turns
    places = {TopicPartition(turns, each): end for each, end in ends.items() if end}
    total = sum(places.values())
    loop = asyncio.get_running_loop()
    best, moved = -1, loop.time()
    async with admin_client(settings) as admin:
        while places:
            done = 0
            try:
                found = await admin.list_consumer_group_offsets(
                    settings.group, partitions=list(places)
                )
                for place, end in places.items():
                    at = found[place].offset if place in found else -1
                    done += max(0, min(at, end))
            except (KafkaError, OSError, TimeoutError):
                done = best  # it may be away for a while
            if done > best:
                best, moved = done, loop.time()
                if told is not None:
                    told(done, total)
            if done >= total:
                return
            if loop.time() - moved > stall_s:
                raise UnavailableError(
                    f"no worker of the group {settings.group!r} moves: {max(done, 0)}"
                    f" of {total} records are folded",
                    field="worker",
                    hint="turnstate worker folds them",
                    code="no_progress",
                )
            await asyncio.sleep(_LOOK_S)


async def refused_by_reason(settings: ClusterSettings) -> dict[str, int]:
    """Return how many turns a group has refused, by reason, from its dead letters.

    Args:
        settings: Of the group.

    Raises:
        UnavailableError: no broker answers.
    """
    reasons: dict[tuple[str | None, ...], str] = {}
    async for record in read_whole(settings, Topics.of(settings).dead_letters):
        told = headers_of(record)
        if record.value is not None and "reason" in told:
            # A turn that was folded twice, after a crash, has two letters.
            place = tuple(told.get(name) for name in ("partition", "offset", "index"))
            reasons[place] = told["reason"]
    return dict(sorted(Counter(reasons.values()).items()))
