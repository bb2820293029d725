"""Published through a real Kafka to a real worker: counted, redriven, followed."""

import asyncio
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from support.cluster import Cluster, cluster_on
from support.running import Running, line, running_worker, told_of
from turnstate.schemas.errors import InvalidInputError, NotFoundError, UnavailableError
from turnstate.schemas.ids import SessionName
from turnstate.schemas.wire.packed import pack_turns
from turnstate.streams.cli import main
from turnstate.streams.cli.publishing import Counts, publish_files
from turnstate.streams.documents import Document
from turnstate.streams.kafka import dead_letters as letters
from turnstate.streams.kafka.letter_records import LetterId, kept_letter
from turnstate.streams.kafka.producer import TurnProducer
from turnstate.streams.kafka.publishing import ClusterDoor
from turnstate.streams.kafka.topic_reader import read_whole
from turnstate.streams.kafka.topics import Topics

Told = Callable[..., Any]

MIXED: list[dict[str, Any]] = [
    {"session": "s", "turn_id": "1", "content": "hi"},
    {"session": "s", "turn_id": "1", "content": "something else"},
    {"session": "s", "turn_id": "1", "content": "hi"},
    {"session": "s", "content": "no id"},
    {"session": "s", "content": "no id"},
    {"session": "s", "turn_id": "2", "if_version": 77, "content": "x"},
    {"session": "s", "turn_id": "3", "op": "edit", "target": "1", "content": "hello"},
    {"session": "s", "turn_id": "4", "op": "fork", "target": "1", "branch": "b"},
    {"session": "t", "op": "erase"},
    {"session": "u", "turn_id": "1", "content": "hi", "metadata": {"a": 1}},
]


def mixed() -> bytes:
    lines = [line(**fields) for fields in MIXED]
    return b"\n".join([*lines, b"nope", b'{"tenant":"acme","role":"user"}', b""])


@pytest.fixture(name="cluster", scope="module")
def fixture_cluster(
    kafka: str, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Running]:
    """Topics and a worker that all tests here share; take sessions of your own."""
    with running_worker(kafka, tmp_path_factory.mktemp("cluster")) as running:
        yield running


def publish(cluster: Running, path: Path, *, wait: bool = True) -> Counts:
    with ClusterDoor(cluster.settings, wait=wait) as door:
        return publish_files(door, [str(path)], "turns")


def counted(counts: Counts) -> tuple[int, int, int, int, int, int]:
    return (
        counts.turns,
        counts.accepted,
        counts.duplicates,
        counts.conflicts,
        counts.refused,
        len(counts.sessions),
    )


async def open_letters(cluster: Running, session: str) -> list[Document]:
    settings = cluster.settings
    rows = (await letters.dead_letters(settings))["dead_letters"]
    chosen = letters._chosen(await letters._open_letters(settings), None)
    mine = {
        kept.id.name()
        async for kept in letters._with_bytes(settings, chosen)
        if session.encode() in kept.letter.raw
    }
    return [row for row in rows if row["id"] in mine]


