"""Redis killed, empty, full, slow, failed over: said at once, and gone on from."""

import asyncio
import os
import random
import signal
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from support.hot_sessions import (
    NAME,
    answering,
    changes,
    erased,
    opened,
    real_ms,
    refused,
    settings,
    with_tier,
)
from support.redis_nodes import ForgetfulRedis, Watched, until
from support.shared_services import started
from turnstate.infra.services.redis import RedisServer, start_redis
from turnstate.schemas.errors import FencedError, UnavailableError
from turnstate.schemas.ids import SessionName
from turnstate.storage.hot.blocking import BlockingTier
from turnstate.storage.hot.redis import RedisTier
from turnstate.storage.hot.redis_cache import HotCache
from turnstate.storage.hot.redis_connection import connect
from turnstate.storage.hot.redis_failures import FULL
from turnstate.storage.tier import SessionChange

KEY = NAME.key()
QUICK: dict[str, Any] = {"timeout_ms": 300, "retries": 1, "rest_ms": 200}

Start = Callable[..., ForgetfulRedis]


@pytest.fixture(name="start")
def fixture_start(tmp_path: Path) -> Generator[Start]:
    """Start a Redis in memory, with more words on its command line."""
    running: list[ForgetfulRedis] = []

    def start(*words: str) -> ForgetfulRedis:
        def begin(folder: Path) -> ForgetfulRedis:
            server = ForgetfulRedis(folder, *words)
            server.start()
            return server

        running.append(started(begin, tmp_path / f"redis-{len(running)}"))
        return running[-1]

    yield start
    for server in running:
        server.stop()


def test_killed_and_empty_again_it_is_filled_by_the_next_write(start: Start) -> None:
    server = start()
    made = changes(count=5)

    async def scene(tier: RedisTier) -> None:
        await tier.commit(made[:3])
        server.kill()
        error = await refused(tier)
        assert "cannot be reached" in error.message
        assert "see that it runs" in (error.hint or "")
        await asyncio.to_thread(server.restart)
        await answering(tier)
        assert await tier.heads([KEY]) == [None], "it has forgotten all, scripts too"
        await tier.commit(made[3:4])
        await tier.commit(made[4:])
        found = await tier.read(KEY)
        assert found is not None
        assert found.stored == made[4].after
        assert found.frames == (made[3].frame, made[4].frame)

    with_tier(settings(server.url, **QUICK), scene)


def test_one_that_is_away_costs_nothing_after_some_failures(start: Start) -> None:
    server = start()
    given = settings(server.url, **QUICK | {"failures_max": 3, "rest_ms": 60_000})

    async def scene(tier: RedisTier) -> None:
        await tier.commit(changes())
        server.kill()
        for _ in range(3):
            await refused(tier)
        assert tier.rests
        began = time.perf_counter()
        errors = [await refused(tier) for _ in range(100)]
        assert (time.perf_counter() - began) / 100 < 0.005
        assert "left alone" in errors[0].message
        with pytest.raises(UnavailableError, match="left alone"):
            await tier.commit(changes())

    with_tier(given, scene)


def test_a_slow_one_is_given_up_in_time_and_taken_up_again(start: Start) -> None:
    server = start()
    made = changes(count=3)

    async def scene(tier: RedisTier) -> None:
        await tier.commit(made[:1])
        assert server.ask("CLIENT", "PAUSE", "2500", "ALL") == "+OK"
        began = time.monotonic()
        error = await refused(tier)
        took = time.monotonic() - began
        assert "too slowly" in error.message
        assert 0.3 <= took <= tier.settings.longest_s + 1
        await answering(tier)
        await tier.commit(made[1:])
        assert await tier.heads([KEY]) == [made[2].after]

    with_tier(settings(server.url, **QUICK), scene)


