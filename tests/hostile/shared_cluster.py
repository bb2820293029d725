"""One worker on a Kafka and a Redis, which all hostile cases of a process share."""

import asyncio
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import uuid4

import msgspec

from support.cluster import Cluster, Sent, WorkerProcess, cluster_on
from turnstate.schemas.errors import UnavailableError
from turnstate.schemas.ids import SessionName
from turnstate.storage.hot.redis import RedisTier
from turnstate.storage.hot.redis_sweep import SweepReport
from turnstate.storage.stored_head import StoredHead
from turnstate.streams.clock import SystemClock
from turnstate.streams.kafka.cluster_reader import ClusterReader
from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.delta_records import Delta, delta_of
from turnstate.streams.kafka.erase_queries import Found
from turnstate.streams.kafka.hot_settings import redis_settings
from turnstate.streams.kafka.letter_records import KeptLetter, kept_letter
from turnstate.streams.kafka.producer import TurnProducer
from turnstate.streams.kafka.sync_producer import LoopThread
from turnstate.streams.kafka.topic_ids import topic_id
from turnstate.streams.kafka.topic_reader import TopicReader, places_of, topic_reader

TTL_S: Final = 3
"""How long hot keeps a session: a case waits until that is over."""

WAIT_S: Final = 30.0

TOLD: Final = {
    "TURNSTATE_COMMIT_INTERVAL_MS": "5",
    "TURNSTATE_CHUNK_TURNS_MAX": "50",
    "TURNSTATE_HOT_TTL_S": str(TTL_S),
    "TURNSTATE_HOT_TIMEOUT_MS": "1000",
}
"""Each case waits for each fold; and what is one fetch is many changelog batches."""


class Place(NamedTuple):
    """Where a turn lies in the one partition."""

    offset: int
    at: int


class Outcome(NamedTuple):
    """What came out of the topics that a worker writes."""

    letters: list[KeptLetter]
    frames: list[Delta]


@dataclass
class SharedCluster:
    """Topics of one partition, the worker that has it, and who asks them.

    One partition: dead letters are in the order of the log. Cases come one after
    another, so what the topics get between two looks is of the case that sent it.

    Attributes:
        settings: Of the cluster, Redis among them.
        cluster: Its topics, and processes.
        thread: The loop in which all of Kafka's clients are.
        worker: The process.
        producer: Open; a replica with a clock of its own.
        topics: Reads frames and letters.
        owner: Reads what the worker says.
        hot: Reads as everybody does, from hot first.
        log: The id of the topic of turns, as tokens have it.
        numbers: Gives each case a number of its own.
    """

    settings: ClusterSettings
    cluster: Cluster
    thread: LoopThread
    worker: WorkerProcess
    producer: TurnProducer
    topics: TopicReader
    owner: ClusterReader
    hot: ClusterReader
    log: str
    numbers: Any

    def folded(self, offset: int) -> None:
        """Wait until the log is folded so far, and may be read."""
        place = {"tenant": "t", "session": "s", "at_least": f"{self.log}:0:{offset}"}
        self.owner.ask(0, "reach", place)

    def life(self, key: bytes) -> int:
        """Return which life a session is in, over or not; 1 where it never was."""
        asked = {"tenant": SessionName.from_key(key).tenant, "keys": [key]}
        (page,) = self.owner.pages(0, "erase_plan", asked)
        found = msgspec.convert(page["found"], list[Found], builtin_types=(bytes,))
        return found[0].incarnation if found else 1

    def ends(self) -> dict[int, int]:
        """Return where the topic of turns ends."""
        return self.thread.run(self.cluster.ends())

    def outcome(self) -> Outcome:
        """Return the letters and frames that have come since this was asked last."""
        return self.thread.run(self._outcome())

    async def _outcome(self) -> Outcome:
        names = self.cluster.topics
        places = places_of(self.settings, names.deltas, names.dead_letters)
        found = Outcome([], [])
        async for record in self.topics.until(await self.topics.ends(places)):
            if record.topic == names.deltas:
                found.frames.append(delta_of(record))
            else:
                found.letters.append(kept_letter(record))
        return found

    # -- the process --------------------------------------------------------------

    def restart(self) -> None:
        """End the worker as a crash does; start it anew, on an empty disk."""
        self.worker.kill()
        self._start_anew()

    def _start_anew(self) -> None:
        self.worker.wipe()
        self.worker.start()
        self.answers()

    def answers(self) -> None:
        """Wait until the worker is restored, folds and may be read."""

        def does() -> bool:
            try:
                return bool(self.owner.positions())
            except UnavailableError:
                return False

        waited(does, f"the worker never answers: {self.worker.last_words()}")

    def killed_amid(self, records: Sequence[Sent]) -> int:
        """Publish; kill the worker once its changelog has some of that.

        It begins anew on an empty disk; returns when all is folded.

        Returns:
            How many records were not committed then.
        """
        changelog = self.cluster.topics.changelog

        async def until_it_flushes() -> None:
            before = await self.cluster.ends(changelog)
            await self.cluster.send(records)
            while await self.cluster.ends(changelog) == before:
                await asyncio.sleep(0.001)

        self.thread.run(asyncio.wait_for(until_it_flushes(), WAIT_S))
        self.worker.kill()
        end, done = self.ends()[0], self.thread.run(self.cluster.committed())[0]
        self._start_anew()
        self.folded(end - 1)
        return end - done

    # -- hot ------------------------------------------------------------------------

    async def _tier(self) -> RedisTier:
        # Its connections belong to the loop that it is made in.
        changelog = await topic_id(self.settings, self.cluster.topics.changelog)
        given = redis_settings(self.settings, changelog)
        return RedisTier(given, now_ms=SystemClock().now_ms)

    def held(self, key: bytes) -> StoredHead | None:
        """Return what Redis has of a session, and may say now."""

        async def look() -> StoredHead | None:
            tier = await self._tier()
            try:
                (found,) = await tier.heads([key])
                return None if found is None or found.is_tombstone else found
            finally:
                await tier.close()

        return self.thread.run(look())

    def swept(self) -> SweepReport:
        """Return what is wrong with the keys of the cluster in Redis; mend nothing."""

        async def look() -> SweepReport:
            tier = await self._tier()
            try:
                return await tier.sweep(mend=False)
            finally:
                await tier.close()

        return self.thread.run(look())


