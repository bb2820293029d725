"""Two ways to let a session go from hot to warm, under one load of reads and writes.

What B3 compares. Sessions are spoken in and read in Redis, where they have a
TTL; a log has every turn. Warm is written late: *alone*, when hot has let a
session go, or *joint*, while hot still has it and 15 % of its TTL are left. A
reader that finds nothing in hot, and in warm nothing or an older version, is an
error of the tiers; the session is then rebuilt from the log, and the reader waits.
"""

import asyncio
import time
from collections.abc import Iterator
from functools import partial
from itertools import accumulate
from random import Random
from typing import Final, NamedTuple

import msgspec

from support.hot_sessions import TurnedClock, real_ms
from turnstate.agents.ports import Record
from turnstate.agents.session.rebuild import rebuild, refolder
from turnstate.agents.tiering.decay import THIRD_POINT
from turnstate.schemas.dialogue.phases import default_graph
from turnstate.schemas.ids import SessionName
from turnstate.schemas.position import Position
from turnstate.storage.hot.redis import HotSession, RedisTier
from turnstate.storage.repair import OneSession
from turnstate.storage.tier import SessionChange
from turnstate.storage.warm.rocksdb import WarmStore

SESSIONS: Final = 1_500
TURNS_MAX: Final = 24
AT_ONCE: Final = 16
READ_PART: Final = 0.5
SWEEP_S: Final = 0.05
"""How often it is looked whose time has come; both ways alike."""

_ZIPF: Final = 0.6
_TEXT: Final = "what is said in a turn of a dialogue, two lines of it or so " * 2


class Result(NamedTuple):
    """What came of one run.

    Attributes:
        reads_ms: Of every read, sorted.
        writes_a_second: Turns that were taken.
        errors: Reads that found nothing, or an older version.
    """

    reads_ms: list[float]
    writes_a_second: float
    errors: int

    def quantile(self, part: float) -> float:
        """Return how long the slowest reads of a part took, in milliseconds."""
        return self.reads_ms[
            min(int(part * len(self.reads_ms)), len(self.reads_ms) - 1)
        ]


class Spoken(NamedTuple):
    """A session that waits to be told: its log, and what each turn changes."""

    key: bytes
    log: list[Record]
    changes: list[SessionChange]


def spoken_sessions() -> list[Spoken]:
    """Return the sessions of a run."""
    return [_spoken(number) for number in range(SESSIONS)]


def _spoken(number: int) -> Spoken:
    name = SessionName("t", f"session-{number}")
    session = OneSession(name.key())
    agent = refolder(session, default_graph(), "log", TurnedClock())
    log: list[Record] = []
    for at in range(TURNS_MAX):
        turn = {"turn_id": f"id{at}", "role": "user", "content": f"{at} {_TEXT}"}
        body = {"tenant": name.tenant, "session": name.session, **turn}
        log.append(Record(msgspec.json.encode(body), Position(b"log", 0, at)))
        session.commit(agent.fold(log[-1:]).changes)
    return Spoken(name.key(), log, session.changes)


class _Going:
    """How far a session is told, in all and in warm, and when hot lets it go."""

    __slots__ = ("expires_s", "kept", "life", "lock", "spoken", "told")

    def __init__(self, spoken: Spoken) -> None:
        self.spoken = spoken
        self.told = self.kept = self.life = 0
        self.expires_s = 0.0
        self.lock = asyncio.Lock()


