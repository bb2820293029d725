"""Read cold sessions by their pointers: what is asked for, in few requests."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Final, Protocol, TypeVar

from turnstate.schemas.errors import (
    CorruptDataError,
    NotFoundError,
    TurnstateError,
    UnavailableError,
)
from turnstate.storage.cold.deadline import WAIT_S, left_s, too_slow
from turnstate.storage.cold.fetchers import Fetchers, closed
from turnstate.storage.cold.pointer import Pointer
from turnstate.storage.session_image import (
    Front,
    Part,
    SessionImage,
    decode_front,
    decode_image,
    decode_index,
)
from turnstate.storage.single_flight import SingleFlight
from turnstate.storage.stored_head import StoredHead, decode_stored_head
from turnstate.storage.warm.cold_rows import ColdHead

READ_AHEAD_BYTES: Final = 256 << 10
"""Segments that follow the one asked for come in the same request: turns are
paged in order, and a request costs more than these bytes do."""

CACHE_BYTES: Final = 16 << 20
"""Of fronts and parts that were read last."""

_REBUILD: Final = "turnstate verify --repair rebuilds the session from the log"

FETCHES_MAX: Final = 16
"""Fetches at the same time: as many as an S3 store has connections."""

_T = TypeVar("_T")

_Place = tuple[Pointer, int, int]
"""An image, and the offset and length of what is read of it."""


class PackReads(Protocol):
    """What is needed of a store of packs."""

    def read(self, pointer: Pointer) -> bytes:
        """Return a whole image, checked, in one request."""
        ...

    def read_front(self, pointer: Pointer) -> bytes:
        """Return the front of an image in one request."""
        ...

    def read_range(self, pointer: Pointer, offset: int, length: int) -> bytes:
        """Return a part of an image in one request."""
        ...


class ColdSessions:
    """Answer for sessions that lie in packs, each part fetched once at a time.

    Fetches run in threads of their own. A read that is one (`OneRead`) waits
    for all of them together no longer than its limit; then they go on, and a
    later read finds what came. Jobs and verification wait as long as it takes.

    Args:
        packs: Where the packs are.
        cache_bytes: How much of what was read is kept.
        wait_s: How long a read waits in all, in seconds.
    """

    def __init__(
        self,
        packs: PackReads,
        cache_bytes: int = CACHE_BYTES,
        *,
        wait_s: float = WAIT_S,
    ) -> None:
        self._packs = packs
        self._wait_s = wait_s
        self._cache = _Cache(cache_bytes)
        self._parts: SingleFlight[_Place, bytes] = SingleFlight()
        self._wholes: SingleFlight[tuple[bytes, Pointer], SessionImage] = SingleFlight()
        self._fetchers = Fetchers(FETCHES_MAX, "turnstate-cold")

    def close(self) -> None:
        """Fetch no more; whoever waits is told so at once. Twice is once."""
        self._fetchers.close()
        for flights in (self._parts, self._wholes):
            flights.abandon(closed())

    def left_s(self) -> float | None:
        """Return how long the read under way may wait; None = as long as it takes."""
        return left_s(self._wait_s)

    def too_slow(self) -> UnavailableError:
        """Return what a read is told whose time is over."""
        return too_slow(self._wait_s)

    def image(self, cold: ColdHead) -> "ColdImage":
        """Return one session; its front is fetched, the rest when it is asked for.

        Raises:
            UnavailableError: the tier is away.
            CorruptDataError: the pack is gone or damaged: the session may have
                moved, look at its pointer again.
        """
        return ColdImage(self, cold.pointer)

    def images(
        self, cold: Mapping[bytes, ColdHead]
    ) -> tuple[dict[bytes, SessionImage], dict[bytes, TurnstateError]]:
        """Return whole sessions, several fetched at a time."""
        found: dict[bytes, SessionImage] = {}
        failed: dict[bytes, TurnstateError] = {}
        waiting: dict[bytes, Future[SessionImage]] = {}
        for key, each in cold.items():
            try:
                waiting[key] = self.fetching(key, each)
            except TurnstateError as error:
                failed[key] = error
        for key, future in waiting.items():
            try:
                found[key] = self._waited(future)
            except TurnstateError as error:
                failed[key] = error
        return found, failed

    def fetching(self, key: bytes, cold: ColdHead) -> "Future[SessionImage]":
        """Begin to fetch a whole session, once for all who ask; never waits.

        The future fails as `image` does.

        Raises:
            UnavailableError: the tier is so far behind that nothing is begun.
        """
        pointer = cold.pointer
        return self._wholes.begun(
            (key, pointer), lambda: self._whole(key, pointer), self._fetchers.start
        )

    def _waited(self, future: "Future[_T]") -> _T:
        """Return what is fetched, or raise that it takes too long."""
        try:
            return future.result(self.left_s())
        except TimeoutError as error:
            raise self.too_slow() from error

    def _whole(self, key: bytes, pointer: Pointer) -> SessionImage:
        data = _present(pointer, lambda: self._packs.read(pointer))
        image = decode_image(data)
        if (image.key, image.incarnation, image.version) != (
            key,
            pointer.incarnation,
            pointer.version,
        ):
            raise CorruptDataError(
                f"in {pointer.pack} another session lies where this one should",
                hint="restore the pack from a copy of the bucket",
            )
        front = pointer.front_bytes
        self._cache.put((pointer, 0, front), data[:front])
        return image

    def front(self, pointer: Pointer) -> bytes:
        """Return the front of an image."""
        place = (pointer, 0, pointer.front_bytes)
        return self._fetched(place, lambda: self._packs.read_front(pointer))

    def parts(self, pointer: Pointer, parts: Sequence[Part]) -> list[bytes]:
        """Return neighbouring parts of an image, checked, in one request."""
        begin = parts[0].offset
        length = _end(parts[-1]) - begin
        offset = pointer.front_bytes + begin

        def taken(data: bytes) -> list[bytes]:
            return [part.taken_from(data, begin) for part in parts]

        def fetch() -> bytes:
            data = self._packs.read_range(pointer, offset, length)
            # What was damaged on its way must not be kept: the next look may
            # find it whole.
            taken(data)
            return data

        return taken(self._fetched((pointer, offset, length), fetch))

    def _fetched(self, place: _Place, fetch: Callable[[], bytes]) -> bytes:
        """Return what lies at a place, from the cache or by one call of `fetch`."""
        kept = self._cache.get(place)
        if kept is not None:
            return kept

        def fetch_and_keep() -> bytes:
            # Another flight may have landed since this caller looked.
            data = self._cache.get(place)
            if data is None:
                data = _present(place[0], fetch)
                self._cache.put(place, data)
            return data

        flying = self._parts.begun(place, fetch_and_keep, self._fetchers.start)
        return self._waited(flying)


class ColdImage:
    """One cold session, read piece by piece.

    Args:
        sessions: Fetches.
        pointer: Where it lies.
    """

    def __init__(self, sessions: ColdSessions, pointer: Pointer) -> None:
        self._sessions = sessions
        self._pointer = pointer
        self._front, _ = decode_front(sessions.front(pointer))

    @property
    def front(self) -> Front:
        """Return what the image begins with."""
        return self._front

    @property
    def stored(self) -> StoredHead:
        """Return the head of the session, where nothing is encrypted."""
        return decode_stored_head(self._front.row)

    @property
    def row(self) -> bytes:
        """Return the row of the session's head, encrypted or not."""
        return self._front.row

    @property
    def base(self) -> bytes | None:
        """Return the state that its unsealed frames start from."""
        return self._front.base

    def frames(self, after_version: int) -> Iterator[bytes]:
        """Yield segments, then frames, that lead above a version.

        Parts that follow are read ahead in one request, so that a page of
        turns costs one.
        """
        wanted = [
            part for part in self._front.frames if part.to_version > after_version
        ]
        at = 0
        while at < len(wanted):
            first, last = wanted[at], at
            while (
                last + 1 < len(wanted)
                and _end(wanted[last + 1]) - first.offset <= READ_AHEAD_BYTES
            ):
                last += 1
            yield from self._sessions.parts(self._pointer, wanted[at : last + 1])
            at = last + 1

    def index(self) -> Mapping[bytes, bytes]:
        """Return the rows of its turn index, by what follows the session's prefix."""
        (data,) = self._sessions.parts(self._pointer, [self._front.index])
        return {entry.suffix: entry.row for entry in decode_index(data)}