@contextmanager
def shared_cluster(kafka: str, redis: str, folder: Path) -> Generator[SharedCluster]:
    """Make topics, start a worker, connect everybody; end it when it is over.

    Args:
        kafka: Its address.
        redis: Its URL.
        folder: Where data and logs go.
    """
    with ExitStack() as stack:
        thread = LoopThread("hostile")
        stack.callback(thread.close)
        opened = AsyncExitStack()
        stack.callback(lambda: thread.run(opened.aclose()))
        name = f"hostile-{uuid4().hex[:8]}"
        entered = cluster_on(kafka, folder, name, partitions=1)
        cluster = thread.run(opened.enter_async_context(entered))
        worker = cluster.worker("one", TURNSTATE_REDIS=redis, **TOLD)
        worker.start()
        settings = ClusterSettings.load(folder, dict(worker.environment))
        producer = TurnProducer(settings, replica=True)
        thread.run(opened.enter_async_context(producer))
        topics = thread.run(_reading(opened, settings, cluster))
        plain = ClusterReader(replace(settings, redis=""), wait_s=WAIT_S)
        everybody = ClusterReader(settings, wait_s=WAIT_S)
        shared = SharedCluster(
            settings,
            cluster,
            thread,
            worker,
            producer,
            topics,
            stack.enter_context(plain),
            stack.enter_context(everybody),
            producer.log.hex(),
            count(1),
        )
        shared.answers()
        yield shared


async def _reading(
    opened: AsyncExitStack, settings: ClusterSettings, cluster: Cluster
) -> TopicReader:
    """Open what reads frames and letters from their beginning."""
    reader = await opened.enter_async_context(topic_reader(settings))
    names = cluster.topics
    places = places_of(settings, names.deltas, names.dead_letters)
    reader.assign(places)
    reader.seek(await reader.begins(places))
    return reader


def waited(reached: Callable[[], bool], otherwise: str) -> None:
    """Wait for something.

    Raises:
        AssertionError: it is never so.
    """
    end = time.monotonic() + WAIT_S
    while not reached():
        assert time.monotonic() < end, otherwise
        time.sleep(0.02)
