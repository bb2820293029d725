"""Run workers and a producer as processes on a Kafka, kill them, ask how far it is."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from support import journal, producing
from support.commands import COMMAND
from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.topic_reader import read_whole
from turnstate.streams.kafka.topics import MESSAGE_BYTES_MAX, Topics, create_topics

PARTITIONS: Final = 6

SMALL: Final = {
    "TURNSTATE_TRACEBACK": "1",
    "TURNSTATE_SEAL_AFTER_S": "1",
    "TURNSTATE_HOT_BYTES": str(1 << 20),
    "TURNSTATE_WRITE_BUFFER_BYTES": str(16 << 20),
    "TURNSTATE_SESSION_TIMEOUT_MS": "2000",
}
"""Sizes with which sealing, eviction and time-outs happen in a short test."""

START_S: Final = 40.0
QUIET_S: Final = 90.0
_POLL_S: Final = 0.02

Offsets = dict[int, int]
"""Partition → offset."""


class Taken(NamedTuple):
    """A turn that the brokers have acknowledged."""

    partition: int
    offset: int
    tenant: str
    session: str
    turn_id: str


class Sample(NamedTuple):
    """What was committed at a moment, and how far `deltas` was after it."""

    committed: Offsets
    deltas: Offsets


class Sent(NamedTuple):
    """A record to publish; without a partition, the key chooses it."""

    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    headers: Sequence[tuple[str, bytes]] = ()


@dataclass
class WorkerProcess:
    """One instance: its folder, its log, the process that runs it now.

    Attributes:
        name: Of the instance.
        data: The data folder that workers share.
        environment: All of the process's variables.
    """

    name: str
    data: Path
    environment: Mapping[str, str]
    process: "subprocess.Popen[bytes] | None" = None
    starts: int = 0

    @property
    def log(self) -> Path:
        """The file with what it said."""
        return self.data / f"{self.name}.log"

    def start(self, *, command: Sequence[str] = COMMAND, **environment: str) -> None:
        """Start it; what it says is added to its log."""
        assert self.process is None, f"{self.name} runs already"
        self.data.mkdir(parents=True, exist_ok=True)
        self.starts += 1
        told = ("--instance", self.name, "--data", str(self.data))
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "worker", *told],
                stdout=log,
                stderr=log,
                env={**self.environment, **environment},
            )

    @property
    def pid(self) -> int:
        """The id of its process, which runs."""
        assert self.process is not None
        assert self.process.poll() is None, f"{self.name} ended: {self.last_words()}"
        return self.process.pid

    def kill(self) -> None:
        """End it as a crash does."""
        self.signal(signal.SIGKILL)
        assert self.wait(10) == -signal.SIGKILL

    def signal(self, number: int) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def wait(self, timeout_s: float) -> int:
        """Wait for its end; return how it ended."""
        assert self.process is not None
        try:
            return self.process.wait(timeout_s)
        finally:
            if self.process.poll() is not None:
                self.process = None

    def stop(self, timeout_s: float = 60) -> int:
        """Tell it to end, and return how it did."""
        self.signal(signal.SIGTERM)
        return self.wait(timeout_s)

    def end(self) -> None:
        """Make sure that it runs no more, whatever became of the test."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def wipe(self) -> None:
        """Take its disk away."""
        assert self.process is None
        shutil.rmtree(self.data / self.name, ignore_errors=True)

    def partitions(self) -> set[int]:
        """Return the partitions whose stores it has open."""
        found: set[int] = set()
        if self.process is None or self.process.poll() is not None:
            return found
        root = str((self.data / self.name).resolve())
        for entry in Path(f"/proc/{self.process.pid}/fd").iterdir():
            try:
                target = os.readlink(entry)  # noqa: PTH115 - a name, not a path
            except OSError:
                continue
            if target.startswith(root) and target.endswith("/store/LOCK"):
                found.add(int(target[len(root) + 1 :].partition("/")[0]))
        return found

    def said(self) -> list[dict[str, Any]]:
        """Return the lines of its log that are JSON."""
        return [
            json.loads(line)
            for line in self.log.read_text(encoding="utf-8").splitlines()
            if line.startswith("{") and line.endswith("}")
        ]

    def last_words(self) -> str:
        """Return the end of its log."""
        return self.log.read_text(encoding="utf-8")[-3000:] if self.log.exists() else ""