class _Cache:
    """Keep what was read last within a budget; safe from any thread."""

    def __init__(self, budget_bytes: int) -> None:
        self._budget_bytes = budget_bytes
        self._bytes = 0
        self._lock = threading.Lock()
        self._kept: OrderedDict[_Place, bytes] = OrderedDict()

    def get(self, at: _Place) -> bytes | None:
        with self._lock:
            found = self._kept.get(at)
            if found is not None:
                self._kept.move_to_end(at)
            return found

    def put(self, at: _Place, data: bytes) -> None:
        with self._lock:
            if at in self._kept:
                return
            self._kept[at] = data
            self._bytes += len(data)
            while self._bytes > self._budget_bytes:
                _, gone = self._kept.popitem(last=False)
                self._bytes -= len(gone)


def _end(part: Part) -> int:
    return part.offset + part.length


def _present(pointer: Pointer, fetch: Callable[[], bytes]) -> bytes:
    """Fetch; a pack that is gone is damage to whoever has just read a pointer."""
    try:
        return fetch()
    except NotFoundError as error:
        raise CorruptDataError(
            f"the pack {pointer.pack} is gone",
            hint="if this stays: restore the bucket, or rebuild from the log",
            code="pack_gone",
        ) from error
    except CorruptDataError as error:
        error.hint = error.hint or _REBUILD
        raise
