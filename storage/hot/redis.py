"""The hot tier in Redis: heads and the last frames of sessions, for any server.

A cache of the warm tier, never the only copy. What it says of a session is how
the session stood when somebody wrote it there; `redis_cache.py` has the rule by
which nothing stale passes for fresh.

Each session is written by one script, which checks the writer's epoch, the
incarnation and the version that the change starts from, and sets the TTL of
what it writes in the same step; there is no other writer of these keys
(docs/decisions/0009-redis-layout.md).
"""

import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import Enum
from typing import Final, NamedTuple

from turnstate.schemas.errors import FencedError, UnavailableError
from turnstate.storage.frames.header import decode_header
from turnstate.storage.hot.redis_cipher import FRAME as SEALED_FRAME
from turnstate.storage.hot.redis_cipher import HEAD as SEALED_HEAD
from turnstate.storage.hot.redis_cipher import RedisCipher
from turnstate.storage.hot.redis_connection import RedisSettings
from turnstate.storage.hot.redis_keys import HEAD, keys_of, named_by, scan_pattern
from turnstate.storage.hot.redis_link import Call, Link
from turnstate.storage.hot.redis_script import DROP, ERASE, READ, WRITE
from turnstate.storage.hot.redis_sweep import SweepReport, sweep
from turnstate.storage.hot.redis_value import (
    WRITE_ID_BYTES,
    HeadValue,
    decode_value,
    encode_life,
    encode_stand,
    encode_value,
    frames_reaching,
)
from turnstate.storage.stored_head import StoredHead, encode_stored_head
from turnstate.storage.tier import SessionChange

_NEED_HEAD: Final = b"NEED_HEAD"


class Outcome(Enum):
    """What became of the write of one session."""

    WRITTEN = b"WRITTEN"
    """It is there."""

    NOT_HELD = b"NOT_HELD"
    """It changes no turn, and the session was not there: it still is not."""

    FENCED = b"FENCED"
    """A greater epoch wrote the session, or this one did and is ahead of it."""

    ERASED = b"ERASED"
    """That life of the session is over."""


class HotSession(NamedTuple):
    """A session as the hot tier has it.

    Attributes:
        key: The session key.
        stored: The head.
        frames: The last frames, in order, without a hole, up to the head; none
            where they do not reach it.
        epoch: Of the owner that wrote it.
        generation: Of that owner; see `HeadValue`.
        written_ms: The answer is as of then, by the writer's clock.
    """

    key: bytes
    stored: StoredHead
    frames: tuple[bytes, ...]
    epoch: int = 0
    generation: int = 0
    written_ms: int = 0

    def above(self, incarnation: int, after_version: int) -> list[bytes]:
        """Return the frames of a life that lead above a version."""
        if self.stored.head.incarnation != incarnation:
            return []
        return [
            frame
            for frame in self.frames
            if decode_header(frame).to_version > after_version
        ]


class Write(NamedTuple):
    """What the script is to write of one session.

    Attributes:
        key: The session key.
        before: Incarnation and version that the write starts from.
        after: The new head.
        row: `after`, as it is stored.
        frames: Frames to add.
        erased: Whether every life below that of `after` ends with it.
        whole: Whether it may be put where nothing is, or an older state.
    """

    key: bytes
    before: tuple[int, int]
    after: StoredHead
    row: bytes
    frames: Sequence[bytes]
    erased: bool = False
    whole: bool = False


