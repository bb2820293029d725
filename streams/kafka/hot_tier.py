"""One partition's sessions in Redis: written in rounds, filled for readers, marked."""

import asyncio
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final

import structlog

from turnstate.schemas.errors import CorruptDataError, FencedError, UnavailableError
from turnstate.storage.frames.header import decode_header
from turnstate.storage.hot.redis import HotSession, RedisTier
from turnstate.storage.hot.redis_cache import HotCache, Stand
from turnstate.storage.hot.redis_cipher import RedisCipher
from turnstate.storage.hot.redis_connection import RedisSettings
from turnstate.storage.hot.redis_marks import Mark, Marks
from turnstate.storage.stored_head import StoredHead, encode_stored_head
from turnstate.storage.tier import SessionChange
from turnstate.storage.warm.changelog_records import Epoch
from turnstate.storage.warm.rocksdb import WarmStore
from turnstate.streams.kafka.hot_books import HotBooks
from turnstate.streams.kafka.hot_watch import HotWatch
from turnstate.streams.tiers.reads import READ_TWICE_MS

_log = structlog.get_logger(__name__)

FILLED_AT_ONCE: Final = 32

FILLED_BYTES_MAX: Final = 256 << 10
"""One whose last turns take more is not filled; what it says next is written."""

_MISSED_MAX: Final = 10_000
_WANTED_MAX: Final = 1_000
_GENERATION_BITS: Final = 31
"""Of a consumer group's generation: Kafka counts it in 32 bits with a sign."""