class Source:
    """The producer's process, and the one that keeps what it says."""

    def __init__(self, settings: ClusterSettings, folder: Path) -> None:
        self.settings = settings
        self.path = folder / "journal"
        self._process: subprocess.Popen[bytes] | None = None
        self._keeper: subprocess.Popen[bytes] | None = None

    def start(self, *, seed: int, rate: int, again: int = 3) -> None:
        """Publish `rate` turns a second; of 100, `again` are sent twice."""
        topic = Topics.of(self.settings).turns
        told = (self.settings.bootstrap, topic, str(seed), str(rate), str(again))
        self._process = subprocess.Popen(
            [sys.executable, "-P", producing.__file__, *told],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        )
        self._keeper = subprocess.Popen(
            [sys.executable, "-I", "-S", journal.__file__, str(self.path)],
            stdin=self._process.stdout,
        )
        assert self._process.stdout is not None
        self._process.stdout.close()

    def stop(self) -> list[Taken]:
        """End it in order; return every turn that was acknowledged."""
        assert self._process is not None
        assert self._keeper is not None
        assert self._process.poll() is None, "the producer ended by itself"
        self._process.terminate()
        assert self._process.wait(130) == 0
        assert self._keeper.wait(30) == 0
        return self.taken()

    def taken(self) -> list[Taken]:
        """Return what was acknowledged so far."""
        if not self.path.exists():
            return []
        lines = self.path.read_bytes().split(b"\n")[:-1]
        return [Taken(*json.loads(line)) for line in lines]

    def end(self) -> None:
        """Make sure that nothing runs any more."""
        for each in (self._process, self._keeper):
            if each is not None:
                each.kill()
                each.wait()


