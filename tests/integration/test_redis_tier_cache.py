"""Redis as a pipeline uses it: away at any time, and never stale for fresh."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from support.hot_sessions import NAME, changes, erased, real_ms, settings
from support.redis_nodes import ForgetfulRedis
from support.shared_services import started
from turnstate.schemas.errors import FencedError, UnavailableError
from turnstate.schemas.ids import SessionName
from turnstate.storage.hot.redis import HotSession, RedisTier
from turnstate.storage.hot.redis_cache import HotCache
from turnstate.storage.hot.redis_connection import RedisSettings
from turnstate.storage.hot.redis_keys import keys_of
from turnstate.storage.tier import SessionChange

KEY = NAME.key()
QUICK: dict[str, Any] = {
    "timeout_ms": 300,
    "retries": 0,
    "rest_ms": 1,
    "failures_max": 100,
}


@pytest.fixture(name="server")
def fixture_server(tmp_path: Path) -> Generator[ForgetfulRedis]:
    def begin(folder: Path) -> ForgetfulRedis:
        server = ForgetfulRedis(folder)
        server.start()
        return server

    server = started(begin, tmp_path)
    yield server
    server.stop()


@asynccontextmanager
async def cached(given: RedisSettings, **fields: Any) -> AsyncGenerator[HotCache]:
    cache = HotCache(RedisTier(given, now_ms=real_ms), **fields)
    try:
        yield cache
    finally:
        await cache.close()


Scene = Callable[[HotCache, RedisTier], Awaitable[None]]


def played(server: ForgetfulRedis, scene: Scene, **fields: Any) -> None:
    """Give a scene the owner's cache, and the tier as another reader has it."""
    given = settings(server.url, **QUICK)

    async def play() -> None:
        async with cached(given, **fields) as cache, cached(given) as other:
            await scene(cache, other.tier)

    asyncio.run(play())


def is_away(cache: HotCache) -> bool:
    return cache.failure is not None


def away(server: ForgetfulRedis, *, for_ms: int = 700) -> None:
    """Let Redis answer no write for a while; what it holds stays."""
    assert server.ask("CLIENT", "PAUSE", str(for_ms), "WRITE") == "+OK"


def full(server: ForgetfulRedis, *, to_the_brim: bool = True) -> None:
    server.ask("CONFIG", "SET", "maxmemory", "1" if to_the_brim else "0")


def test_a_lost_write_is_no_error_and_its_session_is_not_served(
    server: ForgetfulRedis,
) -> None:
    made = changes(count=4)

    async def scene(cache: HotCache, other: RedisTier) -> None:
        await cache.commit(made[:1])
        assert await cache.heads([KEY]) == [made[0].after]
        away(server)
        await cache.commit(made[1:2])
        assert (cache.lost_writes, cache.stale_count) == (1, 1)
        assert is_away(cache)
        assert await cache.heads([KEY]) == [None]
        assert await cache.read(KEY) is None
        assert await cache.frames(KEY, 1, 0) == []
        await asyncio.sleep(1)
        assert await cache.heads([KEY]) == [None], "not yet written again"
        await cache.commit(made[2:3])
        assert cache.stale_count == 0
        assert cache.failure is None
        assert await cache.heads([KEY]) == [made[2].after]
        assert await other.heads([KEY]) == [made[2].after]

    played(server, scene)


def test_what_is_stale_is_forgotten_before_other_readers_see_it_for_long(
    server: ForgetfulRedis,
) -> None:
    """A session that is not written again goes with the next write of any."""
    made, later = changes(count=2), changes(SessionName("t", "later"))

    async def scene(cache: HotCache, other: RedisTier) -> None:
        await cache.commit(made[:1])
        full(server)
        server.ask("CLIENT", "PAUSE", "700", "ALL")
        await cache.commit(made[1:])
        await asyncio.sleep(1)
        full(server, to_the_brim=False)
        assert await other.heads([KEY]) == [made[0].after], "as of then"
        await cache.commit(later)
        assert await other.heads([KEY]) == [None]
        assert await cache.heads([KEY, later[0].key]) == [None, later[0].after]
        assert cache.stale_count == 0

    played(server, scene)