def test_hanging_up_is_not_held_by_one_that_listens_to_nothing(tmp_path: Path) -> None:
    """A worker that gave a partition back ended by what redis-py says of that."""
    server: RedisServer = started(start_redis, tmp_path / "redis")
    assert server.pid is not None

    async def scene() -> None:
        slow = {"timeout_ms": 60_000, "connect_timeout_ms": 200}
        client = connect(settings(server.url, **slow))
        await client.commands.ping()
        os.kill(server.pid or 0, signal.SIGSTOP)
        writing = asyncio.ensure_future(client.commands.set("k", bytes(64 << 20)))
        await asyncio.wait([writing], timeout=0.5)
        assert not writing.done()
        async with asyncio.timeout(5):
            await client.close()
        writing.cancel()
        await asyncio.wait([writing])
        # What was still to be sent keeps the socket until the other end is gone.
        os.kill(server.pid or 0, signal.SIGKILL)
        await asyncio.sleep(0.2)

    try:
        asyncio.run(scene())
    finally:
        server.stop()


def test_a_write_that_was_given_up_and_came_late_breaks_nothing(start: Start) -> None:
    """The bytes lie in the server's socket while the client is told no."""
    server = start()
    made = changes(count=6)

    async def scene(tier: RedisTier) -> None:
        await tier.commit(made[:2])
        server.ask("CLIENT", "PAUSE", "1200", "WRITE")
        with pytest.raises(UnavailableError):
            await tier.commit(made[2:3])
        await asyncio.sleep(1.5)
        await answering(tier)
        await tier.commit(made[3:4])
        found = await tier.read(KEY)
        assert found is not None
        assert found.stored == made[3].after
        assert found.frames[-1] == made[3].frame
        await tier.commit(made[4:])
        assert await tier.heads([KEY]) == [made[5].after]

    with_tier(settings(server.url, **QUICK), scene)


def fat(at: int) -> list[SessionChange]:
    """Return changes of a session with long turns that cannot be packed."""
    text = random.Random(at).randbytes(40_000).hex()
    return changes(SessionName("t", f"fat{at}"), 2, content=text)


def test_a_full_one_takes_no_half_writes_and_still_answers(start: Start) -> None:
    server = start("--maxmemory", "5mb", "--maxmemory-policy", "noeviction")
    made = changes(count=3)

    async def scene(tier: RedisTier) -> None:
        await tier.commit(made[:1])
        full: UnavailableError | None = None
        for at in range(1_000):
            try:
                await tier.commit(fat(at))
            except UnavailableError as error:
                full = error
                break
        assert full is not None
        assert (full.code, full.message) == (FULL, "Redis is full (maxmemory)")
        assert "maxmemory" in (full.hint or "")
        assert await tier.heads([KEY]) == [made[0].after], "reads go on"
        # Not even room for something small, whatever buffers were freed.
        server.ask("CONFIG", "SET", "maxmemory", "2mb")
        for _ in range(20):
            with pytest.raises(UnavailableError, match="full"):
                await tier.commit(made[1:2])
        assert not tier.rests
        assert await tier.heads([KEY]) == [made[0].after]
        report = await tier.sweep(mend=False)
        assert report.is_sound, "no head without body, no key without TTL"
        await tier.commit([erased(made[0])])
        (head,) = await tier.heads([KEY])
        assert head is not None
        assert head.erased, "an erase needs no room"
        await tier.erase(KEY, 2)
        assert await tier.heads([KEY]) == [None], "nor does this"
        with pytest.raises(FencedError, match="erased"):
            await tier.commit(made[1:2])
        await tier.drop_all(await tier.keys())
        await tier.commit(fat(0))

    with_tier(settings(server.url), scene)


def test_one_that_throws_keys_away_is_no_danger(start: Start) -> None:
    server = start("--maxmemory", "4mb", "--maxmemory-policy", "allkeys-random")

    async def scene(tier: RedisTier) -> None:
        for at in range(60):
            await tier.commit(fat(at))
        found = [
            await tier.read(SessionName("t", f"fat{at}").key()) for at in range(60)
        ]
        assert 10 < found.count(None) < 60
        for at, session in enumerate(found):
            if session is not None:
                assert session.stored == fat(at)[-1].after
        await tier.sweep()
        assert (await tier.sweep()).is_sound

    with_tier(settings(server.url), scene)


