"""Entities near a server: loaded once, replaced by what the feed tells, let go."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from support.told import turn
from turnstate.agents.tiering.layers import CONTEXT_LAYER, SESSION_LAYER
from turnstate.schemas.errors import NotFoundError
from turnstate.streams.client import AsyncClient
from turnstate.streams.embedded import recent_states
from turnstate.streams.entity_layer import EntityLayer
from turnstate.streams.kafka.cluster_settings import ClusterSettings


def play(
    folder: Path, scene: Callable[[AsyncClient, EntityLayer], Awaitable[None]]
) -> None:
    """Run a scene on a store of its own."""

    async def run() -> None:
        async with await AsyncClient.open(folder) as client:
            await scene(client, EntityLayer(client))

    asyncio.run(run())


async def say(client: AsyncClient, first: int, last: int) -> None:
    """Publish turns of one session."""
    turns: list[Any] = [turn(at, "s", "t") for at in range(first, last + 1)]
    await client.publish_many(turns)


async def until(reached: Callable[[], Awaitable[bool]]) -> None:
    """Wait for something to come by the feed."""
    async with asyncio.timeout(20):
        while not await reached():
            await asyncio.sleep(0.01)


def test_who_follows_loads_once_and_hears_the_rest(tmp_path: Path) -> None:
    async def scene(client: AsyncClient, layer: EntityLayer) -> None:
        await say(client, 1, 3)
        following = asyncio.create_task(layer.follow())
        await asyncio.sleep(0)
        found = await asyncio.gather(*(layer.entity("t", "s") for _ in range(50)))
        assert {each["version"] for each in found} == {3}
        assert layer.loads == 1

        async def is_at_ten() -> bool:
            return bool((await layer.entity("t", "s"))["version"] == 10)

        await say(client, 4, 10)
        await until(is_at_ten)
        assert layer.loads == 1
        client.client.store.call("erase", tenant="t", session="s")

        async def is_gone() -> bool:
            try:
                await layer.entity("t", "s")
            except NotFoundError:
                return True
            return False

        await until(is_gone)
        await say(client, 11, 20)

        async def lives_again() -> bool:
            with suppress(NotFoundError):
                return bool((await layer.entity("t", "s"))["incarnation"] == 2)
            return False

        await until(lives_again)
        following.cancel()
        with suppress(asyncio.CancelledError):
            await following

    play(tmp_path, scene)


def test_who_does_not_follow_asks_every_time(tmp_path: Path) -> None:
    """What nobody tells of may be old: it is not kept."""

    async def scene(client: AsyncClient, layer: EntityLayer) -> None:
        with pytest.raises(NotFoundError):
            await layer.entity("t", "s")
        for last in (1, 2):
            await say(client, last, last)
            assert (await layer.entity("t", "s"))["version"] == last
        assert layer.loads == 3

    play(tmp_path, scene)


def test_what_runs_keeps_to_the_rules_of_the_layers() -> None:
    """Recent states for five minutes, Redis for half an hour to two hours."""
    assert recent_states.POOL_TTL_MS == SESSION_LAYER.ttl_ms(0) == 300_000
    hot_ms = 1000 * ClusterSettings().hot_ttl_s
    least_ms, most_ms = CONTEXT_LAYER.ttl_ms_min, CONTEXT_LAYER.ttl_ms_max
    assert least_ms is not None
    assert most_ms is not None
    assert least_ms <= hot_ms <= most_ms