def test_a_full_redis_loses_what_it_cannot_keep_fresh(server: ForgetfulRedis) -> None:
    made = changes(count=3)

    async def scene(cache: HotCache, other: RedisTier) -> None:
        await cache.commit(made[:1])
        full(server)
        await cache.commit(made[1:2])
        assert cache.lost_writes == 1
        assert await other.heads([KEY]) == [None], "nothing, in place of what is old"
        assert cache.stale_count == 0
        full(server, to_the_brim=False)
        await cache.commit(made[2:])
        assert await other.heads([KEY]) == [made[2].after]

    played(server, scene)


def test_a_reader_that_knows_where_warm_stands_gets_nothing_below(
    server: ForgetfulRedis,
) -> None:
    """As after a failover that lost the last writes: nobody was told."""
    made = changes(count=3)

    async def scene(cache: HotCache, other: RedisTier) -> None:
        await cache.commit(made[:2])
        found = await cache.read(KEY, known=made[1].after)
        assert found is not None
        assert found.stored == made[1].after
        assert await cache.read(KEY, known=made[0].after) is not None
        assert await cache.read(KEY, known=made[2].after) is None
        assert await other.heads([KEY]) == [None], "forgotten for all"
        await cache.commit(made[2:])
        assert await cache.read(KEY, known=erased(made[2]).after) is None

    played(server, scene)


def test_what_an_earlier_owner_left_is_served_only_by_comparison(
    server: ForgetfulRedis,
) -> None:
    made, void = changes(count=3), changes(count=2, start=100)

    async def scene(cache: HotCache, other: RedisTier) -> None:
        await other.commit(made[:2])
        cache.tier.epoch = 5
        assert await cache.heads([KEY]) == [None]
        assert await cache.read(KEY) is None
        found = await cache.read(KEY, known=made[1].after)
        assert found is not None
        assert (found.stored, found.epoch) == (made[1].after, 0)
        for another in (void[1].after, made[0].after):
            assert await cache.read(KEY, known=another) is None, "it may be void"
        await cache.commit(made[2:])
        assert await cache.heads([KEY]) == [made[2].after]
        assert await cache.frames(KEY, 1, 0) == [made[2].frame], "nor its frames"
        with pytest.raises(FencedError):
            await other.commit(changes(count=4)[3:])

    played(server, scene)


def test_a_later_owner_fences_this_one(server: ForgetfulRedis) -> None:
    made = changes(count=2)

    async def scene(cache: HotCache, other: RedisTier) -> None:
        other.epoch = 1
        await other.commit(made[:1])
        with pytest.raises(FencedError, match="later owner"):
            await cache.commit(made[1:])

    played(server, scene)


def test_too_many_stale_sessions_give_up_all_that_was_written(
    server: ForgetfulRedis,
) -> None:
    names = [SessionName("t", f"s{at}") for at in range(8)]
    keys = [name.key() for name in names]
    made = [changes(name, 2) for name in names]

    async def scene(cache: HotCache, other: RedisTier) -> None:
        await cache.commit([two[0] for two in made])
        away(server)
        await cache.commit([two[1] for two in made[:5]])
        assert cache.stale_count == 0
        assert cache.tier.generation == 1
        await asyncio.sleep(1)
        assert await cache.heads(keys) == [None] * 8
        assert await other.heads(keys[7:]) == [made[7][0].after]
        await cache.commit([two[1] for two in made[5:]])
        heads = await cache.heads(keys)
        assert heads == [None] * 5 + [two[1].after for two in made[5:]]

    played(server, scene, stale_max=4)


def test_an_erase_says_that_redis_was_away_and_is_made_up_for(
    server: ForgetfulRedis,
) -> None:
    first, second = changes(count=2)

    async def scene(cache: HotCache, other: RedisTier) -> None:
        await cache.commit([first])
        away(server)
        with pytest.raises(UnavailableError):
            await cache.erase(KEY, 1)
        assert await cache.heads([KEY]) == [None]
        await asyncio.sleep(1)
        assert await cache.settle() == 0
        with pytest.raises(FencedError, match="erased"):
            await other.commit([second])
        await cache.erase(KEY, 1)
        await cache.commit([second])
        assert cache.refused_lives == 1
        assert await other.heads([KEY]) == [None]

    played(server, scene)


