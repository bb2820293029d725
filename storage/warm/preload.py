"""Asking ahead for the blocks of a session that begins, so that its reads find them."""

import threading
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from turnstate.schemas.errors import TurnstateError
from turnstate.storage.stored_head import StoredHead
from turnstate.storage.warm.rocksdb import WarmStore
from turnstate.storage.warm.tables import FRAMES, SEGMENTS, life_prefix, version_key

PRELOADED_VERSIONS: Final = 64
"""Of the end of a session: what a state, a page of turns and the next frame need."""

WAITING_MAX: Final = 1024
"""Sessions asked for and not yet read; beyond it a wish is refused: what is
asked for so late is read sooner by who needs it."""


class Preloader:
    """Read the end of sessions into the block cache, in a thread of its own.

    How to ask ahead was measured: 40 000 sessions, 103 MB in 10 files, the
    page cache emptied of them before each read, milliseconds until a state
    was read, p50 (p95), on a machine that others used as well:

    | before the read | store just opened | running for a while |
    |---|---|---|
    | nothing | 1.5 (1.9) | 0.6 (4.4) |
    | these rows by an iterator, which fills the cache | 0.35 (0.5) | 0.25 (0.5) |
    | all rows of the session, the turn index too | 0.35 (0.5) | 0.30 (0.5) |
    | `posix_fadvise(WILLNEED)` on its files | 18 (28) | 13 (20) |
    | the same, 20 ms before | 1.9 (15) | 1.3 (7) |

    So rows are read. Advice (as `MADV_WILLNEED` on a map) can only be given
    for whole files, since RocksDB does not tell in which block a row lies; the
    read then waits behind megabytes that nobody wants. Reading ahead takes 0.4
    to 1.2 ms a session.

    Args:
        store: The store; closed after this.
        waiting_max: See `WAITING_MAX`.
        versions: See `PRELOADED_VERSIONS`.
    """

    def __init__(
        self,
        store: WarmStore,
        *,
        waiting_max: int = WAITING_MAX,
        versions: int = PRELOADED_VERSIONS,
    ) -> None:
        self.loaded = 0
        self.failed = 0
        self._store = store
        self._waiting_max = waiting_max
        self._versions = versions
        self._waiting: dict[bytes, Future[None]] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="turnstate-preload")

    def ask(self, keys: Iterable[bytes]) -> int:
        """Ask for sessions and return at once; from any thread.

        Returns:
            How many will be read: not those that wait already, nor what is
            beyond `waiting_max`; none once it is closed.
        """
        asked = 0
        with self._lock:
            for key in keys:
                if self._closed or len(self._waiting) >= self._waiting_max:
                    break
                if key in self._waiting:
                    continue
                self._waiting[key] = self._pool.submit(self._load, key)
                asked += 1
        return asked

    def wait(self) -> None:
        """Return once all that was asked for until now is read."""
        with self._lock:
            waiting = list(self._waiting.values())
        for each in waiting:
            each.result()

    def close(self) -> None:
        """Read no more, and return once nothing is being read. Twice is once."""
        with self._lock:
            self._closed = True
        self._pool.shutdown(cancel_futures=True)

    def _load(self, key: bytes) -> None:
        try:
            self.loaded += self._read(key)
        except TurnstateError:
            # Whoever reads it is told so; here nobody waits for an answer.
            self.failed += 1
        finally:
            with self._lock:
                self._waiting.pop(key, None)

    def _read(self, key: bytes) -> bool:
        """Read the end of a session; False where it is not in this store."""
        (stored,) = self._store.located([key])
        if not isinstance(stored, StoredHead):
            return False
        prefix = life_prefix(key, stored.head.incarnation)
        start = version_key(prefix, max(0, stored.head.version - self._versions + 1))
        for table in (FRAMES, SEGMENTS):
            for _ in self._store.rows(table, prefix, start):
                pass
        return True
