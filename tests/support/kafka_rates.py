"""Publish to Kafka and watch how fast, and how late, a worker follows."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import GroupCoordinatorNotAvailableError

from turnstate.schemas.dialogue.phases import default_graph
from turnstate.schemas.ids import SessionName
from turnstate.storage.frames.header import decode_header
from turnstate.streams.clock import SystemClock
from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.partition import Partition, PartitionSizes
from turnstate.streams.kafka.partitioning import partition_of
from turnstate.streams.kafka.producer import TurnProducer
from turnstate.streams.kafka.topic_ids import topic_id
from turnstate.streams.kafka.topics import Topics

Count = Callable[[], Awaitable[int]]
"""Counts something at the broker."""

WARMING_RATE = 5000
"""Turns a second."""

_TICKS = os.sysconf("SC_CLK_TCK")


class Sent(NamedTuple):
    """A turn ready to send: its key, its bytes, its partition."""

    key: bytes
    raw: bytes
    partition: int


def prepared(turns: Sequence[bytes], partitions: int) -> list[Sent]:
    """Return the turns with their keys and partitions."""
    rows: list[Sent] = []
    for raw in turns:
        turn: Any = msgspec.json.decode(raw)
        key = SessionName(turn["tenant"], turn["session"]).key()
        rows.append(Sent(key, raw, partition_of(key, partitions)))
    return rows


def cpu_s(pid: int) -> float:
    """Return the processor time that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def worker(
    data: Path, instance: str, environment: Mapping[str, str]
) -> "subprocess.Popen[bytes]":
    """Start a worker of a cluster."""
    data.mkdir(parents=True, exist_ok=True)
    log = (data / f"{instance}.log").open("ab")
    with log:
        return subprocess.Popen(
            [
                sys.executable,
                "-m",
                "turnstate.streams",
                "worker",
                "--instance",
                instance,
                "--data",
                str(data),
            ],
            env={**os.environ, **environment, "PYTHONSAFEPATH": "1"},
            stderr=log,
        )


async def send_all(settings: ClusterSettings, rows: Sequence[Sent]) -> None:
    """Send as fast as it goes, a batch a partition."""
    producer: Any = AIOKafkaProducer(
        acks="all",
        enable_idempotence=True,
        compression_type="lz4",
        max_batch_size=1 << 20,
        **settings.client_options(),
    )
    topic = Topics.of(settings).turns
    await producer.start()
    try:
        builders: dict[int, Any] = {}
        sent: list[Any] = []
        for row in rows:
            builder = builders.get(row.partition)
            if builder is None or not builder.append(
                timestamp=None, key=row.key, value=row.raw
            ):
                if builder is not None:
                    sent.append(
                        await producer.send_batch(
                            builder, topic, partition=row.partition
                        )
                    )
                builder = builders[row.partition] = producer.create_batch()
                builder.append(timestamp=None, key=row.key, value=row.raw)
        for number, builder in builders.items():
            sent.append(await producer.send_batch(builder, topic, partition=number))
        await asyncio.gather(*sent)
    finally:
        await producer.stop()


class Followed(NamedTuple):
    """How fast something was followed.

    Attributes:
        turns: How many, between first and last progress.
        seconds: Between the two.
        cpu_us: Processor time a turn.
    """

    turns: int
    seconds: float
    cpu_us: float

    @property
    def turns_per_s(self) -> float:
        """Return the rate."""
        return self.turns / self.seconds


async def followed(
    progress: Callable[[], Awaitable[int]],
    pid: int,
    turns: int,
    *,
    timeout_s: float = 300.0,
) -> Followed:
    """Watch a count go up to `turns`; the time runs from the first progress."""
    deadline = time.monotonic() + timeout_s
    first: tuple[int, float, float] | None = None
    while True:
        count = await progress()
        now = time.perf_counter()
        if first is None and count:
            first = (count, now, cpu_s(pid))
        if first is not None and count >= turns:
            done = turns - first[0]
            cpu = cpu_s(pid) - first[2]
            return Followed(done, now - first[1], 1e6 * cpu / done if done else 0.0)
        assert time.monotonic() < deadline, f"{count} of {turns}"
        await asyncio.sleep(0.01)


