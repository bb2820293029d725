"""The feed of a real cluster: each operation once, gaps bridged, overlaps skipped."""

import asyncio
from collections.abc import Generator
from contextlib import aclosing
from uuid import uuid4

import pytest

from support.cluster import cluster_on
from support.running import Running, line, no_gap, running_worker, told_of
from turnstate.schemas.errors import InvalidInputError
from turnstate.schemas.ids import SessionName
from turnstate.streams.documents import Document
from turnstate.streams.kafka.deltas import Deltas
from turnstate.streams.kafka.producer import TurnProducer
from turnstate.streams.kafka.topic_reader import read_whole
from turnstate.streams.kafka.topics import Topics


@pytest.fixture(name="cluster", scope="module")
def fixture_cluster(
    kafka: str, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Running]:
    """Topics and a worker that all tests here share; take sessions of your own."""
    with running_worker(kafka, tmp_path_factory.mktemp("cluster")) as running:
        yield running


def test_a_session_is_followed_and_resumed_from_any_token(cluster: Running) -> None:
    async def test() -> None:
        session = "followed"
        async with TurnProducer(cluster.settings) as producer:
            for number in range(20):
                await producer.publish(line(session=session, turn_id=str(number)))
                if number % 5 == 0:
                    await producer.flush()
                    await cluster.quiet()
        await cluster.quiet()
        events = await told_of(cluster, session, "0")
        assert [event["version"] for event in events] == list(range(1, 21))
        assert [event["turn"]["turn_id"] for event in events] == [
            str(number) for number in range(20)
        ]
        for at in (0, 4, 5, 19):
            token = events[at]["token"]
            assert await told_of(cluster, session, token) == events[at + 1 :]
        assert await told_of(cluster, session, "1-18") == events[18:]

    asyncio.run(test())


def test_what_comes_is_told_to_who_waits(cluster: Running) -> None:
    async def test() -> None:
        deltas = Deltas(cluster.settings, state_of=no_gap)
        async with TurnProducer(cluster.settings) as producer:
            await (await producer.publish(line(session="waits", content="before")))
            await cluster.quiet()
            async with aclosing(deltas.session("acme", "waits")) as events:
                coming = asyncio.create_task(anext(events))
                # The reader has to be there before what it waits for.
                for number in range(100):
                    receipt = await producer.publish(
                        line(session="waits", content=f"after {number}")
                    )
                    await receipt
                    await asyncio.wait([coming], timeout=0.2)
                    if coming.done():
                        break
                event = await coming
        assert event["version"] > 1
        assert event["turn"]["content"].startswith("after")

    asyncio.run(test())


def test_all_sessions_are_followed_and_resumed(cluster: Running) -> None:
    async def test() -> None:
        deltas = Deltas(cluster.settings, state_of=no_gap)
        async with TurnProducer(cluster.settings) as producer:
            for number in range(60):
                session = f"all{number % 10}"
                await producer.publish(line(session=session, turn_id=f"{number}"))
        await cluster.quiet()
        every = [event async for event in deltas.all("0", follow=False)]
        mine = [event for event in every if event["session"].startswith("all")]
        assert len(mine) == 60
        for session in {event["session"] for event in mine}:
            versions = [e["version"] for e in mine if e["session"] == session]
            assert versions == list(range(1, 7))
        for at in range(0, len(every), max(1, len(every) // 10)):
            token = every[at]["token"]
            rest = [event async for event in deltas.all(token, follow=False)]
            key = [(e["session"], e["version"]) for e in rest]
            assert sorted(key) == sorted(
                (e["session"], e["version"]) for e in every[at + 1 :]
            )
        with pytest.raises(InvalidInputError):
            await anext(deltas.all("1-7"))

    asyncio.run(test())


def test_a_gap_is_bridged_by_the_state_and_an_overlap_is_skipped(
    cluster: Running,
) -> None:
    async def test() -> None:
        settings, session = cluster.settings, "gap"
        topic = Topics.of(settings).deltas
        name = f"gap-{uuid4().hex[:8]}"
        async with TurnProducer(settings) as producer:
            for number in range(6):
                receipt = await producer.publish(
                    line(session=session, turn_id=str(number))
                )
                await receipt
                await cluster.quiet()
        key = SessionName("acme", session).key()
        frames = [r async for r in read_whole(settings, topic) if r.key == key]
        assert len(frames) == 6
        asked: list[tuple[str, str]] = []

        async def state(tenant: str, session: str) -> Document:
            asked.append((tenant, session))
            behind = len(asked) == 1
            return {"incarnation": 1, "version": 2 if behind else 4, "slots": {}}

        folder = cluster.folder / name
        async with cluster_on(settings.bootstrap, folder, name) as other:
            # 1, then a hole, then 4, 4 again, 2 again, 5 and 6, and a broken one.
            async with TurnProducer(other.settings) as producer:
                partition = producer.partition(key)
                for frame in [frames[n] for n in (0, 3, 3, 1, 4, 5)]:
                    await producer.publish_raw(
                        frame.value,
                        key,
                        partition=partition,
                        topic=other.topics.deltas,
                    )
                await producer.publish_raw(
                    b"no frame", key, partition=partition, topic=other.topics.deltas
                )
            deltas = Deltas(other.settings, state_of=state)
            for events in (
                [e async for e in deltas.session("acme", session, "0", follow=False)],
                [e async for e in deltas.all("0", follow=False)],
            ):
                assert [e["version"] for e in events] == [1, 4, 5, 6]
                assert ["state" in e for e in events] == [False, True, False, False]
        assert asked == [("acme", session)] * 3

    asyncio.run(test())
