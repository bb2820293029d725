"""Redis as a pipeline uses it: it may be away, and nothing stale passes for fresh.

Redis is a copy that can fall behind: a write is lost while it is away or full, a
failover takes the last writes with it, a late packet lands after a key was
dropped. No flag in Redis can tell, for the flag would be lost in the same way.
So freshness is decided outside of it, by three rules:

1. *Decisions are never made from Redis.* The owner of a session folds from its
   own memory and the warm tier. A change is committed to warm first; Redis is
   told after, and if that fails, nothing is lost.
2. *The owner knows what it could not write.* The sessions of a failed write are
   stale from that moment on: this object serves none of them, and forgets them
   in Redis, or writes them whole, before it serves them again. The list dies
   with the owner, so a head counts only where it bears the owner's own epoch;
   what an earlier owner left is taken over by the next write. Where the list
   would grow too long, the owner raises its generation, and by that gives up
   all that it wrote before.
3. *Who needs the newest compares.* `read(key, known=…)` is given the head in
   warm (a look-up of microseconds for the owner) and serves nothing below; and
   what another owner wrote only where it is that very head, by its chain link:
   one that was replaced without noticing may have written other turns under the
   same version. Without `known`, and for readers elsewhere (`RedisTier.read`),
   an answer is as of `written_ms`, and at most `ttl_s` old.

Rule 3 alone is proof against everything; rule 2 makes it cheap to be nearly
always fresh without the comparison, and lets other readers of Redis see less
that is stale.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

from turnstate.schemas.errors import (
    CorruptDataError,
    FencedError,
    UnavailableError,
)
from turnstate.storage.hot.redis import (
    HotSession,
    Outcome,
    RedisTier,
    Write,
    written_by,
)
from turnstate.storage.hot.redis_failures import FULL
from turnstate.storage.stored_head import StoredHead
from turnstate.storage.tier import SessionChange

Stand = tuple[int, int]
"""Incarnation and version: where a session stands."""

STALE_MAX: Final = 100_000
"""Sessions known to be stale; about 20 MB."""

SETTLED_AT_ONCE: Final = 500
"""Stale sessions forgotten in one round trip, some tenths of a millisecond."""

_T = TypeVar("_T")


class HotCache:
    """Keep a hot tier in Redis for the owner of sessions; it may be away.

    Reads and writes never raise `UnavailableError` (`erase` does). Not for two
    owners of one session: each has an epoch of its own.

    Args:
        tier: Closed with this one.
        stale_max: How many stale sessions are listed.

    Attributes:
        lost_writes: Writes of a session that did not arrive, or may not have.
        refused_lives: Writes of a life that was erased.
        failure: The last error of Redis; None when it answered last.
    """

    name = "hot"
    capabilities: frozenset[str] = frozenset()

    def __init__(self, tier: RedisTier, *, stale_max: int = STALE_MAX) -> None:
        self.tier = tier
        self.lost_writes = 0
        self.refused_lives = 0
        self.failure: UnavailableError | None = None
        self._stale_max = stale_max
        self._stale: dict[bytes, int] = {}
        self._marks = 0
        self._to_erase: dict[bytes, int] = {}

    @property
    def stale_count(self) -> int:
        """Return how many sessions are waiting to be forgotten or written."""
        return len(self._stale.keys() | self._to_erase.keys())

    # -- reading -----------------------------------------------------------

    async def heads(self, keys: Sequence[bytes]) -> list[StoredHead | None]:
        """Return heads that this owner wrote and has no doubt of; else None."""
        nothing: list[StoredHead | None] = [None] * len(keys)
        try:
            found = self._answered(await self.tier.values(keys))
        except UnavailableError as error:
            self._failed(error)
            return nothing
        heads = nothing
        bad: list[bytes] = []
        for place, (key, data) in enumerate(zip(keys, found, strict=True)):
            try:
                value = self.tier.alive(data)
                if value and self._trusts(key, value.epoch, value.generation):
                    heads[place] = self.tier.opened(key, value).stored()
            except CorruptDataError:
                bad.append(key)
        await self._forget(bad)
        return heads

    async def read(
        self, key: bytes, known: StoredHead | None = None
    ) -> HotSession | None:
        """Return a session, or None where it is not held, or not fresh.

        Args:
            key: The session key.
            known: The head in warm; nothing below is served, and that very
                head is, whoever wrote it. Without it, only what this owner
                wrote.
        """
        if key in self._stale:
            return None
        try:
            found = self._answered(await self.tier.read(key))
        except UnavailableError as error:
            self._failed(error)
            return None
        except CorruptDataError:
            await self._forget([key])
            return None
        if found is None:
            return None
        if known is not None and _stand(found.stored) < _stand(known):
            await self._forget([key])
            return None
        if self._trusts(key, found.epoch, found.generation):
            return found
        is_known = (
            known is not None
            and _stand(found.stored) == _stand(known)
            and found.stored.link == known.link
        )
        return found if is_known and key not in self._stale else None

    async def frames(
        self, key: bytes, incarnation: int, after_version: int
    ) -> list[bytes]:
        """Return frames of a session that this owner wrote; else none."""
        found = await self.read(key)
        return [] if found is None else found.above(incarnation, after_version)

    async def keys(self, prefix: bytes = b"", after: bytes = b"") -> list[bytes]:
        """Return keys, fresh or not; none where Redis is away."""
        try:
            return self._answered(await self.tier.keys(prefix, after))
        except UnavailableError as error:
            self._failed(error)
            return []

    # -- writing -----------------------------------------------------------

    async def commit(self, changes: Sequence[SessionChange]) -> None:
        """Write changes that warm has; where that fails they are stale here.

        Raises:
            FencedError: a greater epoch wrote one of the sessions, or this
                epoch is ahead of it: this owner is none any more.
        """
        writes = [written_by(change) for change in changes]
        marks = [self._stale.get(write.key) for write in writes]
        try:
            outcomes = self._answered(await self.tier.write(writes))
        except UnavailableError as error:
            await self._lost(error, writes)
            return
        for write, outcome, mark in zip(writes, outcomes, marks, strict=True):
            if outcome in {Outcome.WRITTEN, Outcome.NOT_HELD}:
                self._settled(write.key, mark)
                if write.erased:
                    self._to_erase.pop(write.key, None)
        self.refused_lives += outcomes.count(Outcome.ERASED)
        if Outcome.FENCED in outcomes:
            raise FencedError(
                "the hot tier was written by a later owner of this session",
                hint="another owner writes this session: stop",
            )
        if self._stale or self._to_erase:
            await self.settle(SETTLED_AT_ONCE)

    async def fill(
        self,
        sessions: Sequence[HotSession],
        stands: Callable[[Sequence[bytes]], Sequence[Stand | None]],
    ) -> int:
        """Put in sessions that were read below; return how many are there.

        Whoever writes commits to warm first. So where warm, asked again after
        the fill, still stands where the session was read, whatever is written
        later finds it here.

        Args:
            sessions: As they were read.
            stands: Tells where sessions stand in warm now.
        """
        wanted = [each for each in sessions if each.key not in self._stale]
        if not wanted:
            return 0
        try:
            outcomes = self._answered(await self.tier.fill(wanted))
        except UnavailableError as error:
            self._failed(error)
            self._mark(each.key for each in wanted)
            return 0
        moved_on = [
            session.key
            for session, stand in zip(
                wanted, stands([each.key for each in wanted]), strict=True
            )
            if stand != _stand(session.stored)
        ]
        await self._forget(moved_on)
        filled = {
            session.key
            for session, outcome in zip(wanted, outcomes, strict=True)
            if outcome is Outcome.WRITTEN
        }
        return len(filled.difference(moved_on))

    async def drop(self, key: bytes) -> None:
        """Forget a session, now or as soon as Redis can be reached."""
        await self._forget([key])

    async def erase(self, key: bytes, incarnation: int) -> None:
        """End every life of a session up to one, in Redis too.

        Raises:
            UnavailableError: Redis is away; `settle` repeats it as long as
                this owner lives, and nothing of the session is served.
        """
        self._mark([key])
        self._to_erase[key] = max(incarnation, self._to_erase.get(key, 0))
        await self._erase([key])

    async def settle(self, at_most: int | None = None) -> int:
        """Forget stale sessions in Redis; return how many are left.

        Called by the writes themselves; by a timer where there are none.
        """
        try:
            await self._erase(list(self._to_erase)[:at_most])
            todo = list(self._stale)[:at_most]
            for start in range(0, len(todo), SETTLED_AT_ONCE):
                await self._drop(todo[start : start + SETTLED_AT_ONCE])
        except UnavailableError as error:
            self._failed(error)
        return self.stale_count

    async def close(self) -> None:
        """Close every connection."""
        await self.tier.close()

    # -- what is stale -------------------------------------------------------

    def _trusts(self, key: bytes, epoch: int, generation: int) -> bool:
        ours = (self.tier.epoch, self.tier.generation)
        return (epoch, generation) == ours and key not in self._stale

    def _mark(self, keys: Iterable[bytes]) -> None:
        for key in keys:
            self._marks += 1
            self._stale[key] = self._marks
        if len(self._stale) > self._stale_max:
            self.tier.generation += 1
            self._stale.clear()

    def _settled(self, key: bytes, mark: int | None) -> None:
        """Take a key off the list, unless another write failed meanwhile."""
        if mark is not None and self._stale.get(key) == mark:
            del self._stale[key]

    async def _lost(self, error: UnavailableError, writes: Sequence[Write]) -> None:
        self._failed(error)
        self.lost_writes += len(writes)
        keys = [write.key for write in writes]
        self._mark(keys)
        for write in writes:
            if write.erased:
                # To drop it would not be enough: the tombstone is missing.
                self._to_erase[write.key] = write.after.head.incarnation - 1
        if error.code == FULL:
            # It answers, and to forget needs no memory: other readers of Redis
            # then see nothing in place of what is old.
            await self._forget(keys)

    async def _forget(self, keys: Sequence[bytes]) -> None:
        if not keys:
            return
        self._mark(keys)
        try:
            await self._drop(keys)
        except UnavailableError as error:
            self._failed(error)

    async def _drop(self, keys: Sequence[bytes]) -> None:
        marks = [self._stale.get(key) for key in keys]
        await self.tier.drop_all(keys)
        for key, mark in zip(keys, marks, strict=True):
            self._settled(key, mark)

    async def _erase(self, keys: Sequence[bytes]) -> None:
        for key in keys:
            incarnation = self._to_erase[key]
            mark = self._stale.get(key)
            await self.tier.erase(key, incarnation)
            self._settled(key, mark)
            if self._to_erase.get(key) == incarnation:
                del self._to_erase[key]

    def _failed(self, error: UnavailableError) -> None:
        self.failure = error

    def _answered(self, answer: _T) -> _T:
        self.failure = None
        return answer


def _stand(stored: StoredHead) -> Stand:
    return (stored.head.incarnation, stored.head.version)
