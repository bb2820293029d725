"""Fold dialogues in memory with the agent, turn by turn or a batch at a time."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from turnstate.agents.ports import Record
from turnstate.agents.session.agent import Folded, SessionAgent
from turnstate.schemas.dialogue.phases import default_graph
from turnstate.schemas.dialogue.turn_index import IdEntry
from turnstate.schemas.position import Position
from turnstate.storage.hot.memory import MemoryTier
from turnstate.storage.stored_head import StoredHead

LOG_NAME: Final = "log"
_ROOM: Final = 1 << 40


class _Nothing:
    """A store without a row: heads stay in the hot tier, no id comes twice."""

    def heads(self, keys: Sequence[bytes]) -> list[StoredHead | None]:
        return [None] * len(keys)

    def ids(
        self, lookups: Sequence[tuple[bytes, int, str]]
    ) -> list[IdEntry | None]:
        return [None] * len(lookups)

    def frames(
        self, key: bytes, incarnation: int, after_version: int
    ) -> Iterator[bytes]:
        del key, incarnation, after_version
        return iter(())

    def base(self, key: bytes, incarnation: int, sealed_version: int) -> None:
        del key, incarnation, sealed_version


class _NoClock:
    def now_ms(self) -> int:
        return 1


class Folder:
    """Fold turns as the pipeline does, writing nothing."""

    def __init__(self) -> None:
        self.hot = MemoryTier(_ROOM, frames_kept=0)
        self.agent = SessionAgent(
            store=_Nothing(),
            hot=self.hot,
            graph=default_graph(),
            log_name=LOG_NAME,
            clock=_NoClock(),
        )
        self._offset = 0

    def fold(self, turns: Iterable[bytes]) -> Folded:
        """Fold some turns as one batch."""
        records: list[Record] = []
        for turn in turns:
            records.append(Record(turn, Position(b"bench", 0, self._offset)))
            self._offset += 1
        folded = self.agent.fold(records)
        self.agent.committed(folded)
        return folded

    def heads(self) -> Iterator[tuple[bytes, StoredHead]]:
        """Yield (session key, head) of everything folded."""
        for key in list(self.hot.keys()):
            stored = self.hot.peek(key)
            assert stored is not None, "there is room for all"
            yield key, stored