class RedisTier:
    """Hold sessions in Redis; every method is one round trip for all its keys.

    Every method may raise `UnavailableError`: Redis is away, too slow, full,
    or left alone after failures. Reads may raise `CorruptDataError`.

    Args:
        settings: Where it is, what it keeps, and its limits.
        now_ms: Tells epoch milliseconds; decides what has expired.
    """

    name = "hot"
    capabilities: frozenset[str] = frozenset()

    def __init__(self, settings: RedisSettings, *, now_ms: Callable[[], int]) -> None:
        self.settings = settings
        self.epoch = settings.epoch
        self.generation = 0
        """Raised by an owner that trusts nothing of what it wrote before."""
        self.cipher: RedisCipher | None = None
        """Encrypts heads and frames; None = they lie as they are."""
        self._now_ms = now_ms
        self._link = Link(settings)

    @property
    def rests(self) -> bool:
        """Say whether Redis is left alone now, after failures."""
        return self._link.rests

    # -- reading -----------------------------------------------------------

    async def values(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the raw values of heads, expired ones too."""
        prefix = self.settings.prefix
        return await self._link.values([keys_of(prefix, key).head for key in keys])

    async def heads(self, keys: Sequence[bytes]) -> list[StoredHead | None]:
        """Return the heads of many sessions, None for each that is not there."""
        found = [self.alive(data) for data in await self.values(keys)]
        return [
            self.opened(key, value).stored() if value else None
            for key, value in zip(keys, found, strict=True)
        ]

    async def read(self, key: bytes) -> HotSession | None:
        """Return head and last frames as of one moment."""
        call = Call(keys_of(self.settings.prefix, key), ())
        ((data, frames),) = await self._link.evaluate(READ, [call])
        value = self.alive(data)
        if value is None:
            return None
        if self.cipher is not None:
            value, frames = self.cipher.opened(key, value, frames)
        return HotSession(
            key,
            value.stored(),
            frames_reaching(frames, value.incarnation, value.version),
            value.epoch,
            value.generation,
            value.written_ms,
        )

    async def frames(
        self, key: bytes, incarnation: int, after_version: int
    ) -> list[bytes]:
        """Return the frames that lead above a version, in order.

        Fewer than were asked for, where older ones are not kept: the first one
        tells from which version on it leads.
        """
        found = await self.read(key)
        return [] if found is None else found.above(incarnation, after_version)

    async def keys(self, prefix: bytes = b"", after: bytes = b"") -> list[bytes]:
        """Return session keys in byte order, from above `after`; for sweeps.

        Walks over all keys of the server, in many round trips.
        """
        ours = self.settings.prefix
        found: set[bytes] = set()
        async for page in self._link.pages(scan_pattern(ours, HEAD, prefix)):
            named = [named_by(ours, name) for name in page]
            keys = [
                each.session
                for each in named
                if each and each.session > after and each.session.startswith(prefix)
            ]
            values = await self.values(keys)
            found.update(
                key
                for key, data in zip(keys, values, strict=True)
                if self.alive(data) is not None
            )
        return sorted(found)

    def alive(self, data: bytes | None) -> HeadValue | None:
        """Return a value that may be served now; None for none.

        Redis removes what has expired by its own clock; this one decides by
        the writer's and the reader's.
        """
        if data is None:
            return None
        value = decode_value(data)
        return value if self._now_ms() < value.expires_ms else None

    def opened(self, key: bytes, value: HeadValue) -> HeadValue:
        """Return the value of a session's head as it was before it was encrypted."""
        return value if self.cipher is None else self.cipher.opened(key, value, ())[0]

    # -- writing -----------------------------------------------------------

    async def commit(self, changes: Sequence[SessionChange]) -> None:
        """Take all of the changes, or none; one round trip where all were held.

        None: where one is refused, the others are forgotten again, which for a
        cache is as good as never written. An erase stays.

        Raises:
            FencedError: a session stands elsewhere than the change starts
                from, was written by a greater epoch, or that life is over.
        """
        writes = [written_by(change) for change in changes]
        ids, outcomes = await self._write(writes)
        refused = {Outcome.FENCED, Outcome.ERASED}.intersection(outcomes)
        if not refused:
            return
        # Where Redis is away now, what was written stays; it is true, too.
        with suppress(UnavailableError):
            await self._undo(writes, ids, outcomes)
        if Outcome.FENCED in refused:
            raise FencedError(
                "the hot tier holds another version than this was decided from",
                hint="another owner writes this session: stop",
            )
        raise FencedError(
            "that life of the session was erased",
            hint="read the head: the session goes on in another incarnation",
            code="erased",
        )

    async def write(self, writes: Sequence[Write]) -> list[Outcome]:
        """Write many sessions, each for itself; say what became of each."""
        return (await self._write(writes))[1]

    async def fill(self, sessions: Sequence[HotSession]) -> list[Outcome]:
        """Put in sessions as they stand elsewhere; what is newer here stays.

        For promotion. The caller makes sure that they do not change meanwhile
        (`HotCache.fill` does).
        """
        return await self.write(
            [
                Write(
                    session.key,
                    (session.stored.head.incarnation, session.stored.head.version),
                    session.stored,
                    encode_stored_head(session.stored),
                    session.frames[-self.settings.frames_kept :],
                    whole=True,
                )
                for session in sessions
            ]
        )

    async def drop(self, key: bytes) -> None:
        """Forget a session; that a life of it was erased stays known."""
        await self.drop_all([key])

    async def drop_all(self, keys: Sequence[bytes]) -> None:
        """Forget many sessions."""
        prefix = self.settings.prefix
        calls = [Call(keys_of(prefix, key), (b"",)) for key in keys]
        await self._link.evaluate(DROP, calls)

    async def erase(self, key: bytes, incarnation: int) -> None:
        """End every life of a session up to one; late writes of them are refused.

        Works on a full Redis, and may be repeated. A later life stays.
        """
        arguments = (encode_life(incarnation + 1), self.settings.tombstone_ttl_s * 1000)
        call = Call(keys_of(self.settings.prefix, key), arguments)
        await self._link.evaluate(ERASE, [call])

    async def sweep(self, *, mend: bool = True) -> SweepReport:
        """Look at every key of this store; delete what breaks its rules.

        Args:
            mend: Otherwise it is only counted.
        """
        return await sweep(self._link, self.settings, self._now_ms(), mend=mend)

    async def close(self) -> None:
        """Close every connection."""
        await self._link.close()

    # -- the parts of a write ------------------------------------------------

    async def _write(
        self, writes: Sequence[Write]
    ) -> tuple[list[bytes], list[Outcome]]:
        ids = [secrets.token_bytes(WRITE_ID_BYTES) for _ in writes]
        calls = [self._call(write, at) for write, at in zip(writes, ids, strict=True)]
        answers = await self._link.evaluate(WRITE, calls)
        lacking = [
            place for place, answer in enumerate(answers) if answer == _NEED_HEAD
        ]
        if lacking:
            # Nothing there, as after a restart, or an older state: bring it all.
            again = [
                self._call(writes[place]._replace(whole=True), ids[place])
                for place in lacking
            ]
            brought = await self._link.evaluate(WRITE, again)
            for place, answer in zip(lacking, brought, strict=True):
                answers[place] = answer
        return ids, [Outcome(answer) for answer in answers]

    def _call(self, write: Write, write_id: bytes) -> Call:
        settings, head, now_ms = self.settings, write.after.head, self._now_ms()
        row, frames, cipher = write.row, write.frames, self.cipher
        if cipher is not None:
            row = cipher.sealed(write.key, SEALED_HEAD, row)
            frames = [cipher.sealed(write.key, SEALED_FRAME, each) for each in frames]
        value = HeadValue(
            self.epoch,
            self.generation,
            head.incarnation,
            head.version,
            write_id,
            now_ms,
            now_ms + settings.ttl_s * 1000,
            row,
        )
        return Call(
            keys_of(settings.prefix, write.key),
            (
                encode_value(value),
                encode_stand(*write.before),
                int(write.whole),
                settings.frames_kept,
                settings.ttl_s * 1000,
                encode_life(head.incarnation) if write.erased else b"",
                settings.tombstone_ttl_s * 1000,
                *frames,
            ),
        )

    async def _undo(
        self,
        writes: Sequence[Write],
        ids: Sequence[bytes],
        outcomes: Sequence[Outcome],
    ) -> None:
        prefix = self.settings.prefix
        await self._link.evaluate(
            DROP,
            [
                Call(keys_of(prefix, write.key), (write_id,))
                for write, write_id, outcome in zip(writes, ids, outcomes, strict=True)
                if outcome is Outcome.WRITTEN and not write.erased
            ],
        )


def written_by(change: SessionChange) -> Write:
    """Return what a change writes in the hot tier."""
    before = change.before.head
    return Write(
        change.key,
        (before.incarnation, before.version),
        change.after,
        change.row,
        () if change.frame is None else (change.frame,),
        erased=bool(change.erased),
    )
