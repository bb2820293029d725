"""The states that readers were brought to last, so that none is built twice."""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from turnstate.schemas.limits import RECENT_TURNS
from turnstate.streams.documents import Document

if TYPE_CHECKING:
    from turnstate.storage.snapshots import Snapshot, SnapshotPool

POOL_BYTES: Final = 8 << 20
"""About 500 sessions at several versions each."""

POOL_TTL_MS: Final = 300_000
"""The session layer of B10: read aside, five minutes. Who has not asked for longer
has the older state built once more."""


class RecentStates:
    """Keep states by session, life, branch and version; see `SnapshotPool`.

    Safe to use from several threads. Takes nothing until it is used, also no
    time to import what makes patches.

    Args:
        now_ms: Tells the time.

    Attributes:
        built: How many states had to be built because they were not here.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.built = 0
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._pool: SnapshotPool | None = None
        self._clearings = 0

    def take(
        self, key: bytes, version: int, build: Callable[[], Document]
    ) -> "Snapshot":
        """Return a state from here, or build and keep it.

        Args:
            key: Of session, life and branch.
            version: Its version.
            build: Makes the document.
        """
        with self._lock:
            held = self._opened().get(key, self._now_ms(), version)
            clearings = self._clearings
        if held is not None:
            return held
        document = build()
        with self._lock:
            self.built += 1
            pool = self._opened()
            # What was read before something was erased is not kept after it.
            if clearings == self._clearings:
                pool.put(key, version, document, self._now_ms())
            return pool.snapshot(version, document)

    def clear(self) -> None:
        """Forget everything: something was erased."""
        with self._lock:
            self._pool = None
            self._clearings += 1

    def _opened(self) -> "SnapshotPool":
        if self._pool is None:
            from turnstate.storage.snapshots import SnapshotPool

            self._pool = SnapshotPool(
                POOL_BYTES, ttl_ms=POOL_TTL_MS, turns=RECENT_TURNS
            )
        return self._pool
