"""An open embedded store: publish turns, read sessions, in one process."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Self

from turnstate.agents.ports import Clock
from turnstate.agents.session.step import Answer
from turnstate.schemas.clocks import DotSet
from turnstate.schemas.dialogue.phases import DialogueGraph, default_graph, load_graph
from turnstate.schemas.errors import InvalidInputError
from turnstate.schemas.operation import MAIN
from turnstate.schemas.turn import Turn
from turnstate.schemas.wire.json import turn_to_json
from turnstate.storage.backup.checkpoint import checkpoint_folder, remove_checkpoint
from turnstate.storage.backup.restore import refuse_half_restored
from turnstate.storage.encryption.key_file import KeyWrapper, wrapper_of
from turnstate.storage.warm.rocksdb import WarmStore
from turnstate.streams.clock import SystemClock
from turnstate.streams.embedded.cold import Tiering
from turnstate.streams.embedded.engine import Engine
from turnstate.streams.embedded.recent_states import RecentStates
from turnstate.streams.expiry import Expiry
from turnstate.streams.reading import StoreReader
from turnstate.streams.settings import Settings
from turnstate.streams.tiers.opening import open_packs

STORE_FOLDER = "store"
"""RocksDB's folder inside the data folder."""


class EmbeddedStore(StoreReader):
    """Own a data folder and answer everything about it.

    Opens RocksDB, so that one process at a time holds it; others reach it
    through the owner's socket. Safe to use from several threads.

    Args:
        settings: Where it is, and its sizes.
        clock: For arrival times; the machine's where None.
        wrapper: Who has the master key, in place of what the settings name.

    Raises:
        UnavailableError: another process owns the store (code `owned`), or its
            master key is missing or another one; then nothing is changed.
    """

    def __init__(
        self,
        settings: Settings,
        clock: Clock | None = None,
        wrapper: KeyWrapper | None = None,
    ) -> None:
        self.settings = settings
        self.clock = clock or SystemClock()
        self._expiry = Expiry(settings.ttl_s, self.clock.now_ms)
        graph = graph_of(settings)
        wrapper = wrapper or wrapper_of(settings.encryption)
        settings.data.mkdir(parents=True, exist_ok=True)
        folder = settings.data / STORE_FOLDER
        refuse_half_restored(folder)
        warm = WarmStore(
            folder,
            log_name=settings.log_name,
            cache_bytes=settings.block_cache_bytes,
            write_buffer_bytes=settings.write_buffer_bytes,
            wrapper=wrapper,
        )
        try:
            warm.refuse_locked()
            # One that a crash left would keep bytes that are erased here.
            remove_checkpoint(checkpoint_folder(folder))
            self.engine = Engine(warm, settings, graph, self.clock)
        except BaseException:
            warm.close()
            raise
        self.tiering = Tiering(
            self.engine, partial(open_packs, settings, self.clock), self.clock.now_ms
        )
        self.recent_states = RecentStates(self.clock.now_ms)
        super().__init__(warm, self.engine, graph)

    def close(self) -> None:
        """Commit what waits, then let the store go."""
        self.engine.close()
        self.tiering.close()

    def has_expired(self, arrived_ms: int) -> bool:
        """Say whether a session whose last turn came then is served no more."""
        return self._expiry.is_over(arrived_ms)

    def was_read(self, key: bytes, tier: str) -> None:
        """Note that a reader asked for a session."""
        self.tiering.was_read(key, tier)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- writing -----------------------------------------------------------

    def publish(
        self,
        records: Sequence[bytes],
        refused: Mapping[int, Sequence[str | None]] | None = None,
    ) -> list[Answer]:
        """Fold JSON turns; return once they are durable, one answer each.

        Args:
            records: JSON turns.
            refused: Place → (message, field, code) of records that a reader has
                refused: they are not looked at, but kept as dead letters.
        """
        return self.engine.submit(records, refused=refused).result()

    def operate(self, turn: Turn) -> Answer:
        """Fold one operation and return its answer.

        Raises:
            TurnstateError: it was refused; the error says why.
        """
        answer = self.publish([turn_to_json(turn)])[0]
        if answer.error is not None:
            raise answer.error
        return answer

    def rollback(
        self, tenant: str, session: str, version: int, branch: str = MAIN
    ) -> Answer:
        """Go back to what a branch was at a version; nothing is dropped."""
        clock = self._clock_at(tenant, session, version)
        return self.operate(
            Turn(
                tenant=tenant,
                session=session,
                role="system",
                op="rollback",
                branch=None if branch == MAIN else branch,
                to=clock,
            )
        )

    def fork(
        self,
        tenant: str,
        session: str,
        branch: str,
        *,
        version: int | None = None,
        turn: str | None = None,
    ) -> Answer:
        """Begin a branch at a version, at a turn, or where main stands."""
        self._stored(tenant, session)
        to = None if version is None else self._clock_at(tenant, session, version)
        return self.operate(
            Turn(
                tenant=tenant,
                session=session,
                role="system",
                op="fork",
                branch=branch,
                target=turn,
                to=to,
            )
        )

    def end(
        self, tenant: str, session: str, *, branch: str = MAIN, to: str | None = None
    ) -> Answer:
        """Mark a branch as ended; `to` names the session that goes on."""
        self._stored(tenant, session)
        return self.operate(
            Turn(
                tenant=tenant,
                session=session,
                role="system",
                op="end",
                branch=None if branch == MAIN else branch,
                to=to,
            )
        )

    # -- inside ------------------------------------------------------------------

    def _clock_at(
        self, tenant: str, session: str, version: int
    ) -> dict[str, int | list[int]]:
        """Return the version vector that a session had at a version.

        Raises:
            NotFoundError: it never was at that version.
            InvalidInputError: dots were missing then: no vector names it.
        """
        clock: DotSet = self.head(tenant, session, version).clock
        if clock.beyond_gaps():
            raise InvalidInputError(
                f"version {version} had gaps, no clock names it",
                field="version",
                hint="take a version before the gap, or after it closed",
            )
        return dict(clock.contiguous())


def graph_of(settings: Settings) -> DialogueGraph:
    """Return the dialogue graph that the settings name.

    Raises:
        InvalidInputError: the file cannot be read or is no graph.
    """
    if not settings.graph:
        return default_graph()
    try:
        return load_graph(Path(settings.graph).read_bytes())
    except OSError as error:
        raise InvalidInputError(
            f"the dialogue graph {settings.graph} cannot be read: {error}",
            field="graph",
        ) from error