class Load:
    """One run: the same reads and writes, chosen by a seed, either way.

    Args:
        hot: Redis; what it holds of the sessions is forgotten first.
        warm: An empty store.
        sessions: See `spoken_sessions`.
        joint: Whether warm is written while hot still has a session.
    """

    def __init__(
        self, hot: RedisTier, warm: WarmStore, sessions: list[Spoken], *, joint: bool
    ) -> None:
        self._hot = hot
        self._warm = warm
        self._joint = joint
        self._ttl_s = float(hot.settings.ttl_s)
        self._going = [_Going(spoken) for spoken in sessions]
        self._reads_ms: list[float] = []
        self._errors = self._writes = 0

    async def run(self, seconds: float, seed: int) -> Result:
        """Read and write, sixteen at a time, for so long."""
        await self._hot.drop_all([each.spoken.key for each in self._going])
        chance = Random(seed)
        order = chance.sample(self._going, len(self._going))
        weights = list(accumulate((at + 1) ** -_ZIPF for at in range(len(order))))
        end = time.perf_counter() + seconds

        def chosen() -> Iterator[tuple[_Going, bool]]:
            while time.perf_counter() < end:
                (going,) = chance.choices(order, cum_weights=weights)
                yield going, chance.random() < READ_PART

        given = chosen()
        sweeping = asyncio.create_task(self._sweep())
        await asyncio.gather(*(self._work(given) for _ in range(AT_ONCE)))
        sweeping.cancel()
        await asyncio.wait([sweeping])
        return Result(sorted(self._reads_ms), self._writes / seconds, self._errors)

    async def _work(self, given: Iterator[tuple[_Going, bool]]) -> None:
        for going, reads in given:
            if reads and going.told:
                start = time.perf_counter()
                await self._read(going)
                self._reads_ms.append(1e3 * (time.perf_counter() - start))
            else:
                await self._write(going)

    # -- what is done to a session ----------------------------------------------

    async def _write(self, going: _Going) -> None:
        async with going.lock:
            if going.told == TURNS_MAX:
                # The session begins anew, as another one would.
                await self._hot.drop(going.spoken.key)
                await asyncio.to_thread(self._warm.drop, going.spoken.key)
                going.told = going.kept = 0
                going.life += 1
            await self._hot.commit([going.spoken.changes[going.told]])
            going.told += 1
            going.expires_s = time.monotonic() + self._ttl_s
            self._writes += 1

    async def _read(self, going: _Going) -> None:
        wanted, life = going.told, going.life
        if await self._hot.read(going.spoken.key) is not None:
            return
        async with going.lock:
            if going.life != life:
                return  # it is another session now, and hot has it
            if going.kept < wanted:
                self._errors += 1
                await asyncio.to_thread(self._rebuilt, going)
            await asyncio.to_thread(self._warm_read, going)
            await self._filled(going)

    def _warm_read(self, going: _Going) -> None:
        (stored,) = self._warm.heads([going.spoken.key])
        if stored is not None:
            assert stored.head.version == going.kept
            after = stored.head.version - self._hot.settings.frames_kept
            list(self._warm.frames(going.spoken.key, 1, max(after, 0)))

    async def _filled(self, going: _Going) -> None:
        if not going.told or going.kept < going.told:
            return  # it was written meanwhile: hot has it
        changes = going.spoken.changes[: going.told]
        frames = [each.frame for each in changes if each.frame is not None]
        kept = tuple(frames[-self._hot.settings.frames_kept :])
        stored = changes[-1].after
        await self._hot.fill([HotSession(going.spoken.key, stored, kept)])
        going.expires_s = time.monotonic() + self._ttl_s

    def _rebuilt(self, going: _Going) -> None:
        """Fold the session from its log, as nobody else has it, and keep it."""
        log = going.spoken.log[: going.told]
        clock = TurnedClock(real_ms())
        graph = default_graph()
        rebuild(going.spoken.key, log, graph=graph, log_name="log", clock=clock)
        self._keep([going])

    def _keep(self, some: list[_Going]) -> None:
        """Write what warm lacks of some sessions, durable, in one batch."""
        batch = self._warm.batch()
        for each in some:
            for change in each.spoken.changes[each.kept : each.told]:
                batch.stage(change)
        self._warm.write(batch, sync=True)
        for each in some:
            each.kept = each.told

    async def _sweep(self) -> None:
        """Write warm for those whose time has come."""
        early_s = self._ttl_s * THIRD_POINT if self._joint else 0.0
        while True:
            await asyncio.sleep(SWEEP_S)
            due_s = time.monotonic() + early_s
            due = [
                each
                for each in self._going
                if each.kept < each.told and each.expires_s <= due_s
            ]
            free = [each for each in due if not each.lock.locked()]
            for each in free:
                await each.lock.acquire()
            try:
                if free:
                    await asyncio.to_thread(partial(self._keep, free))
            finally:
                for each in free:
                    each.lock.release()