@dataclass
class Cluster:
    """Topics and a group of their own on a Kafka, and the workers of the group.

    Attributes:
        settings: Of the cluster.
        folder: Where everything is kept.
        admin: Connected.
        consumer: Connected; asked for the ends of topics.
        workers: Those that were ever started, by name.
    """

    settings: ClusterSettings
    folder: Path
    admin: AIOKafkaAdminClient
    consumer: Any
    workers: dict[str, WorkerProcess] = field(default_factory=dict[str, WorkerProcess])

    @property
    def topics(self) -> Topics:
        """Their names."""
        return Topics.of(self.settings)

    def worker(self, name: str, **environment: str) -> WorkerProcess:
        """Return an instance; it is not started."""
        if name not in self.workers:
            clean = {
                k: v for k, v in os.environ.items() if not k.startswith("TURNSTATE")
            }
            told = {
                "TURNSTATE_KAFKA": self.settings.bootstrap,
                "TURNSTATE_GROUP": self.settings.group,
                "TURNSTATE_PREFIX": self.settings.prefix,
                "TURNSTATE_PARTITIONS": str(self.settings.partitions),
            }
            self.workers[name] = WorkerProcess(
                name, self.folder / "data", {**clean, **SMALL, **told, **environment}
            )
        return self.workers[name]

    async def committed(self) -> Offsets:
        """Return what the group has committed, 0 where it has nothing."""
        places = self._places(self.topics.turns)
        while True:
            try:
                found = await self.admin.list_consumer_group_offsets(
                    self.settings.group, partitions=places
                )
            except (KafkaError, OSError):
                await asyncio.sleep(_POLL_S)
                continue
            if found.keys() >= set(places):
                return {
                    place.partition: max(0, found[place].offset) for place in places
                }
            # A broker that has just come up does not know it yet.
            await asyncio.sleep(_POLL_S)

    async def ends(self, topic: str | None = None) -> Offsets:
        """Return the end of each partition of a topic, of turns by default."""
        places = self._places(topic or self.topics.turns)
        while True:
            try:
                found = await self.consumer.end_offsets(places)
            except (KafkaError, OSError):
                await asyncio.sleep(_POLL_S)
                continue
            return {place.partition: found[place] for place in places}

    async def send(self, records: "Iterable[Sent]") -> list[tuple[int, int]]:
        """Publish records; return partition and offset of each."""
        producer: Any = AIOKafkaProducer(
            max_request_size=MESSAGE_BYTES_MAX,
            linger_ms=5,
            **self.settings.client_options(),
        )
        async with producer:
            waiting = [
                await producer.send(
                    self.topics.turns,
                    value=each.value,
                    key=each.key,
                    partition=each.partition,
                    headers=list(each.headers),
                )
                for each in records
            ]
            kept = await asyncio.gather(*waiting)
        return [(each.partition, each.offset) for each in kept]

    async def records(self, topic: str) -> list[Any]:
        """Return all records of a topic, partition by partition."""
        found = [each async for each in read_whole(self.settings, topic)]
        return sorted(found, key=lambda each: (each.partition, each.offset))

    async def sample(self) -> Sample:
        """Look at what is committed, and then how far `deltas` is."""
        return Sample(await self.committed(), await self.ends(self.topics.deltas))

    async def quiet(self, timeout_s: float = QUIET_S) -> Offsets:
        """Wait until all that the topic has is committed; return the ends."""
        ends = await self.ends()

        async def all_committed() -> bool:
            return await self.committed() == ends

        await self.until(all_committed, "everything is committed", timeout_s)
        return ends

    async def until(
        self, reached: Callable[[], Any], what: str, timeout_s: float = START_S
    ) -> None:
        """Wait for something; the workers must not end meanwhile."""
        end = time.monotonic() + timeout_s
        while True:
            answer = reached()
            if await answer if asyncio.iscoroutine(answer) else answer:
                return
            for worker in self.workers.values():
                if worker.process is not None and worker.process.poll() is not None:
                    raise AssertionError(
                        f"{worker.name} ended ({worker.process.returncode}) before"
                        f" {what}: {worker.last_words()}"
                    )
            if time.monotonic() > end:
                words = "\n".join(
                    f"{worker.name}: {worker.last_words()}"
                    for worker in self.workers.values()
                )
                state = f"{await self.committed()} of {await self.ends()}"
                raise AssertionError(f"never: {what}; committed {state}\n{words}")
            await asyncio.sleep(_POLL_S)

    def _places(self, topic: str) -> list[TopicPartition]:
        return [
            TopicPartition(topic, number) for number in range(self.settings.partitions)
        ]


@asynccontextmanager
async def cluster_on(
    bootstrap: str, folder: Path, name: str, *, partitions: int = PARTITIONS
) -> AsyncGenerator[Cluster]:
    """Make topics of one's own on a Kafka; end all processes when it is over.

    Args:
        bootstrap: The Kafka.
        folder: Where data and logs go.
        name: Of the group, and before each topic's name.
        partitions: Of each topic.
    """
    settings = ClusterSettings(
        bootstrap=bootstrap, group=name, prefix=f"{name}.", partitions=partitions
    )
    await create_topics(settings)
    admin = AIOKafkaAdminClient(**settings.client_options())
    options = settings.client_options()
    consumer: Any = AIOKafkaConsumer(enable_auto_commit=False, **options)
    cluster = Cluster(settings, folder, admin, consumer)
    try:
        await admin.start()
        await consumer.start()
        yield cluster
    finally:
        for worker in cluster.workers.values():
            worker.end()
        await admin.close()
        await consumer.stop()