def test_a_replica_says_that_it_is_one(start: Start) -> None:
    master = start()
    replica = start("--replicaof", f"127.0.0.1 {master.port('redis')}")
    until(lambda: "master_link_status:up" in replica.ask("INFO", "replication"))

    async def scene(tier: RedisTier) -> None:
        with pytest.raises(UnavailableError, match="is a replica") as raised:
            await tier.commit(changes())
        assert "master" in (raised.value.hint or "")

    with_tier(settings(replica.url, **QUICK), scene)


def test_a_wrong_password_is_said_without_it(start: Start) -> None:
    server = start()
    assert server.ask("CONFIG", "SET", "requirepass", "right") == "+OK"
    host = server.url.removeprefix("redis://")

    async def scene(tier: RedisTier) -> None:
        error = await refused(tier)
        assert "refused the password" in error.message
        assert "wrong-secret" not in str(error)

    with_tier(settings(f"redis://:wrong-secret@{host}", **QUICK), scene)
    assert with_tier(
        settings(f"redis://:right@{host}"), lambda tier: tier.heads([KEY])
    ) == [None]


def test_connections_are_bounded_however_many_ask(start: Start) -> None:
    server = start()

    async def scene() -> None:
        given = settings(server.url, connections_max=3)
        async with opened(given) as tier:
            await tier.commit(changes())
            found = await asyncio.gather(*[tier.read(KEY) for _ in range(500)])
            assert None not in found
            clients = server.ask("CLIENT", "LIST").splitlines()
            assert 1 <= len([line for line in clients if "name=" in line]) <= 4

    asyncio.run(scene())


def test_a_caller_that_is_cancelled_ends_wherever_it_is(start: Start) -> None:
    """Found: redis-py swallows it where it has just sent something."""
    server = start()

    async def scene(tier: RedisTier) -> None:
        async def ask_for_ever() -> None:
            while True:
                await tier.heads([KEY])

        for steps in range(200):
            asking = asyncio.ensure_future(ask_for_ever())
            for _ in range(steps % 40):
                await asyncio.sleep(0)
            asking.cancel()
            await asyncio.wait([asking], timeout=10)
            assert asking.cancelled(), f"after {steps} steps"

    with_tier(settings(server.url), scene)


def test_a_failover_is_followed(tmp_path: Path) -> None:
    def begin(folder: Path) -> Watched:
        watched = Watched(folder)
        try:
            watched.start()
        except BaseException:
            watched.stop()
            raise
        return watched

    watched = started(begin, tmp_path)
    made = changes(count=8)

    async def scene(tier: RedisTier) -> None:
        await tier.commit(made[:3])
        await asyncio.to_thread(
            until, lambda: watched.replica.ask("DBSIZE") == watched.master.ask("DBSIZE")
        )
        watched.master.kill()
        await refused(tier)
        await answering(tier)
        # A write needs the new master, not only one who answers.
        for change in made[3:]:
            await tier.commit([change])
        found = await tier.read(KEY)
        assert found is not None
        assert found.stored == made[7].after
        assert "role:master" in watched.replica.ask("INFO", "replication")

    try:
        with_tier(settings(watched.url, **QUICK | {"timeout_ms": 1_000}), scene)
    finally:
        watched.stop()


def test_a_blocking_caller_gets_the_same_errors(start: Start) -> None:
    server = start()
    tier = BlockingTier(
        HotCache(RedisTier(settings(server.url, **QUICK), now_ms=real_ms))
    )
    plain = BlockingTier(RedisTier(settings(server.url, **QUICK), now_ms=real_ms))
    try:
        tier.commit(changes())
        assert (tier.name, tier.capabilities) == ("hot", frozenset())
        assert tier.heads([KEY]) == [changes()[0].after]
        assert list(tier.frames(KEY, 1, 0)) == [changes()[0].frame]
        assert list(tier.keys()) == [KEY]
        server.kill()
        assert tier.heads([KEY]) == [None]
        with pytest.raises(UnavailableError, match="cannot be reached"):
            plain.heads([KEY])
    finally:
        for each in (tier, plain):
            each.close()
            each.close()
    with pytest.raises(UnavailableError, match="closed"):
        plain.heads([KEY])
