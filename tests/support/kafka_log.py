"""A log on Kafka of every kind of record, good and bad, and a worker that folds it."""

import asyncio
import os
import time
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple
from uuid import uuid4

import msgspec
from aiokafka import AIOKafkaProducer

from support.cluster import SMALL, WorkerProcess
from turnstate.replay.bench.corpora import dialogues, interleaved
from turnstate.schemas.ids import SessionName
from turnstate.schemas.wire.json import turn_from_json
from turnstate.schemas.wire.packed import CONTENT_TYPE as PACK
from turnstate.schemas.wire.packed import pack_turns
from turnstate.schemas.wire.protobuf import turn_to_protobuf
from turnstate.schemas.wire.turn_bytes import PROTOBUF_TYPE
from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.partitioning import partition_of
from turnstate.streams.kafka.replay_group import until_committed
from turnstate.streams.kafka.topics import Topics, create_topics

PARTITIONS: Final = 3
_PAUSE_S: Final = 0.05


class Row(NamedTuple):
    """A record to produce."""

    value: bytes | None
    key: bytes | None
    partition: int
    content_type: str | None = None


@dataclass(frozen=True)
class KafkaLog:
    """Topics of one's own with turns in them, in two halves, and a worker.

    Attributes:
        settings: Of the cluster.
        data: The data folder, of which `one` is the worker's.
        middle_ms: A time between the two halves.
        middle: Partition → offset at which the second half begins.
        ends: Partition → offset after the last.
    """

    settings: ClusterSettings
    data: Path
    middle_ms: int
    middle: dict[int, int]
    ends: dict[int, int]

    @property
    def address(self) -> str:
        """Where the turns are, as `replay` takes it."""
        topic = Topics.of(self.settings).turns
        return f"kafka://{self.settings.bootstrap}/{topic}"

    def environment(self) -> dict[str, str]:
        """Return what names the cluster for a command."""
        return environment_of(self.settings)


def environment_of(settings: ClusterSettings) -> dict[str, str]:
    """Return the variables that name a cluster."""
    return {
        "TURNSTATE_KAFKA": settings.bootstrap,
        "TURNSTATE_GROUP": settings.group,
        "TURNSTATE_PREFIX": settings.prefix,
        "TURNSTATE_PARTITIONS": str(settings.partitions),
    }


@contextmanager
def folded_log(bootstrap: str, folder: Path) -> Generator[KafkaLog]:
    """Give a log that a running worker has folded."""
    name = f"log-{uuid4().hex[:8]}"
    settings = ClusterSettings(
        bootstrap=bootstrap, group=name, prefix=f"{name}.", partitions=PARTITIONS
    )
    clean = {k: v for k, v in os.environ.items() if not k.startswith("TURNSTATE")}
    worker = WorkerProcess(
        "one", folder / "data", {**clean, **SMALL, **environment_of(settings)}
    )
    asyncio.run(create_topics(settings))
    rows = all_rows()
    half = len(rows) // 2
    middle = asyncio.run(produced(settings, rows[:half]))
    time.sleep(_PAUSE_S)
    middle_ms = time.time_ns() // 1_000_000
    time.sleep(_PAUSE_S)
    ends = asyncio.run(produced(settings, rows[half:]))
    worker.start()
    try:
        asyncio.run(until_committed(settings, ends))
        yield KafkaLog(settings, worker.data, middle_ms, middle, ends)
    finally:
        worker.end()


async def produced(settings: ClusterSettings, rows: Iterable[Row]) -> dict[int, int]:
    """Produce records in order; return where each partition ends."""
    topic = Topics.of(settings).turns
    ends: dict[int, int] = {}
    opened: Any = AIOKafkaProducer(
        bootstrap_servers=settings.bootstrap, enable_idempotence=True
    )
    async with opened as producer:
        sent: list[Any] = []
        for row in rows:
            told = row.content_type
            headers = [("content-type", told.encode())] if told else []
            sent.append(
                await producer.send(
                    topic,
                    row.value,
                    key=row.key,
                    partition=row.partition,
                    headers=headers,
                )
            )
        for kept in await asyncio.gather(*sent):
            ends[kept.partition] = max(ends.get(kept.partition, 0), kept.offset + 1)
    return ends