class HotPartition:
    """Keep the sessions of one partition in Redis, as its owner.

    Whatever Redis does, a round waits for it no longer than its time limit,
    and not at all while it is left alone. What Redis did not get is either
    known to the cache, or everything written before counts no more
    (`generation`). A mark tells readers which epoch and generation count, and
    up to which offset of the log they are complete. Not thread-safe, but for
    `missed` and `has`.

    Args:
        number: Of the partition.
        settings: Where Redis is.
        marks: Where the mark is kept.
        watch: Told what arrived and what did not.
        now_ms: Tells epoch milliseconds.
        ttl_ms: How long after its last turn a session is served; 0 = for ever.
    """

    def __init__(
        self,
        number: int,
        settings: RedisSettings,
        marks: Marks,
        watch: HotWatch,
        now_ms: Callable[[], int],
        ttl_ms: int = 0,
    ) -> None:
        self.number = number
        self.ttl_ms = ttl_ms
        self.cache = HotCache(RedisTier(settings, now_ms=now_ms))
        self.books = HotBooks(settings.frames_kept, settings.ttl_s * 1000)
        self._marks = marks
        self._watch = watch
        self._now_ms = now_ms
        self._limit_s = settings.longest_s
        self._under_way: asyncio.Task[Any] | None = None
        self._is_void = False
        self._is_off = False
        self._mark: Mark | None = None
        self._tried: Mark | None = None
        self._lock = threading.Lock()
        self._missed: OrderedDict[bytes, int] = OrderedDict()
        self._wanted: deque[bytes] = deque(maxlen=_WANTED_MAX)

    def claimed(self, epoch: Epoch) -> None:
        """Begin anew as another owner: nothing that lies there counts."""
        tier = self.cache.tier
        tier.epoch = (epoch.number << _GENERATION_BITS) + epoch.generation
        tier.generation = 0
        self.books.clear()
        self._is_void = self._is_off = False

    def encrypts(self, cipher: RedisCipher) -> None:
        """Encrypt what is written from now on; what lies there counts no more."""
        self.cache.tier.cipher = cipher
        self.void()

    def void(self) -> None:
        """Let nothing count that was written before; what follows does."""
        self._is_void = True

    def turn_off(self, why: object) -> None:
        """Leave Redis alone until the next claim: it knows a later owner, alone."""
        self._is_off = True
        _log.error(
            "hot.ahead",
            partition=self.number,
            why=str(why),
            hint="clear the keys of this group in Redis: it has those of another time",
        )

    async def close(self) -> None:
        """Close every connection."""
        if self._under_way is not None:
            await asyncio.wait([self._under_way])
        self._watch.gone(self.number)
        await self.cache.close()

    # -- writing --------------------------------------------------------------

    async def commit(self, changes: Sequence[SessionChange]) -> None:
        """Write what was folded; return once Redis has it, or within the limit.

        Raises:
            FencedError: a later owner writes there.
        """
        if not changes or self._is_off:
            return
        if self.cache.tier.rests or not await self._is_free():
            self._leave_out(changes)
            return
        self._renewed()
        await self._bounded(self._committed(changes), len(changes))

    async def _committed(self, changes: Sequence[SessionChange]) -> None:
        lost = self.cache.lost_writes
        await self.cache.commit(changes)
        failure = self.cache.failure
        if self.cache.lost_writes > lost or failure is not None:
            self._failed(failure or "a write was lost", len(changes))
            self.books.forget(change.key for change in changes)
            return
        self._watch.answered(self.number)
        self.books.wrote(changes, self._now_ms())

    def _leave_out(self, changes: Sequence[SessionChange]) -> None:
        """Do without Redis; the next write begins a new generation."""
        self.void()
        self._failed(self.cache.failure or "it is slow", len(changes))
        for change in changes:
            if change.erased:
                # To be void is not enough: bytes have to go.
                self._start(self._erased(change))

    async def _erased(self, change: SessionChange) -> None:
        try:
            await self.cache.erase(change.key, change.after.head.incarnation - 1)
        except UnavailableError:
            return  # the cache repeats it until it is done

    async def drop(self, keys: Sequence[bytes]) -> None:
        """Have Redis forget sessions, within the limit."""
        self.books.forget(keys)
        if self._is_off or self.cache.tier.rests or not await self._is_free():
            self.void()
            return
        await self._bounded(self._dropped(keys), 0)

    async def _dropped(self, keys: Sequence[bytes]) -> None:
        for key in keys:
            await self.cache.drop(key)

    async def clear(self, lives: Mapping[bytes, int], dropped: Sequence[bytes]) -> int:
        """End lives in Redis for good, and forget other sessions; between two rounds.

        Args:
            lives: session key → the last life of it that is over.
            dropped: Sessions of which an older text may lie there.

        Returns:
            How many of the ended lives are there still.

        Raises:
            UnavailableError: Redis is away, or busy (code `busy`).
        """
        if not await self._is_free():
            raise UnavailableError(
                "Redis is slow", hint="ask again in a moment", code="busy"
            )
        self.books.forget([*lives, *dropped])
        tier = self.cache.tier
        for key, life in lives.items():
            await self.cache.erase(key, life)
        if dropped:
            await tier.drop_all(dropped)
        values = await tier.values(list(lives)) if lives else []
        found = zip(lives.values(), values, strict=True)
        alive = [(life, tier.alive(value)) for life, value in found]
        return sum(value is not None and value.incarnation <= at for at, value in alive)

    async def upkeep(self, offset: int) -> None:
        """Forget what is stale there, and renew the mark; called twice a second.

        Args:
            offset: Of the log, folded last and durable; -1 = none.
        """
        self.books.expire(self._now_ms())
        if self._is_off or self.cache.tier.rests or not await self._is_free():
            return
        self._renewed()
        try:
            if self.cache.stale_count and await self.cache.settle():
                if self.cache.failure is not None:
                    self._failed(self.cache.failure, 0)
                return
            await self._renew_mark(offset)
        except (UnavailableError, CorruptDataError) as error:
            self._failed(error, 0)
            return
        self._watch.answered(self.number)

    async def _renew_mark(self, offset: int) -> None:
        tier = self.cache.tier
        written, found = await self._put_mark(offset)
        if written or (found is not None and found.epoch > tier.epoch):
            return  # where there is a later owner its word counts
        if found is None or found != self._tried:
            # Redis has lost writes, this owner's among them; or it is new here.
            self.void()
            self._renewed()
        self._mark = found
        await self._put_mark(offset)

    async def _put_mark(self, offset: int) -> tuple[bool, Mark | None]:
        tier = self.cache.tier
        mark = Mark(tier.epoch, tier.generation, offset, self.ttl_ms)
        # One whose answer did not come may stand there all the same.
        before, self._tried = self._tried, mark
        written, found = await self._marks.put(self.number, mark, self._mark)
        if written:
            self._mark = mark
        else:
            self._tried = before
        return written, found

    # -- filling for readers ---------------------------------------------------

    def missed(self, key: bytes, hits: int) -> None:
        """Note that a reader asked hot in vain; at the second time it is filled.

        Args:
            key: The session.
            hits: How often that reader was answered there since it last asked.
        """
        now_ms = self._now_ms()
        self._watch.metrics.hot_read(hits)
        with self._lock:
            before = self._missed.pop(key, None)
            if before is not None and now_ms - before < READ_TWICE_MS:
                self._wanted.append(key)
                return
            self._missed[key] = now_ms
            while len(self._missed) > _MISSED_MAX:
                self._missed.popitem(last=False)

    def has(self, key: bytes) -> bool:
        """Say whether a session is there, as far as the books tell."""
        return self.books.has(key, self._now_ms())

    def want(self, key: bytes) -> None:
        """Ask for a session to be put there, between two rounds."""
        self._wanted.append(key)

    async def fill(self, store: WarmStore) -> None:
        """Put in what readers asked for; between two rounds, within the limit."""
        if not self._wanted or self._is_off or self.cache.tier.rests:
            self._wanted.clear()
            return
        if not await self._is_free():
            return
        self._renewed()
        count = min(len(self._wanted), FILLED_AT_ONCE)
        keys = list(dict.fromkeys(self._wanted.popleft() for _ in range(count)))
        found = zip(keys, store.located(keys), strict=True)
        sessions = [
            session_of(store, key, stored)
            for key, stored in found
            if isinstance(stored, StoredHead) and not stored.is_tombstone
        ]
        sessions = [
            each for each in sessions if sum(map(len, each.frames)) <= FILLED_BYTES_MAX
        ]
        if sessions:
            await self._bounded(self._filled(store, sessions), 0)

    async def _filled(self, store: WarmStore, sessions: Sequence[HotSession]) -> None:
        def stands(keys: Sequence[bytes]) -> list[Stand | None]:
            return [
                (each.head.incarnation, each.head.version)
                if isinstance(each, StoredHead)
                else None
                for each in store.located(keys)
            ]

        count = await self.cache.fill(sessions, stands)
        if self.cache.failure is not None:
            self._failed(self.cache.failure, 0)
            return
        self._watch.answered(self.number)
        self._watch.metrics.hot_filled(count)
        if count == len(sessions):
            now_ms = self._now_ms()
            for each in sessions:
                size = len(encode_stored_head(each.stored))
                self.books.put(each.key, size, each.frames, now_ms)

    # -- inside -----------------------------------------------------------------

    def _renewed(self) -> None:
        """Begin a new generation where something was left out."""
        if self._is_void:
            self.cache.tier.generation += 1
            self.books.clear()
            self._is_void = False

    def _failed(self, why: object, lost: int) -> None:
        self._watch.failed(self.number, why, lost)

    async def _is_free(self) -> bool:
        """Wait for what is under way; say whether it has come to its end."""
        if self._under_way is not None:
            await asyncio.wait([self._under_way], timeout=self._limit_s)
        return self._under_way is None

    async def _bounded(self, call: Coroutine[Any, Any, None], changes: int) -> None:
        """Make a call; one that takes too long goes on behind the scenes.

        Raises:
            FencedError: what the call raises, where it ends in time.
        """
        task = self._start(call)
        await asyncio.wait([task], timeout=self._limit_s)
        if not task.done():
            self._failed("it is slow", changes)
            return
        error = task.exception()
        if error is not None:
            raise error

    def _start(self, call: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.ensure_future(call)
        self._under_way = task
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        if self._under_way is task:
            self._under_way = None
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, FencedError):
            self._failed(error, 0)


def session_of(store: WarmStore, key: bytes, stored: StoredHead) -> HotSession:
    """Return a session as the hot tier keeps it: head, and what its last turns need.

    Sealed turns come as their segment, which readers take for a long frame.
    """
    head = stored.head
    recent = [
        turn[3]
        for branch in head.branches
        for state in [head.branch_state(branch)]
        if state is not None
        for turn in state.recent
    ]
    after = min(recent, default=head.version) - 1
    parts: list[bytes] = []
    have = None
    for part in store.frames(key, head.incarnation, after):
        header = decode_header(part)
        if header.to_version > (have or 0) and header.to_version > header.from_version:
            if have is not None and header.from_version != have:
                parts.clear()
            parts.append(part)
            have = header.to_version
    return HotSession(key, stored, tuple(parts))
