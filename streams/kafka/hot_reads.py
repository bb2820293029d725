"""Answer for the state of a session from Redis alone, or not at all."""

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn, cast

import structlog
from msgspec.structs import replace

from turnstate.schemas.errors import CorruptDataError, NotFoundError, UnavailableError
from turnstate.schemas.ids import SessionName
from turnstate.storage.frames.header import decode_header
from turnstate.storage.session_view import SessionView
from turnstate.storage.stored_head import StoredHead
from turnstate.storage.warm.rocksdb import WarmStore
from turnstate.streams.clock import SystemClock
from turnstate.streams.documents import Document, from_json, state_document, to_json
from turnstate.streams.embedded.events import START
from turnstate.streams.embedded.reach import wanted_place
from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.hot_keys import HotKeys, hot_keys
from turnstate.streams.kafka.hot_settings import redis_settings
from turnstate.streams.kafka.partitioning import partition_of
from turnstate.streams.kafka.sync_producer import LoopThread

if TYPE_CHECKING:
    from turnstate.storage.hot.redis_connection import RedisSettings
    from turnstate.storage.hot.redis_marks import Marked, Marks

_log = structlog.get_logger(__name__)

TIER: Final = "hot"

_FLOORS_MAX: Final = 10_000


class Floor(NamedTuple):
    """What a reader was told already of a session: nothing older is an answer.

    Attributes:
        incarnation: Which life of the session.
        version: Of its head.
        at_least: The version of its head, in whichever life.
        offset: Of the log, folded in it.
    """

    incarnation: int = 0
    version: int = 0
    at_least: int = 0
    offset: int = -1

    def allows(self, stored: StoredHead) -> bool:
        """Say whether a head is not older."""
        head, at = stored.head, stored.position
        return (
            (head.incarnation, head.version) >= (self.incarnation, self.version)
            and head.version >= self.at_least
            and (self.offset < 0 or (at is not None and at.offset >= self.offset))
        )

    def with_more(self, told: "Floor") -> "Floor":
        """Return the floor once more was told."""
        if told.incarnation > self.incarnation > 0:
            return told  # of the life before nothing counts
        return Floor(
            *max(self[:2], told[:2]),
            max(self.at_least, told.at_least),
            max(self.offset, told.offset),
        )


class NotHeldError(Exception):
    """Hot has not all that the answer needs."""


class _HeldFrames:
    """The frames that came with a head, for the view of its last turns."""

    def __init__(self, found: "Marked") -> None:
        self._found = found

    def frames(
        self, key: bytes, incarnation: int, after_version: int
    ) -> Iterator[bytes]:
        """Yield the frames that lead above a version."""
        del key
        if self._found.value.incarnation != incarnation:
            raise NotHeldError
        for frame in self._found.frames:
            if decode_header(frame).to_version > after_version:
                yield frame

    def base(self, *_: object) -> NoReturn:
        """Refuse: the state at a seal is not here."""
        raise NotHeldError

    def entry(self, *_: object) -> NoReturn:
        """Refuse: the turn index is not here."""
        raise NotHeldError

    def asides(self, *_: object) -> NoReturn:
        """Refuse: nobody here knows where edits are."""
        raise NotHeldError