@asynccontextmanager
async def committed_count(settings: ClusterSettings) -> AsyncGenerator[Count]:
    """Give a function that counts the turns whose offsets are committed."""
    admin: Any = AIOKafkaAdminClient(**settings.client_options())
    topic = Topics.of(settings).turns
    await admin.start()

    async def count() -> int:
        try:
            found = await admin.list_consumer_group_offsets(settings.group)
        except GroupCoordinatorNotAvailableError:
            return 0  # the first group of a new broker
        return sum(at.offset for tp, at in found.items() if tp.topic == topic)

    try:
        yield count
    finally:
        await admin.close()


@asynccontextmanager
async def end_count(settings: ClusterSettings, topic: str) -> AsyncGenerator[Count]:
    """Give a function that counts the records of a topic."""
    consumer: Any = AIOKafkaConsumer(**settings.client_options())
    await consumer.start()
    tps = [TopicPartition(topic, number) for number in range(settings.partitions)]

    async def count() -> int:
        ends = await consumer.end_offsets(tps)
        return sum(ends.values())

    try:
        yield count
    finally:
        await consumer.stop()


async def latencies_ms(
    settings: ClusterSettings,
    rows: Sequence[Sent],
    rate: float,
    *,
    warming: int = 0,
    warmed: Callable[[], object] = lambda: None,
) -> list[float]:
    """Send at a rate; return, sorted, how late each turn's frame was on `deltas`.

    From before a turn is handed to the producer until its frame is read.

    Args:
        settings: Of the cluster.
        rows: Turns, in order.
        rate: Turns a second.
        warming: How many go first, at `WARMING_RATE`, and are not counted: a
            broker just started spends more on its compiler than on records.
        warmed: Called once those are through.
    """
    topics = Topics.of(settings)
    producer = TurnProducer(settings)
    consumer: Any = AIOKafkaConsumer(fetch_max_wait_ms=5, **settings.client_options())
    await producer.start()
    await consumer.start()
    consumer.assign(
        [TopicPartition(topics.deltas, number) for number in range(settings.partitions)]
    )
    await consumer.seek_to_end()
    for tp in consumer.assignment():
        await consumer.position(tp)
    versions = dict[bytes, int]()
    begun: dict[tuple[bytes, int], float] = {}
    late: list[float] = []

    async def read(count: int) -> None:
        while count:
            found: Any = await consumer.getmany(timeout_ms=50)
            now = time.perf_counter()
            for records in found.values():
                for record in records:
                    header = decode_header(record.value)
                    for version in range(header.from_version, header.to_version):
                        late.append(1e3 * (now - begun[record.key, version + 1]))
                        count -= 1

    async def send(some: Sequence[Sent], rate: float) -> None:
        start, at = time.perf_counter(), 0
        while at < len(some):
            now = time.perf_counter()
            due = some[at : int((now - start) * rate) + 1]
            for row in due:
                version = versions[row.key] = versions.get(row.key, 0) + 1
                begun[row.key, version] = now
            await producer.publish_many([row.raw for row in due])
            at += len(due)
            await asyncio.sleep(0.001)
        await producer.flush()

    reading = asyncio.create_task(read(warming))
    await send(rows[:warming], WARMING_RATE)
    await reading
    late.clear()
    warmed()
    reading = asyncio.create_task(read(len(rows) - warming))
    await send(rows[warming:], rate)
    try:
        async with asyncio.timeout(60):
            await reading
    finally:
        await producer.close()
        await consumer.stop()
    return sorted(late)


async def empty_partitions(
    settings: ClusterSettings, folder: Path
) -> dict[int, Partition]:
    """Return every partition of a cluster, with nothing in its store."""
    changelog_id = await topic_id(settings, Topics.of(settings).changelog)
    sizes = PartitionSizes(
        hot_bytes=8 << 20, write_buffer_bytes=16 << 20, seal_after_s=300
    )
    return {
        number: Partition(
            folder / str(number) / "store",
            number,
            partitions=settings.partitions,
            changelog_id=changelog_id,
            sizes=sizes,
            log_name="log",
            graph=default_graph(),
            clock=SystemClock(),
        )
        for number in range(settings.partitions)
    }
