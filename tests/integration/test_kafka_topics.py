"""Topics on a real Kafka: created as planned, checked, never changed in secret."""

import asyncio
from dataclasses import replace
from uuid import uuid4

import pytest

from turnstate.schemas.errors import ConflictError, NotFoundError, UnavailableError
from turnstate.streams.cli import main
from turnstate.streams.documents import Document
from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.connections import admin_client
from turnstate.streams.kafka.topic_ids import ID_BYTES, topic_id
from turnstate.streams.kafka.topics import Topics, check_topics, create_topics

NOWHERE = ClusterSettings(bootstrap="127.0.0.1:1")


@pytest.fixture(name="settings")
def fixture_settings(kafka: str) -> ClusterSettings:
    name = f"topics-{uuid4().hex[:8]}"
    return ClusterSettings(
        bootstrap=kafka, prefix=f"{name}.", group=name, partitions=3
    )


def statuses(document: Document) -> set[str]:
    return {row["status"] for row in document["topics"]}


async def delete(settings: ClusterSettings, *names: str) -> None:
    async with admin_client(settings) as admin:
        await admin.delete_topics(list(names))
        while set(names) & set(await admin.list_topics()):
            await asyncio.sleep(0.01)


def test_what_is_missing_is_created_and_what_is_there_is_left(
    settings: ClusterSettings,
) -> None:
    async def test() -> None:
        with pytest.raises(ConflictError) as caught:
            await check_topics(settings)
        assert caught.value.code == "topics_missing"
        assert {"created"} == statuses(await create_topics(settings))
        assert {"there"} == statuses(await create_topics(settings))
        checked = await check_topics(settings)
        assert {"there"} == statuses(checked)
        assert {3} == {row["partitions"] for row in checked["topics"]}
        await delete(settings, Topics.of(settings).anchors)
        document = await create_topics(settings)
        assert [f"{settings.prefix}anchors"] == [
            row["name"] for row in document["topics"] if row["status"] == "created"
        ]

    asyncio.run(test())


def test_a_topic_that_differs_is_named_and_nothing_is_created(
    settings: ClusterSettings,
) -> None:
    async def test() -> None:
        await create_topics(settings)
        await delete(settings, Topics.of(settings).anchors)
        more = replace(settings, partitions=4)
        for ask in (create_topics, check_topics):
            with pytest.raises(ConflictError, match="partitions is 3, not 4") as caught:
                await ask(more)
            assert caught.value.exit_code == 4
        with pytest.raises(ConflictError) as caught:
            await check_topics(settings)
        assert caught.value.code == "topics_missing"

    asyncio.run(test())


def test_topics_made_at_the_same_time_are_made_once(settings: ClusterSettings) -> None:
    async def test() -> None:
        made = await asyncio.gather(*(create_topics(settings) for _ in range(3)))
        assert {"created", "there"} >= set().union(*map(statuses, made))
        await check_topics(settings)

    asyncio.run(test())


def test_a_topic_made_again_has_another_id(settings: ClusterSettings) -> None:
    async def test() -> None:
        await create_topics(settings)
        turns = Topics.of(settings).turns
        first = await topic_id(settings, turns)
        assert len(first) == ID_BYTES
        assert any(first)
        assert first == await topic_id(settings, turns)
        await delete(settings, turns)
        with pytest.raises(NotFoundError) as caught:
            await topic_id(settings, turns)
        assert caught.value.field == "topic"
        await create_topics(settings)
        assert first != await topic_id(settings, turns)

    asyncio.run(test())


def test_brokers_that_are_away_are_named_in_time() -> None:
    async def test() -> None:
        with pytest.raises(UnavailableError, match=r"127\.0\.0\.1:1"):
            async with admin_client(NOWHERE, timeout_s=0.5):
                pass
        with pytest.raises(UnavailableError, match=r"127\.0\.0\.1:1"):
            await topic_id(NOWHERE, "turns", timeout_s=0.5)

    asyncio.run(test())


def test_the_commands_answer_with_their_exit_codes(
    settings: ClusterSettings,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    for name in ("group", "prefix", "partitions"):
        variable = f"TURNSTATE_{name.upper()}"
        monkeypatch.setenv(variable, str(getattr(settings, name)))
    monkeypatch.setenv("TURNSTATE_KAFKA", settings.bootstrap)
    assert main.run(["topics", "check", "--json"]) == 4
    assert main.run(["topics", "create", "--json"]) == 0
    assert main.run(["topics", "check"]) == 0
    monkeypatch.setenv("TURNSTATE_PARTITIONS", "2")
    assert main.run(["topics", "create"]) == 4
    assert "dead-letters" in capfd.readouterr().out
