"""The layers of the cache: how long, how written, how read, where."""

import asyncio
from collections import Counter

import pytest

from turnstate.agents.tiering.layers import (
    CONTEXT_LAYER,
    ENTITY_LAYER,
    LAYERS,
    SESSION_LAYER,
    Entry,
    LayeredCache,
    LayerRule,
    MemoryLayer,
    placed_on,
)
from turnstate.schemas.errors import InvalidInputError, UnavailableError

MINUTE_MS = 60_000


class Clock:
    """A clock that is turned by hand."""

    def __init__(self) -> None:
        self.at_ms = 0

    def now_ms(self) -> int:
        return self.at_ms


class Below:
    """What lies below a layer: a dictionary that counts, and fails when told to."""

    def __init__(self) -> None:
        self.rows: dict[bytes, tuple[int, bytes]] = {}
        self.loads = 0
        self.saves = 0
        self.away = False

    async def load(self, key: bytes) -> tuple[int, bytes] | None:
        self.loads += 1
        await asyncio.sleep(0)
        self._check()
        return self.rows.get(key)

    async def save(self, key: bytes, version: int, value: bytes) -> None:
        self._check()
        self.saves += 1
        if key not in self.rows or self.rows[key][0] < version:
            self.rows[key] = (version, value)

    def _check(self) -> None:
        if self.away:
            raise UnavailableError("the source is away")


class Broken:
    """A store that is away."""

    async def get(self, key: bytes) -> Entry | None:
        raise UnavailableError("the store is away")

    async def put(self, key: bytes, entry: Entry) -> None:
        raise UnavailableError("the store is away")

    async def delete(self, key: bytes) -> None:
        raise UnavailableError("the store is away")


def layer(
    rule: LayerRule, nodes: int = 1, behind_max: int = 100
) -> tuple[LayeredCache, Below, Clock]:
    below, clock = Below(), Clock()
    stores = {f"node{number}": MemoryLayer(100) for number in range(nodes)}
    cache = LayeredCache(rule, stores, below, clock, behind_max=behind_max)
    return cache, below, clock


def test_the_rules_are_those_of_the_layers() -> None:
    assert list(LAYERS) == ["session", "context", "entity"]
    assert SESSION_LAYER.ttl_ms(9) == 5 * MINUTE_MS
    assert CONTEXT_LAYER.ttl_ms(0) == 30 * MINUTE_MS
    assert CONTEXT_LAYER.ttl_ms(1_000) == 120 * MINUTE_MS
    assert ENTITY_LAYER.ttl_ms(0) is None


def test_the_session_layer_writes_through_and_forgets_after_five_minutes() -> None:
    async def scene() -> None:
        cache, below, clock = layer(SESSION_LAYER)
        await cache.write(b"k", 3, b"three")
        assert below.rows[b"k"] == (3, b"three")
        clock.at_ms += 5 * MINUTE_MS - 1
        assert await cache.read(b"k") == (3, b"three")
        assert below.loads == 0
        clock.at_ms += 1
        assert await cache.read(b"k") == (3, b"three")
        assert below.loads == 1

    asyncio.run(scene())


def test_a_write_through_that_fails_changes_nothing() -> None:
    async def scene() -> None:
        cache, below, _ = layer(SESSION_LAYER)
        await cache.write(b"k", 1, b"one")
        below.away = True
        with pytest.raises(UnavailableError):
            await cache.write(b"k", 2, b"two")
        assert await cache.read(b"k") == (1, b"one")

    asyncio.run(scene())


def test_the_context_layer_writes_behind_the_newest_version_once() -> None:
    async def scene() -> None:
        cache, below, _ = layer(CONTEXT_LAYER, nodes=3)
        for version in (1, 2, 5, 4):
            await cache.write(b"k", version, b"%d" % version)
        assert below.saves == 0
        assert await cache.read(b"k", at_least=5) == (5, b"5")
        assert await cache.flush() == 1
        assert below.rows[b"k"] == (5, b"5")
        assert cache.waiting == 0
        assert await cache.flush() == 0

    asyncio.run(scene())