def test_an_erase_that_was_lost_as_a_change_is_made_up_for_with_its_tombstone(
    server: ForgetfulRedis,
) -> None:
    first, second = changes(count=2)

    async def scene(cache: HotCache, other: RedisTier) -> None:
        await cache.commit([first])
        server.ask("CLIENT", "PAUSE", "700", "ALL")
        await cache.commit([erased(first)])
        assert cache.stale_count == 1
        server.kill()
        await asyncio.to_thread(server.restart)
        await cache.commit(changes(SessionName("t", "other")))
        assert cache.stale_count == 0
        with pytest.raises(FencedError, match="erased"):
            await other.commit([second])

    played(server, scene)


def test_redis_gone_for_good_costs_no_more_than_speed(server: ForgetfulRedis) -> None:
    made = changes(count=3)

    async def scene(cache: HotCache, _other: RedisTier) -> None:
        await cache.commit(made[:1])
        server.kill()
        await cache.commit(made[1:])
        await cache.drop(b"\0\1tx")
        assert await cache.heads([KEY]) == [None]
        assert await cache.keys() == []
        assert await cache.fill([HotSession(KEY, made[2].after, ())], stands_at()) == 0
        assert await cache.settle() == 2
        assert cache.failure is not None

    played(server, scene)


def test_redis_empty_again_is_filled_by_writes(server: ForgetfulRedis) -> None:
    made = changes(count=3)

    async def scene(cache: HotCache, _other: RedisTier) -> None:
        await cache.commit(made[:2])
        server.kill()
        await asyncio.to_thread(server.restart)
        await cache.commit(made[2:])
        assert (cache.lost_writes, cache.stale_count) == (0, 0)
        assert await cache.heads([KEY]) == [made[2].after]

    played(server, scene)


def test_a_damaged_head_is_forgotten_and_harms_no_other(
    server: ForgetfulRedis,
) -> None:
    names = [SessionName("t", "good"), NAME]
    made = [changes(name)[0] for name in names]

    async def scene(cache: HotCache, other: RedisTier) -> None:
        head = keys_of(cache.tier.settings.prefix, KEY).head.decode()
        await cache.commit(made)
        server.ask("SETRANGE", head, "60", "!")
        assert await cache.heads([name.key() for name in names]) == [
            made[0].after,
            None,
        ]
        assert await other.heads([KEY]) == [None]
        await cache.commit(made[1:])
        server.ask("SETRANGE", head, "60", "!")
        assert await cache.read(KEY) is None
        assert await other.heads([KEY]) == [None]

    played(server, scene)


def stands_at(*stands: tuple[int, int] | None) -> Callable[[Sequence[bytes]], Any]:
    """Return what tells where sessions stand in warm."""
    return lambda _keys: stands


def session_of(change: SessionChange) -> HotSession:
    return HotSession(change.key, change.after, (change.frame or b"",))


def test_a_fill_that_warm_has_overtaken_is_taken_back(server: ForgetfulRedis) -> None:
    made = changes(count=2)
    session = session_of(made[0])

    async def scene(cache: HotCache, other: RedisTier) -> None:
        assert await cache.fill([session], stands_at((1, 1))) == 1
        assert await cache.heads([KEY]) == [made[0].after]
        await cache.drop(KEY)
        for stand in ((1, 2), (2, 0), None):
            assert await cache.fill([session], stands_at(stand)) == 0
            assert await other.heads([KEY]) == [None]

    played(server, scene)


def test_a_fill_between_a_lost_write_and_its_amends_is_not_made(
    server: ForgetfulRedis,
) -> None:
    made = changes(count=2)

    async def scene(cache: HotCache, other: RedisTier) -> None:
        away(server)
        await cache.commit(made)
        await asyncio.sleep(1)
        assert await cache.fill([session_of(made[0])], stands_at()) == 0
        assert await cache.settle() == 0
        assert await other.heads([KEY]) == [None]

    played(server, scene)
