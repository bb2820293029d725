"""Marks in Redis: up to where an owner's sessions there are as new as its log."""

from collections.abc import Awaitable, Callable, Sequence
from hashlib import sha1
from struct import Struct, error
from typing import Final, NamedTuple

from turnstate.schemas.errors import CorruptDataError
from turnstate.storage.encryption.cipher import is_encrypted
from turnstate.storage.hot.redis_connection import CLUSTER, RedisSettings
from turnstate.storage.hot.redis_keys import SessionKeys, keys_of
from turnstate.storage.hot.redis_link import Call, Link
from turnstate.storage.hot.redis_script import READ, Script
from turnstate.storage.hot.redis_value import (
    HeadValue,
    decode_value,
    frames_reaching,
)

LEASE_MS: Final = 2_000
"""A mark that was not renewed for so long says nothing any more."""

Opens = Callable[
    [int, bytes, HeadValue, Sequence[bytes]],
    Awaitable[tuple[HeadValue, list[bytes]] | None],
]
"""Opens head and frames of a session, given its partition and its key; None where
it has not their key."""

_FIELDS: Final = Struct(">QQqQ")


class Mark(NamedTuple):
    """What an owner says of all that it has in Redis.

    What it wrote under this epoch and generation is there as its log was at
    this offset, or newer, or it is not there.

    Attributes:
        epoch: Of the owner.
        generation: Of what it wrote; see `HotCache`.
        offset: Of the log, folded last; -1 = none.
        ttl_ms: How long after its last turn a session is served; 0 = for ever.
            So a reader goes by what the owner is set to.
    """

    epoch: int
    generation: int
    offset: int
    ttl_ms: int = 0


class Marked(NamedTuple):
    """A session as it was no earlier than a mark that holds.

    Attributes:
        mark: What its owner says.
        value: The head, and who wrote it.
        frames: The last frames, in order, without a hole, up to the head.
    """

    mark: Mark
    value: HeadValue
    frames: tuple[bytes, ...]


def _script(text: str) -> Script:
    return Script(text, sha1(text.encode(), usedforsecurity=False).hexdigest())


_PUT: Final = _script("""\
-- ARGV: what has to stand there ('' = nothing), the new one, ttl in ms
local old = redis.call('GET', KEYS[1]) or ''
if old == ARGV[1] then redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3]) end
return old
""")
"""Write a mark in the place of the one before, or say what stands there."""

_GET: Final = _script("""\
return {redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1])}
""")
"""Show a mark, and by its TTL how old it is, by the clock of Redis alone."""


class Marks:
    """Read and write the marks of one store in Redis.

    A mark is only ever written in the place of the one that its owner wrote
    before. Where another stands there, or none, Redis has lost writes (it was
    restarted, or failed over), or there is a later owner; so nobody renews the
    word for sessions that may have gone back in time.

    Methods raise `UnavailableError`: Redis is away, or too slow.

    Args:
        settings: Where Redis is; `ttl_s` is that of a mark, too.
        lease_ms: How long a mark holds that nobody renews.
        opens: Opens what is encrypted; without, it is as if it were not there.

    Example:
        >>> encode_mark(Mark(3, 0, -1)).hex()
        '00000000000000030000000000000000ffffffffffffffff0000000000000000'
    """

    def __init__(
        self,
        settings: RedisSettings,
        lease_ms: int = LEASE_MS,
        opens: Opens | None = None,
    ) -> None:
        self._opens = opens
        self._link = Link(settings)
        self._prefix = settings.prefix
        self._is_cluster = settings.place.kind == CLUSTER
        self._ttl_ms = max(settings.ttl_s * 1000, 2 * lease_ms)
        self._lease_ms = lease_ms

    async def get(self, partition: int) -> Mark | None:
        """Return a mark that holds; None where there is none, or it is old.

        Raises:
            CorruptDataError: it is none of ours.
        """
        call = Call(self._keys(partition), ())
        ((data, left_ms),) = await self._link.evaluate(_GET, [call])
        return self._held(data, left_ms)

    def _held(self, data: bytes | None, left_ms: int) -> Mark | None:
        if data is None or left_ms < self._ttl_ms - self._lease_ms:
            return None
        return decode_mark(data)

    @property
    def rests(self) -> bool:
        """Say whether Redis is left alone now, after failures."""
        return self._link.rests

    async def session(self, partition: int, key: bytes, now_ms: int) -> Marked | None:
        """Return a session of which a mark holds, in one round trip.

        The mark is read before the session, so that what it promises is in
        what is read. In a Cluster the two lie apart: there it takes two.

        Args:
            partition: Whose mark.
            key: The session key.
            now_ms: Decides what has expired.

        Returns:
            None where no mark holds, or the session is not there, or was
            written by another owner, or before its owner gave up what it wrote,
            or is encrypted by a key that cannot be had.

        Raises:
            CorruptDataError: what lies there cannot be read.
        """
        orders = [
            ("EVAL", script.text, len(keys), *keys)
            for script, keys in (
                (_GET, self._keys(partition)),
                (READ, keys_of(self._prefix, key)),
            )
        ]
        steps = [[order] for order in orders] if self._is_cluster else [orders]
        answers = [answer for step in steps for answer in await self._link.send(step)]
        (marked, left_ms), (data, frames) = answers
        mark = self._held(marked, left_ms)
        if mark is None or data is None:
            return None
        value = decode_value(data)
        if (value.epoch, value.generation) != (mark.epoch, mark.generation) or (
            now_ms >= value.expires_ms
        ):
            return None
        if is_encrypted(value.row):
            if self._opens is None:
                return None
            opened = await self._opens(partition, key, value, frames)
            if opened is None:
                return None
            value, frames = opened
        kept = frames_reaching(frames, value.incarnation, value.version)
        return Marked(mark, value, kept)

    async def put(
        self, partition: int, mark: Mark, before: Mark | None
    ) -> tuple[bool, Mark | None]:
        """Write a mark in the place of the one that its owner wrote before.

        Returns:
            Whether it was written, and what stood there.

        Raises:
            CorruptDataError: what stands there is none of ours.
        """
        expected = b"" if before is None else encode_mark(before)
        arguments = (expected, encode_mark(mark), self._ttl_ms)
        call = Call(self._keys(partition), arguments)
        (found,) = await self._link.evaluate(_PUT, [call])
        return found == expected, decode_mark(found) if found else None

    async def close(self) -> None:
        """Close every connection."""
        await self._link.close()

    def _keys(self, partition: int) -> SessionKeys:
        name = f"{self._prefix}:mark:{{{partition}}}".encode()
        return SessionKeys(name, name, name)


def encode_mark(mark: Mark) -> bytes:
    """Return the bytes of a mark."""
    return _FIELDS.pack(*mark)


def decode_mark(data: bytes) -> Mark:
    """Invert `encode_mark`.

    Raises:
        CorruptDataError: these bytes are no mark.
    """
    try:
        return Mark._make(_FIELDS.unpack(data))
    except error as why:
        raise CorruptDataError(f"a mark in Redis cannot be read: {why}") from why
