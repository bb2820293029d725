"""Read cold sessions by their pointers: what is asked for, in few requests."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol

from turnstate.schemas.errors import CorruptDataError, NotFoundError, TurnstateError
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

FETCHES_MAX: Final = 8
"""Whole sessions fetched at the same time."""


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

    Args:
        packs: Where the packs are.
        cache_bytes: How much of what was read is kept.
    """

    def __init__(self, packs: PackReads, cache_bytes: int = CACHE_BYTES) -> None:
        self._packs = packs
        self._cache = _Cache(cache_bytes)
        self._flight: SingleFlight[_Place, bytes] = SingleFlight()
        self._pool = ThreadPoolExecutor(FETCHES_MAX, "turnstate-cold")

    def close(self) -> None:
        """End the threads; what is being fetched is waited for."""
        self._pool.shutdown()

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
        waiting = {
            key: self._pool.submit(self._whole, key, each.pointer)
            for key, each in cold.items()
        }
        for key, future in waiting.items():
            try:
                found[key] = future.result()
            except TurnstateError as error:
                failed[key] = error
        return found, failed

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
            data = _present(place[0], fetch)
            self._cache.put(place, data)
            return data

        return self._flight.fetched(place, fetch_and_keep)


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
