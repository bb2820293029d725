"""Sessions as a hot tier is told of them, and Redis tiers to tell."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from uuid import uuid4

import msgspec
import pytest
from redis.asyncio import Redis

from turnstate.agents.ports import Record
from turnstate.agents.session.rebuild import refolder
from turnstate.schemas.dialogue.head import EMPTY_HEAD
from turnstate.schemas.dialogue.phases import default_graph
from turnstate.schemas.errors import UnavailableError
from turnstate.schemas.ids import SessionName
from turnstate.schemas.position import Position
from turnstate.storage.frames.header import decode_header
from turnstate.storage.hot.redis import HotSession, RedisTier
from turnstate.storage.hot.redis_connection import RedisSettings
from turnstate.storage.repair import OneSession
from turnstate.storage.stored_head import StoredHead, encode_stored_head
from turnstate.storage.tier import SessionChange

Answer = TypeVar("Answer")

NAME = SessionName("t", "s")


class TurnedClock:
    """A clock that stands where it was turned to."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.at_ms = now_ms

    def now_ms(self) -> int:
        return self.at_ms


def changes(
    name: SessionName = NAME, count: int = 1, *, start: int = 0, **fields: Any
) -> list[SessionChange]:
    """Return changes of one turn each, every one decided from the one before.

    Args:
        name: The session.
        count: How many turns.
        start: The number of the first; with another one the session is told
            otherwise, to the same versions.
        fields: More fields of each turn.
    """
    session = OneSession(name.key())
    agent = refolder(session, default_graph(), "log", TurnedClock())
    for at in range(start, start + count):
        turn = {"turn_id": f"id{at}", "role": "user", "content": f"turn {at}"}
        body = {"tenant": name.tenant, "session": name.session, **turn, **fields}
        record = Record(msgspec.json.encode(body), Position(b"log", 0, at))
        session.commit(agent.fold([record]).changes)
    return session.changes


def erased(change: SessionChange) -> SessionChange:
    """Return the change by which the session of a change is erased."""
    ended = change.after.head.incarnation
    head = msgspec.structs.replace(EMPTY_HEAD, incarnation=ended + 1)
    tombstone = StoredHead(head, erased=True)
    row = encode_stored_head(tombstone)
    return SessionChange(change.key, change.after, tombstone, row, erased=ended)


def settings(url: str, **fields: Any) -> RedisSettings:
    """Return settings with keys of their own, patient as a busy machine needs."""
    given: dict[str, Any] = {"prefix": uuid4().hex, "timeout_ms": 5_000, **fields}
    return RedisSettings(url, **given)


def real_ms() -> int:
    """Return the time, in epoch milliseconds."""
    return time.time_ns() // 1_000_000


@asynccontextmanager
async def opened(
    given: RedisSettings, now_ms: Callable[[], int] = real_ms
) -> AsyncGenerator[RedisTier]:
    """Give a tier, and close it."""
    tier = RedisTier(given, now_ms=now_ms)
    try:
        yield tier
    finally:
        await tier.close()


def with_tier(
    given: RedisSettings,
    call: Callable[[RedisTier], Awaitable[Answer]],
    now_ms: Callable[[], int] = real_ms,
) -> Answer:
    """Open a tier, do something with it on a loop, and close it."""

    async def done() -> Answer:
        async with opened(given, now_ms) as tier:
            return await call(tier)

    return asyncio.run(done())


@asynccontextmanager
async def raw_of(url: str) -> AsyncGenerator[Any]:
    """Give a plain client, to do something to a Redis behind a tier's back."""
    plain: Any = Redis
    async with plain.from_url(url) as raw:
        yield raw


def with_raw(url: str, call: Callable[[Any], Awaitable[Any]]) -> Any:
    """Do one thing to a Redis behind a tier's back."""

    async def done() -> Any:
        async with raw_of(url) as raw:
            return await call(raw)

    return asyncio.run(done())


def versions(session: HotSession | None) -> list[int]:
    """Return to which versions the frames of a session lead."""
    return (
        [decode_header(frame).to_version for frame in session.frames] if session else []
    )


async def refused(tier: RedisTier) -> UnavailableError:
    """Return the error of a read."""
    with pytest.raises(UnavailableError) as raised:
        await tier.heads([NAME.key()])
    return raised.value


async def answering(tier: RedisTier, within_s: float = 30) -> None:
    """Wait until Redis answers again."""
    deadline = time.monotonic() + within_s
    while True:
        try:
            await tier.heads([NAME.key()])
        except UnavailableError:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)
        else:
            return
