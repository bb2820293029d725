"""The cold tier of an embedded store: where its packs are, and who may flip."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from turnstate.schemas.errors import TurnstateError
from turnstate.storage.access import Accesses
from turnstate.storage.cold.sessions import ColdSessions
from turnstate.storage.cold.store import PackStore
from turnstate.storage.moves.owner import Moves
from turnstate.storage.warm.cold_rows import ColdHead
from turnstate.streams.embedded.engine import Engine
from turnstate.streams.tiers.fenced_packs import FencedPacks
from turnstate.streams.tiers.reads import Reads


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
        wait_s = engine.settings.cold_wait_s
        self._cold = ColdSessions(self._fenced, wait_s=wait_s)
        self._reads = Reads()
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
        return self._reads.accesses(key)

    def was_read(self, key: bytes, tier: str) -> None:
        """Note that a reader asked for a session; a scan or replay does not tell.

        Hot learns of it. Of a warm one the rows are asked for ahead the first
        time; a cold one that is asked for again soon comes back behind the scenes.
        """
        now_ms = self._now_ms()
        is_first, rises = self._reads.note(key, now_ms, is_cold=tier == "cold")
        if tier == "hot":
            self._engine.hot.note_use(key)
        elif tier == "warm" and is_first:
            self._engine.preloading.first_read(key)
        if not rises:
            return
        try:
            done = self._promoted(key)
        except TurnstateError:
            # Its reader has what was asked for; the next one tries again.
            done = None
        if done is None:
            self._reads.risen(key)
        else:
            done.add_done_callback(lambda _: self._reads.risen(key))

    def _promoted(self, key: bytes) -> "Future[Any] | None":
        (cold,) = self._engine.store.located([key])
        if not isinstance(cold, ColdHead):
            return None
        found, _ = self._engine.store.images([key])
        image = found.get(key)
        if image is None:
            return None
        fetched, now_ms = {key: (cold, image)}, self._now_ms()
        return self._engine.call(lambda: self.moves.warm(fetched, now_ms))