def row_of(raw: bytes, value: bytes | None = None, told: str | None = None) -> Row:
    """Return the record of a turn, where it belongs."""
    turn: Any = msgspec.json.decode(raw)
    key = SessionName(turn["tenant"], turn["session"]).key()
    at = partition_of(key, PARTITIONS)
    return Row(raw if value is None else value, key, at, told)


def line(session: str, turn: int, **fields: Any) -> bytes:
    """Return a turn as JSON."""
    start = {"tenant": "acme", "session": session, "role": "user"}
    return msgspec.json.encode({**start, "turn_id": f"t{turn}", **fields})


def all_rows() -> list[Row]:
    """Return real dialogues in every form, operations, and all that is refused."""
    chance = Random(4)
    rows: list[Row] = []
    together: dict[int, list[bytes]] = {}
    for raw in [*operations(), *interleaved(dialogues(small=True))]:
        row = row_of(raw)
        # A session keeps to one form, so that its turns stay in order.
        form = (row.key or b"")[-1] % 3
        if form == 0:
            rows.append(row)
        elif form == 1:
            value = turn_to_protobuf(turn_from_json(raw))
            rows.append(row_of(raw, value, PROTOBUF_TYPE))
        else:
            waiting = together.setdefault(row.partition, [])
            waiting.append(raw)
            if len(waiting) == chance.randint(2, 30):
                rows.append(packed(row.partition, waiting))
                waiting.clear()
    rows += [packed(at, turns) for at, turns in together.items() if turns]
    for bad in refused_rows():
        rows.insert(chance.randrange(len(rows)), bad)
    return rows


def packed(partition: int, turns: Sequence[bytes]) -> Row:
    """Return one record of several turns."""
    return Row(pack_turns(list(turns)), None, partition, PACK)


def operations() -> list[bytes]:
    """Return sessions in which more happens than turns."""
    rows: list[bytes] = []
    for name in ("ops-a", "ops-b", "ops-c"):
        rows += [line(name, at, content=f"turn {at}") for at in range(1, 6)]
        rows += [
            line(name, 1, content="turn 1"),
            line(name, 2, content="another text"),
            line(name, 7, op="edit", target="t2", content="mended"),
            line(name, 8, op="fork", branch="other", target="t3"),
            line(name, 9, branch="other", content="on the other branch"),
            line(name, 10, op="redact", target="t4"),
        ]
    for name in ("gone", "again"):
        rows += [line(name, at, content="secret") for at in range(3)]
        rows.append(line(name, 3, op="erase"))
    rows.append(line("again", 9, content="a new life"))
    return rows


REFUSED: Final = {
    "tombstone": 1,
    "wrong_key": 1,
    "wrong_partition": 1,
    "pack": 1,
}
"""Reasons of which the log has exactly so many; there are others."""


def refused_rows() -> list[Row]:
    """Return what no worker takes."""
    good = row_of(line("bad-a", 1, content="hi"))
    other = SessionName("acme", "bad-other").key()
    elsewhere = (good.partition + 1) % PARTITIONS
    mixed = [line("bad-a", 1), b"{nonsense", line("bad-a", 2)]
    return [
        Row(None, good.key, good.partition),
        good._replace(key=other),
        good._replace(partition=elsewhere),
        Row(b"\xff\xfe\x00", None, 0),
        Row(b'{"tenant":"acme"}', None, 1, "application/json"),
        good._replace(content_type=PROTOBUF_TYPE, key=None),
        Row(b"\xc1\x01\x91", None, 2, PACK),
        packed(good.partition, mixed),
    ]