def test_the_counts_are_those_of_the_embedded_store(
    cluster: Running, tmp_path: Path, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mixed.jsonl"
    path.write_bytes(mixed().replace(b"acme", b"counted"))
    code, embedded = told("publish", str(path))
    assert code == 0
    _, again = told("publish", str(path))
    for name in ("group", "prefix", "partitions"):
        variable = f"TURNSTATE_{name.upper()}"
        monkeypatch.setenv(variable, str(getattr(cluster.settings, name)))
    monkeypatch.setenv("TURNSTATE_KAFKA", cluster.settings.bootstrap)
    names = ("turns", "accepted", "duplicates", "conflicts", "refused", "sessions")
    for expected in (embedded, again):
        code, document = told("publish", str(path), "--profile", "cluster")
        assert code == 0
        assert {n: expected[n] for n in names} == {n: document[n] for n in names}
        assert document.keys() == expected.keys()
    code, document = told("publish", str(path), "--profile", "cluster", "--no-wait")
    assert (document["accepted"], document["refused"]) == (10, 2)
    assert document["duplicates"] is document["conflicts"] is None
    args = ("--profile", "cluster", "--strict", "--json")
    assert main.run(["publish", str(path), *args]) == 1


def test_other_producers_at_the_same_time_are_not_counted(
    cluster: Running, tmp_path: Path
) -> None:
    path = tmp_path / "mine.jsonl"
    mine = [line(session=f"m{n % 7}", turn_id=f"m{n}") for n in range(3000)]
    path.write_bytes(b"\n".join(mine))
    ended = threading.Event()

    async def others() -> None:
        async with TurnProducer(cluster.settings) as producer:
            number = 0
            while not ended.is_set():
                session = f"m{number % 7}"
                await producer.publish(line(session=session, turn_id=f"o{number}"))
                if number % 100 == 0:
                    await producer.publish_raw(b"nope", b"key")
                number += 1
                await asyncio.sleep(0.0005)

    thread = threading.Thread(target=lambda: asyncio.run(others()))
    thread.start()
    try:
        assert counted(publish(cluster, path)) == (3000, 3000, 0, 0, 0, 7)
        assert counted(publish(cluster, path)) == (3000, 0, 3000, 0, 0, 7)
    finally:
        ended.set()
        thread.join()


def test_without_a_worker_publishing_says_that_none_moves(
    cluster: Running, tmp_path: Path
) -> None:
    async def test() -> None:
        name = f"idle-{uuid4().hex[:8]}"
        async with cluster_on(cluster.settings.bootstrap, tmp_path, name) as idle:
            with pytest.raises(UnavailableError) as caught:
                await asyncio.to_thread(publish_alone, idle)
            assert caught.value.code == "no_progress"
            assert sum((await idle.ends()).values()) == 1

    def publish_alone(idle: Cluster) -> None:
        path = tmp_path / "one.jsonl"
        path.write_bytes(line(session="s"))
        with ClusterDoor(idle.settings, stall_s=1.0) as door:
            publish_files(door, [str(path)], "turns")

    asyncio.run(test())


def test_a_poison_turn_in_a_pack_is_a_letter_and_is_redriven(cluster: Running) -> None:
    async def test() -> None:
        settings, session = cluster.settings, "poison"
        key = SessionName("acme", session).key()
        turns = [line(session=session, turn_id=f"p{n}") for n in range(500)]
        turns[250] = line(session=session, turn_id="p250", if_version=10_000)
        async with TurnProducer(settings) as producer:
            partition = producer.partition(key)
            await producer.publish_raw(pack_turns(turns), None, partition=partition)
        await cluster.quiet()
        events = await told_of(cluster, session, "0")
        assert len(events) == 499
        (row,) = await open_letters(cluster, session)
        assert (row["reason"], row["field"]) == ("version_conflict", "if_version")
        kept = await letters.dead_letter(settings, row["id"])
        assert (kept.letter.raw, kept.index) == (turns[250], 250)
        # Refused again: a new letter, which knows how often it was sent.
        document = await letters.redrive(settings, [row["id"]])
        assert (document["redriven"], document["refused"]) == (1, 1)
        (second,) = await open_letters(cluster, session)
        assert (second["attempt"], second["id"] != row["id"]) == (1, True)
        with pytest.raises(NotFoundError):
            await letters.redrive(settings, [row["id"]])
        assert await letters.discard(settings, [second["id"]]) == {"discarded": 1}
        assert not await open_letters(cluster, session)

    asyncio.run(test())


def test_a_turn_without_an_id_is_folded_once_however_often_redriven(
    cluster: Running,
) -> None:
    async def test() -> None:
        settings, session = cluster.settings, "lost-marker"
        error = InvalidInputError("not yet", code="later")
        async with TurnProducer(settings) as producer:
            await producer.refuse(line(session=session, content="once"), error)
        (row,) = await open_letters(cluster, session)
        kept = await letters.dead_letter(settings, row["id"])
        # A crash after the acknowledgement, before the letter is settled.
        raw, draft, headers = letters._to_send(kept)
        assert draft is not None
        async with TurnProducer(settings) as producer:
            await producer.publish_raw(raw, draft.key, headers=headers)
        document = await letters.redrive(settings, [row["id"]])
        assert (document["accepted"], document["duplicates"]) == (0, 1)
        (event,) = await told_of(cluster, session, "0")
        assert event["turn"]["turn_id"] == f"redriven:{row['id']}"
        assert not await open_letters(cluster, session)

    asyncio.run(test())


def test_a_letter_written_twice_is_shown_and_settled_as_one(cluster: Running) -> None:
    async def test() -> None:
        settings = cluster.settings
        topic = Topics.of(settings).dead_letters
        async with TurnProducer(settings) as producer:
            bad = line(session="twice", role=7)
            await producer.publish_raw(bad, SessionName("acme", "twice").key())
            await producer.flush()
            await cluster.quiet()
            (row,) = await open_letters(cluster, "twice")
            copied = LetterId.read(row["id"])
            (record,) = [
                record
                async for record in read_whole(settings, topic)
                if (record.partition, record.offset) == copied
            ]
            assert kept_letter(record).letter.field == "role"
            await producer.publish_raw(
                record.value,
                record.key,
                partition=record.partition,
                headers=record.headers,
                topic=topic,
            )
        assert await open_letters(cluster, "twice") == [row]
        document = await letters.redrive(settings, [row["id"]])
        assert (document["redriven"], document["refused"]) == (1, 1)
        (again,) = await open_letters(cluster, "twice")
        assert again["attempt"] == 1
        await letters.discard(settings, [again["id"]])

    asyncio.run(test())


def test_the_commands_work_on_the_letters_of_the_cluster(
    cluster: Running, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse() -> None:
        async with TurnProducer(cluster.settings) as producer:
            error = InvalidInputError("no turn", field="x")
            await producer.refuse(b"by-command", error)

    asyncio.run(refuse())
    for name in ("group", "prefix", "partitions"):
        variable = f"TURNSTATE_{name.upper()}"
        monkeypatch.setenv(variable, str(getattr(cluster.settings, name)))
    monkeypatch.setenv("TURNSTATE_KAFKA", cluster.settings.bootstrap)
    monkeypatch.setenv("TURNSTATE_PROFILE", "cluster")
    code, document = told("dead-letters", "list")
    assert code == 0
    found = [row["id"] for row in document["dead_letters"] if row["field"] == "x"]
    code, document = told("dead-letters", "show", found[0])
    assert (code, document["raw"]) == (0, "by-command")
    assert told("dead-letters", "discard", found[0]) == (0, {"discarded": 1})
    assert told("dead-letters", "show", found[0])[0] == 3
    assert told("dead-letters", "redrive", "no-such")[0] == 3
