"""What the sessions of a corpus take in each tier, measured in real stores."""

import asyncio
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from support.hot_sessions import TurnedClock, raw_of, real_ms, settings
from turnstate.agents.ports import Record
from turnstate.agents.session.rebuild import refolder, session_key_of
from turnstate.agents.tiering.budget import RunBudget
from turnstate.replay.bench.corpora import corpus_files, dialogues
from turnstate.replay.readers import read_file
from turnstate.schemas.dialogue.phases import default_graph
from turnstate.schemas.ids import SessionName
from turnstate.schemas.position import Position
from turnstate.storage.hot.redis import RedisTier
from turnstate.storage.repair import OneSession
from turnstate.storage.tier import SessionChange
from turnstate.streams.embedded.owner import OwnedStore
from turnstate.streams.settings import Settings
from turnstate.streams.tiers.opening import OpenedTiers

HOT_SESSIONS: Final = 400
"""So many are put in Redis: enough for what is nobody's to be little."""

FRAMES_KEPT: Final = 8

_MONTH_MS: Final = 30 * 86_400_000
_AT_ONCE: Final = 2_000


class TierSizes(NamedTuple):
    """Bytes of all sessions of one corpus, and what was said in them.

    Attributes:
        corpus: Its name.
        sessions: How many.
        turns: In all of them.
        text: UTF-8 of what was said.
        hot_sessions: How many of them were put in Redis.
        hot_turns: Their last turns, whose frames are kept.
        hot_text: An estimate of what those say: as much a turn as all.
        hot: Memory of Redis for those.
        warm: Sealed and compacted.
        log: The log beside it.
        pointers: What stays in warm once all are cold.
        cold: The packs.
        packs: How many.
    """

    corpus: str
    sessions: int
    turns: int
    text: int
    hot_sessions: int
    hot_turns: int
    hot_text: float
    hot: int
    warm: int
    log: int
    pointers: int
    cold: int
    packs: int


def changes_of(path: Path) -> Iterator[list[SessionChange]]:
    """Yield the sessions of a corpus, each as hot is told of it, turn by turn."""
    turns: dict[bytes, list[bytes]] = {}
    for line in read_file(path, "corpus"):
        key = session_key_of(line) if isinstance(line, bytes) else None
        if key is not None and isinstance(line, bytes):
            turns.setdefault(key, []).append(line)
    for key, lines in turns.items():
        session = OneSession(key)
        agent = refolder(session, default_graph(), "log", TurnedClock())
        for at, line in enumerate(lines):
            record = Record(line, Position(b"log", 0, at))
            session.commit(agent.fold([record]).changes)
        yield session.changes


def corpus_name(path: Path) -> str:
    """Return the name of a corpus."""
    return path.name.partition(".")[0]


def measured_sizes(folder: Path, redis_url: str) -> Iterator[TierSizes]:
    """Yield the sizes of every corpus, each in a store of its own."""
    for path in corpus_files():
        name = corpus_name(path)
        yield _measured(path, Settings(data=folder / name), redis_url)


def _measured(path: Path, given: Settings, redis_url: str) -> TierSizes:
    name = corpus_name(path)
    lines = [turn for each in dialogues([name], small=False) for turn in each.turns]
    with OwnedStore(given, serving=False) as store:
        for at in range(0, len(lines), _AT_ONCE):
            for answer in store.publish(lines[at : at + _AT_ONCE]):
                assert answer.error is None
        store.seal()
        for table in ("segments", "log"):
            store.warm.compact(table)
        before = store.stats()
        tiers = OpenedTiers(given, store, store.clock)
        tiers.job.run(RunBudget(), at_ms=store.clock.now_ms() + _MONTH_MS)
        after = store.stats()
        assert after["tiers"]["cold"]["sessions"] == before["sessions"]
        packs = len(store.tiering.packs.manifests.latest().packs)
    sessions, turns, text = (before[n] for n in ("sessions", "turns", "text_bytes"))
    count, kept, used = asyncio.run(_in_redis(path, redis_url))
    return TierSizes(
        name,
        sessions,
        turns,
        text,
        hot_sessions=count,
        hot_turns=kept,
        hot_text=kept * text / turns,
        hot=used,
        warm=before["tiers"]["warm"]["bytes"],
        log=before["log_bytes"],
        pointers=after["tiers"]["warm"]["bytes"],
        cold=after["tiers"]["cold"]["bytes"],
        packs=packs,
    )


async def _in_redis(path: Path, url: str) -> tuple[int, int, int]:
    """Return how many sessions and turns were put in Redis, and what they take.

    A corpus with few sessions is put there several times, by other names.
    """
    told = list(islice(changes_of(path), HOT_SESSIONS))
    tier = RedisTier(settings(url, frames_kept=FRAMES_KEPT), now_ms=real_ms)
    async with raw_of(url) as raw:
        await raw.flushall()
        # Connection, scripts and the first tables are no session's.
        await tier.commit(told[0])
        before = await _held(raw)
        for number in range(HOT_SESSIONS):
            tenant, session = SessionName.from_key(told[number % len(told)][0].key)
            key = SessionName(tenant, f"{number:03}{session[3:]}").key()
            changes = told[number % len(told)]
            await tier.commit([change._replace(key=key) for change in changes])
        used = await _held(raw) - before
    await tier.close()
    copies = (told[number % len(told)] for number in range(HOT_SESSIONS))
    return HOT_SESSIONS, sum(min(len(each), FRAMES_KEPT) for each in copies), used


async def _held(raw: Any) -> int:
    """Return what Redis takes for what it holds, its buffers of clients apart."""
    told = await raw.info("memory")
    return int(told["used_memory"] - told["mem_clients_normal"])
