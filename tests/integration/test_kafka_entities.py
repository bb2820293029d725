"""Entities over a real Kafka: every ten versions, across a kill, gone with an erase."""

import asyncio
from collections.abc import Generator
from typing import Any

import pytest

from support.cluster import Sent
from support.running import Running, line, running_worker
from support.told import turn
from turnstate.schemas.errors import InvalidInputError
from turnstate.schemas.ids import SessionName
from turnstate.schemas.wire.json import draft_from_json
from turnstate.streams.kafka.cluster_reader import ClusterReader
from turnstate.streams.kafka.entity_records import entity_of
from turnstate.streams.kafka.producer import TurnProducer
from turnstate.streams.kafka.topics import Topics


@pytest.fixture(name="cluster", scope="module")
def fixture_cluster(
    kafka: str, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Running]:
    """Topics and a worker that all tests here share; take sessions of your own."""
    with running_worker(kafka, tmp_path_factory.mktemp("entities")) as running:
        yield running


async def say(cluster: Running, session: str, first: int, last: int) -> None:
    """Publish turns, and wait until they are folded."""
    async with TurnProducer(cluster.settings) as producer:
        for number in range(first, last + 1):
            await producer.publish(line(session=session, turn_id=str(number)))
    await cluster.quiet()


def told(cluster: Running, session: str, token: str = "0") -> list[Any]:
    """Return what the topic tells of a session after a token."""
    with ClusterReader(cluster.settings) as reader:
        feed = reader.entities("acme", token=token, follow=False)
        return [each for each in feed if each["session"] == session]


def test_every_ten_versions_and_not_after_an_erase(cluster: Running) -> None:
    asyncio.run(say(cluster, "lives", 1, 9))
    assert told(cluster, "lives") == []
    asyncio.run(say(cluster, "lives", 10, 24))
    found = told(cluster, "lives")
    assert [each["boundary"] for each in found][-1] == 20
    assert found[-1]["entity"]["session"] == "lives"
    token = found[-1]["token"]

    async def erased() -> None:
        async with TurnProducer(cluster.settings) as producer:
            turn = {"session": "lives", "role": "system", "op": "erase"}
            await producer.publish(line(**turn))
        await cluster.quiet()

    asyncio.run(erased())
    (removal,) = told(cluster, "lives", token)
    assert (removal["incarnation"], removal["entity"]) == (1, None)
    asyncio.run(say(cluster, "lives", 30, 39))
    (again,) = told(cluster, "lives", removal["token"])
    assert (again["incarnation"], again["boundary"]) == (2, 10)
    with pytest.raises(InvalidInputError):
        told(cluster, "lives", "nonsense")


def test_a_killed_worker_loses_none(cluster: Running) -> None:
    """Whatever was in flight: each boundary of each session was told, some twice."""

    async def killed() -> None:
        running = cluster.cluster
        worker = running.worker("one")
        for part in range(2):
            lines = [
                turn(number, f"killed-{at}", "acme")
                for number in range(20 * part, 20 * part + 20)
                for at in range(8)
            ]
            await running.send(
                Sent(each, draft_from_json(each).key) for each in lines
            )
            await asyncio.sleep(0.1)
            worker.kill()
            worker.start()
        await running.quiet()

    cluster.thread.run(killed())
    records = cluster.thread.run(
        cluster.cluster.records(Topics.of(cluster.settings).entities)
    )
    names = {
        (each.key, each.incarnation, each.boundary) for each in map(entity_of, records)
    }
    with ClusterReader(cluster.settings) as reader:
        rows = list(reader.sessions(tenant="acme", prefix="killed-"))
    assert [row["version"] for row in rows] == [40] * 8
    for row in rows:
        key = SessionName(row["tenant"], row["session"]).key()
        wanted = {(key, 1, boundary) for boundary in (10, 20, 30, 40)}
        assert wanted <= names
