"""What the warm tier asks of the tier below it, of sessions that lie there."""

from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from typing import Protocol

from turnstate.schemas.errors import TurnstateError, UnavailableError
from turnstate.storage.session_image import SessionImage
from turnstate.storage.stored_head import StoredHead
from turnstate.storage.warm.cold_rows import ColdHead


class Image(Protocol):
    """One cold session; what is not asked for is not fetched."""

    @property
    def stored(self) -> StoredHead:
        """Return its head, where nothing is encrypted."""
        ...

    @property
    def row(self) -> bytes:
        """Return the row of its head, as it lies."""
        ...

    @property
    def base(self) -> bytes | None:
        """Return the state that its unsealed frames start from."""
        ...

    def frames(self, after_version: int) -> Iterator[bytes]:
        """Yield segments, then frames, that lead above a version."""
        ...

    def index(self) -> Mapping[bytes, bytes]:
        """Return the rows of its turn index, by what follows the session's prefix."""
        ...


class Below(Protocol):
    """Where cold sessions are read; safe from any thread.

    Every method may raise `UnavailableError` (the tier is away) and
    `CorruptDataError` (what it gave is not what was put there).
    """

    def image(self, cold: ColdHead) -> Image:
        """Return one session, to read of it what is needed."""
        ...

    def images(
        self, cold: Mapping[bytes, ColdHead]
    ) -> tuple[dict[bytes, SessionImage], dict[bytes, TurnstateError]]:
        """Return whole sessions by key, and what is wrong where that failed."""
        ...

    def fetching(self, key: bytes, cold: ColdHead) -> "Future[SessionImage]":
        """Begin to fetch a whole session, once for all who ask; never waits."""
        ...

    def left_s(self) -> float | None:
        """Return how long the read under way may wait; None = as long as it takes."""
        ...

    def too_slow(self) -> UnavailableError:
        """Return what a read is told whose time is over."""
        ...
