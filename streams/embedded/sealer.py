"""When sessions are sealed: once their frames fill a segment, or once they are idle."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

import structlog

from turnstate.agents.ports import Clock
from turnstate.agents.session.tails import Tails
from turnstate.schemas.dialogue.phases import DialogueGraph
from turnstate.schemas.errors import CorruptDataError
from turnstate.schemas.ids import SessionName
from turnstate.storage.frames.segment import is_due
from turnstate.storage.hot.memory import MemoryTier
from turnstate.storage.seal import Sealed, sealed
from turnstate.storage.stored_head import StoredHead
from turnstate.storage.tier import SessionChange
from turnstate.storage.warm.rocksdb import WarmStore

_log = structlog.get_logger(__name__)

SEALED_A_SLICE: Final = 32
"""Sessions sealed between two looks at the inbox: about 10 ms."""

SEGMENTS_BEHIND_MAX: Final = 8
"""While turns wait, sealing waits too, until a session has so many segments'
worth of frames: a read never has to go through more than that."""


class Sealer:
    """Seal sessions between groups, in the owner's thread and nowhere else.

    Args:
        store: Where frames and segments are.
        hot: Told of the new bookkeeping.
        tails: Forgotten with the frames that they stand for.
        graph: The dialogue graph.
        clock: Says what is idle.
        idle_ms: How long nobody has to have spoken.
        head: The newest head of a session.
    """

    def __init__(
        self,
        *,
        store: WarmStore,
        hot: MemoryTier,
        tails: Tails,
        graph: DialogueGraph,
        clock: Clock,
        idle_ms: int,
        head: Callable[[bytes], StoredHead | None],
    ) -> None:
        self._store = store
        self._hot = hot
        self._tails = tails
        self._graph = graph
        self._clock = clock
        self._idle_ms = idle_ms
        self._head = head
        self._due: dict[bytes, None] = {}
        self._urgent: dict[bytes, None] = {}
        self._unsealed: OrderedDict[bytes, int] = OrderedDict()
        self._looked_back = False

    def note(self, changes: Sequence[SessionChange]) -> None:
        """Remember which sessions have frames, and which have enough."""
        for change in changes:
            after = change.after
            if is_due(after.frame_turns, after.frame_bytes):
                self._due[change.key] = None
                if is_due(
                    after.frame_turns // SEGMENTS_BEHIND_MAX,
                    after.frame_bytes // SEGMENTS_BEHIND_MAX,
                ):
                    self._urgent[change.key] = None
            self._unsealed[change.key] = after.arrived_ms
            self._unsealed.move_to_end(change.key)

    def seal_urgent(self) -> None:
        """Seal what may wait no longer, though turns wait."""
        self.seal(list(self._urgent))

    def seal_due(self) -> bool:
        """Seal sessions whose frames fill a segment, a slice at a time.

        Returns:
            Whether there are more.
        """
        self.seal(list(islice(self._due, SEALED_A_SLICE)))
        return bool(self._due)

    def seal_idle(self) -> None:
        """Seal what nobody has spoken in for long, a slice at a time."""
        self.seal(self._idle_keys())

    def _idle_keys(self) -> list[bytes]:
        """Take a slice of what nobody has spoken in for long."""
        if not self._looked_back:
            self._look_back()
        before_ms = self._clock.now_ms() - self._idle_ms
        idle: list[bytes] = []
        for key, arrived_ms in self._unsealed.items():
            if arrived_ms > before_ms or len(idle) == SEALED_A_SLICE:
                break
            idle.append(key)
        for key in idle:
            del self._unsealed[key]
        return idle

    def _look_back(self) -> None:
        """Enter the sessions that an earlier run left with frames."""
        self._looked_back = True
        found: dict[bytes, int] = {}
        for key in self._store.keys_with_frames():
            stored = self._head(key)
            if stored is not None and key not in self._unsealed:
                found[key] = stored.arrived_ms
        old = sorted(found.items(), key=lambda item: item[1])
        self._unsealed = OrderedDict([*old, *self._unsealed.items()])

    def seal(self, keys: Sequence[bytes]) -> int:
        """Seal sessions; a damaged one is left as it is and named in the log.

        Returns:
            How many changed.
        """
        count = 0
        for key in keys:
            try:
                count += self._seal_one(key)
            except CorruptDataError as error:
                self._tell_damaged(key, error)
        return count

    def planned(
        self, *, urgent: bool = False, keys: Sequence[bytes] | None = None
    ) -> list[Sealed]:
        """Return seals that are due, for who writes them by other means.

        What is written is told to `done`; a seal that is not written comes
        again when the session next changes, or after a restart.

        Args:
            urgent: Only of what may wait no longer, though turns wait.
            keys: Of these sessions, due or not.
        """
        if keys is None and urgent:
            keys = list(self._urgent)
        elif keys is None:
            keys = list(islice(self._due, SEALED_A_SLICE)) or self._idle_keys()
        plans: list[Sealed] = []
        for key in keys:
            try:
                plan = self._plan(key)
            except CorruptDataError as error:
                self._tell_damaged(key, error)
                continue
            if plan is not None:
                plans.append(plan)
        return plans

    def done(self, sealed: Sealed) -> None:
        """Note a seal that is written."""
        self._hot.replace(sealed.key, sealed.after)
        self._tails.forget(sealed.key)

    def _plan(self, key: bytes) -> Sealed | None:
        # Else one that was asked for is sealed once more after its next turn.
        self._due.pop(key, None)
        self._urgent.pop(key, None)
        stored = self._head(key)
        if stored is None:
            return None
        return sealed(self._store, key, stored, self._graph, self._clock.now_ms())

    def _seal_one(self, key: bytes) -> bool:
        plan = self._plan(key)
        if plan is None:
            return False
        batch = self._store.batch()
        batch.stage_seal(plan)
        try:
            self._store.write(batch, sync=False)
        except BaseException:
            # Made or not, only the store knows.
            self._hot.drop(key)
            self._tails.forget(key)
            raise
        self.done(plan)
        return True

    def _tell_damaged(self, key: bytes, error: CorruptDataError) -> None:
        name = SessionName.from_key(key)
        _log.error(
            "seal.damaged", tenant=name.tenant, session=name.session, why=str(error)
        )
