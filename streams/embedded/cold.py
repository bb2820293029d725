"""The cold tier of an embedded store: where its packs are, and who may flip."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final

from turnstate.schemas.errors import TurnstateError
from turnstate.storage.access import Accesses, AccessHistory
from turnstate.storage.cold.sessions import ColdSessions
from turnstate.storage.cold.store import PackStore
from turnstate.storage.moves.owner import Moves
from turnstate.storage.warm.cold_rows import ColdHead
from turnstate.streams.embedded.engine import Engine
from turnstate.streams.tiers.fenced_packs import FencedPacks

READ_TWICE_MS: Final = 600_000
"""A cold session that is read twice within ten minutes comes back to warm."""

_KNOWN_MAX: Final = 100_000


class Tiering:
    """What an owner knows of tiers beside its store: uses, leases, the cold tier.

    Args:
        engine: The engine of the store.
        open_packs: Opens where cold sessions are; not before it is needed, so
            that a store that never cools has no place for it.
        now_ms: Tells the time.
    """

    def __init__(
        self,
        engine: Engine,
        open_packs: Callable[[], PackStore],
        now_ms: Callable[[], int],
    ) -> None:
        self._fenced = FencedPacks(open_packs)
        self.moves = Moves(engine.store, engine.hot)
        self._engine = engine
        self._now_ms = now_ms
        self._cold = ColdSessions(self._fenced)
        self._lock = threading.Lock()
        self._reads = AccessHistory(_KNOWN_MAX)
        self._rising: set[bytes] = set()
        engine.store.below = self._cold

    def close(self) -> None:
        """Let the cold tier go."""
        self._cold.close()

    @property
    def packs(self) -> PackStore:
        """Return where cold sessions are; opened once."""
        return self._fenced.packs

    def admit(self, token: int) -> None:
        """Let a job change pointers; see `FencedPacks.admit`.

        Raises:
            FencedError: another job has taken over since.
        """
        self._fenced.admit(token)

    def cold_bytes(self) -> int:
        """Return the bytes of all packs; asks nobody where nothing ever was cold."""
        if not self._engine.store.knows_cold:
            return 0
        packs = self.packs.manifests.latest().packs.values()
        return sum(each.bytes for each in packs)

    def accesses(self, key: bytes) -> Accesses:
        """Return when readers used a session."""
        with self._lock:
            return self._reads.get(key)

    def was_read(self, key: bytes, tier: str) -> None:
        """Note that a reader asked for a session; a scan or replay does not tell.

        Hot learns of it. Of a warm one the rows are asked for ahead the first
        time; a cold one that is asked for again soon comes back behind the scenes.
        """
        now_ms = self._now_ms()
        with self._lock:
            before = self._reads.get(key)
            self._reads.touch(key, now_ms)
            is_second = before.last_ms and now_ms - before.last_ms < READ_TWICE_MS
            if tier == "hot":
                self._engine.hot.note_use(key)
            elif tier == "warm" and not before.last_ms:
                self._engine.preloading.first_read(key)
            # A thousand readers cause one move, and one fetch for it.
            if tier != "cold" or not is_second or key in self._rising:
                return
            self._rising.add(key)
        try:
            done = self._promoted(key)
        except TurnstateError:
            # Its reader has what was asked for; the next one tries again.
            done = None
        if done is None:
            self._rising.discard(key)
        else:
            done.add_done_callback(lambda _: self._rising.discard(key))

    def _promoted(self, key: bytes) -> "Future[Any] | None":
        (cold,) = self._engine.store.located([key])
        if not isinstance(cold, ColdHead):
            return None
        found, _ = self._engine.store.images([key])
        image = found.get(key)
        if image is None:
            return None
        return self._engine.call(lambda: self.moves.warm({key: (cold, image)}))