class HotReads:
    """Read sessions out of Redis in any thread; away, slow or old is no answer.

    An answer is of what the partition's owner wrote there, by the mark that it
    renews; see `streams/kafka/hot_tier.py`. It has everything of the session up
    to the offset that it says it reflects, and is never older than what this
    reader was told before.

    Args:
        cluster: Says where Redis is.
        log: The 16 bytes of the topic id of turns.
        changelog_id: The topic id of the changelog.

    Attributes:
        hits: Answers from Redis.
        misses: Questions that went on to the owner.

    Raises:
        UnavailableError: redis-py is not installed.
    """

    def __init__(
        self, cluster: ClusterSettings, log: bytes, changelog_id: bytes
    ) -> None:
        self.hits = self.misses = 0
        self._cluster = cluster
        self._log = log
        self._told_hits = 0
        self._lock = threading.Lock()
        self._floors: OrderedDict[bytes, Floor] = OrderedDict()
        settings = redis_settings(cluster, changelog_id)
        self._thread = LoopThread("turnstate-hot-reads")
        self._clock = SystemClock()
        self._keys = hot_keys(cluster)
        self._marks = self._thread.run(_opened(settings, self._keys))

    def close(self) -> None:
        """Hang up."""
        if not self._thread.closed:
            with suppress(UnavailableError):
                self._thread.run(self._marks.close())
            self._thread.close()
            if self._keys is not None:
                self._keys.close()

    def state(self, name: SessionName, branch: str) -> Document | None:
        """Return the newest state of a session, None where hot cannot say."""
        key = name.key()
        number = partition_of(key, self._cluster.partitions)
        document = None
        if not self._marks.rests:
            reading = self._marks.session(number, key, self._clock.now_ms())
            with suppress(
                UnavailableError, CorruptDataError, NotFoundError, NotHeldError
            ):
                found = self._thread.run(reading)
                if found is not None:
                    document = self._document(name, branch, number, found)
        with self._lock:
            if document is None:
                self.misses += 1
            else:
                self.hits += 1
        return document

    def new_hits(self) -> int:
        """Return how many answers came from hot since this was asked last."""
        with self._lock:
            new, self._told_hits = self.hits - self._told_hits, self.hits
            return new

    def was_told(self, key: bytes, floor: Floor) -> None:
        """Take no older answer from hot from here on."""
        with self._lock:
            self._floors[key] = self._floors.pop(key, Floor()).with_more(floor)
            while len(self._floors) > _FLOORS_MAX:
                self._floors.popitem(last=False)

    # -- inside ----------------------------------------------------------------

    def _document(
        self, name: SessionName, branch: str, number: int, found: "Marked"
    ) -> Document | None:
        key, stored = name.key(), found.value.stored()
        with self._lock:
            floor = self._floors.get(key, Floor())
        if stored.is_tombstone or not floor.allows(stored):
            return None
        ttl_ms = found.mark.ttl_ms
        if 0 < ttl_ms <= self._clock.now_ms() - stored.arrived_ms:
            return None  # its owner says so, as it says it of any other
        # Frames that are sealed meanwhile are frames still, here.
        unsealed = replace(stored, sealed_version=0)
        store = cast("WarmStore", _HeldFrames(found))
        view = SessionView(store, key, unsealed)
        if view.state(branch) is None:
            return None
        document = state_document(name, view, branch, "", TIER)
        at = found.mark.offset
        if stored.position is not None and stored.position.log == self._log:
            at = max(at, stored.position.offset)
        reflects = f"{self._log.hex()}:{number}:{at}" if at >= 0 else START
        head = stored.head
        self.was_told(key, Floor(head.incarnation, head.version))
        return {**from_json(to_json(document)), "reflects": reflects}


async def _opened(settings: "RedisSettings", keys: "HotKeys | None") -> "Marks":
    from turnstate.storage.hot.redis_marks import Marks

    # Connections belong to the loop that they are made on.
    return Marks(settings, opens=None if keys is None else keys.opened)


def hot_reads(
    cluster: ClusterSettings, log: bytes, changelog_id: bytes
) -> HotReads | None:
    """Return the reads of the hot tier, None where there is none."""
    if not cluster.redis:
        return None
    try:
        return HotReads(cluster, log, changelog_id)
    except UnavailableError as error:
        _log.warning("hot.not_read", why=str(error))
        return None


def floor_of(at_least: int | str) -> Floor:
    """Return what a reader knows of a session that has come so far.

    Example:
        >>> floor_of("2-7")
        Floor(incarnation=2, version=7, at_least=0, offset=-1)
        >>> floor_of("00:3:40").offset, floor_of(5).at_least
        (40, 5)
    """
    if isinstance(at_least, str) and ":" in at_least:
        return Floor(offset=int(at_least.rpartition(":")[2]))
    place = wanted_place(at_least)
    return Floor(*place) if place.incarnation else Floor(at_least=place.version)