def test_what_cannot_be_written_behind_waits() -> None:
    """Nothing that was taken is lost while the source is away."""

    async def scene() -> None:
        cache, below, _ = layer(CONTEXT_LAYER)
        await cache.write(b"k", 1, b"one")
        below.away = True
        with pytest.raises(UnavailableError):
            await cache.flush()
        assert await cache.read(b"k") == (1, b"one")
        below.away = False
        assert await cache.flush() == 1
        assert below.rows[b"k"] == (1, b"one")

    asyncio.run(scene())


def test_writes_behind_are_bounded() -> None:
    async def scene() -> None:
        cache, below, _ = layer(CONTEXT_LAYER, behind_max=2)
        for number in range(5):
            await cache.write(b"%d" % number, 1, b"v")
            assert cache.waiting <= 2
        assert below.saves == 4

    asyncio.run(scene())


def test_an_older_version_than_asked_for_is_a_miss() -> None:
    async def scene() -> None:
        cache, below, _ = layer(CONTEXT_LAYER)
        below.rows[b"k"] = (1, b"old")
        assert await cache.read(b"k") == (1, b"old")
        below.rows[b"k"] = (2, b"new")
        assert await cache.read(b"k") == (1, b"old")
        assert await cache.read(b"k", at_least=2) == (2, b"new")

    asyncio.run(scene())


def test_the_entity_layer_loads_once_for_all_who_wait() -> None:
    async def scene() -> None:
        cache, below, clock = layer(ENTITY_LAYER)
        below.rows[b"k"] = (10, b"entity")
        found = await asyncio.gather(*(cache.read(b"k") for _ in range(1_000)))
        assert found == [(10, b"entity")] * 1_000
        assert below.loads == 1
        clock.at_ms += 365 * 24 * 60 * MINUTE_MS
        assert await cache.read(b"k") == (10, b"entity")
        assert below.loads == 1

    asyncio.run(scene())


def test_a_load_that_fails_fails_for_all_and_is_tried_again() -> None:
    async def scene() -> None:
        cache, below, _ = layer(ENTITY_LAYER)
        below.away = True
        found = await asyncio.gather(
            *(cache.read(b"k") for _ in range(3)), return_exceptions=True
        )
        assert [type(each) for each in found] == [UnavailableError] * 3
        below.away = False
        below.rows[b"k"] = (1, b"v")
        assert await cache.read(b"k") == (1, b"v")

    asyncio.run(scene())


def test_a_store_that_is_away_is_a_miss() -> None:
    async def scene() -> None:
        below = Below()
        cache = LayeredCache(SESSION_LAYER, {"only": Broken()}, below, Clock())
        await cache.write(b"k", 1, b"one")
        assert await cache.read(b"k") == (1, b"one")
        assert cache.store_failures == 3
        with pytest.raises(UnavailableError):
            await cache.forget(b"k")

    asyncio.run(scene())


def test_what_is_forgotten_is_not_written_behind() -> None:
    async def scene() -> None:
        cache, below, _ = layer(CONTEXT_LAYER, nodes=2)
        await cache.write(b"k", 1, b"secret")
        await cache.forget(b"k")
        assert await cache.flush() == 0
        assert await cache.read(b"k") is None
        assert below.rows == {}

    asyncio.run(scene())


def test_a_newer_version_is_not_replaced_by_an_older_one() -> None:
    async def scene() -> None:
        store = MemoryLayer(2)
        await store.put(b"k", Entry(5, b"new"))
        await store.put(b"k", Entry(4, b"old"))
        assert await store.get(b"k") == Entry(5, b"new")
        await store.put(b"a", Entry(1, b""))
        await store.get(b"k")
        await store.put(b"b", Entry(1, b""))
        assert await store.get(b"a") is None

    asyncio.run(scene())


def test_keys_spread_over_the_nodes_and_move_only_with_theirs() -> None:
    nodes = ["a", "b", "c", "d"]
    keys = [b"%d" % number for number in range(4_000)]
    before = {key: placed_on(key, nodes) for key in keys}
    after = {key: placed_on(key, [*nodes, "e"]) for key in keys}

    assert min(Counter(before.values()).values()) > 850
    assert {after[key] for key in keys if after[key] != before[key]} == {"e"}
    moved = sum(after[key] != before[key] for key in keys)
    assert 600 < moved < 1_000


def test_without_a_node_there_is_no_place() -> None:
    with pytest.raises(InvalidInputError):
        placed_on(b"k", [])
