"""The hot tier on a Cluster that loses a master, or moves a slot."""

import asyncio
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from redis.crc import key_slot

from support.hot_sessions import NAME, answering, changes, refused, settings, with_tier
from support.redis_nodes import until
from support.shared_services import started
from turnstate.infra.services.redis_cluster import (
    SLOTS,
    RedisCluster,
    ask,
    start_redis_cluster,
)
from turnstate.schemas.errors import UnavailableError
from turnstate.schemas.ids import SessionName
from turnstate.storage.hot.redis import RedisTier
from turnstate.storage.hot.redis_keys import keys_of

KEY = NAME.key()
QUICK: dict[str, Any] = {"timeout_ms": 2_000, "retries": 1, "rest_ms": 200}


@pytest.fixture(name="own_cluster")
def fixture_own_cluster(tmp_path: Path) -> Generator[RedisCluster]:
    cluster = started(start_redis_cluster, tmp_path)
    yield cluster
    cluster.stop()


def test_a_cluster_that_lost_a_master_says_so_and_goes_on(
    own_cluster: RedisCluster,
) -> None:
    names = [SessionName("t", f"s{at}") for at in range(60)]

    async def scene(tier: RedisTier) -> None:
        await tier.commit([changes(name)[0] for name in names])
        own_cluster.nodes[1].kill()
        with pytest.raises(UnavailableError) as raised:
            await tier.heads([name.key() for name in names])
        assert raised.value.hint
        until(lambda: own_cluster.state == "crashed")
        await asyncio.to_thread(own_cluster.start)
        await answering(tier)
        heads = await tier.heads([name.key() for name in names])
        assert 10 < heads.count(None) < 50, "what lay on the one that was killed"
        await tier.commit([changes(name, 2)[1] for name in names])
        assert None not in await tier.heads([name.key() for name in names])

    with_tier(settings(own_cluster.url, **QUICK), scene)


def told(cluster: RedisCluster, node: int, *words: str) -> str:
    """Return what a node answers to a CLUSTER command."""
    return ask(cluster.nodes[node].port("redis"), "CLUSTER", *words)


def test_a_slot_that_moved_is_followed_and_a_circle_is_not(
    own_cluster: RedisCluster,
) -> None:
    given = settings(own_cluster.url, **QUICK)
    slot = key_slot(keys_of(given.prefix, KEY).head)
    home = slot * 3 // SLOTS
    there = (home + 1) % 3
    ids = [told(own_cluster, node, "MYID").strip() for node in range(3)]
    made = changes(count=2)

    async def scene(tier: RedisTier) -> None:
        await tier.commit(made[:1])
        await tier.drop(KEY)
        for node in (there, home):
            told(own_cluster, node, "SETSLOT", str(slot), "NODE", ids[there])
        await tier.commit(made)
        assert await tier.heads([KEY]) == [made[1].after]
        assert told(own_cluster, there, "COUNTKEYSINSLOT", str(slot)) == ":2"
        # Now each of the two sends to the other.
        await tier.drop(KEY)
        told(own_cluster, there, "SETSLOT", str(slot), "NODE", ids[home])
        began = time.monotonic()
        error = await refused(tier)
        assert time.monotonic() - began < tier.settings.longest_s + 1
        assert "from node to node" in error.message
        assert "CLUSTER NODES" in (error.hint or "")

    with_tier(given, scene)
