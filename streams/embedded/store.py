"""An open embedded store: publish turns, read sessions, in one process."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self, TypeVar

from turnstate.agents.ports import Clock
from turnstate.agents.session.step import Answer
from turnstate.schemas.clocks import DotSet
from turnstate.schemas.dialogue.head import Head
from turnstate.schemas.dialogue.phases import DialogueGraph, default_graph, load_graph
from turnstate.schemas.errors import InvalidInputError, NotFoundError
from turnstate.schemas.ids import SessionName, checked_id, tenant_prefix
from turnstate.schemas.operation import MAIN
from turnstate.schemas.turn import Turn
from turnstate.schemas.wire.json import turn_to_json
from turnstate.storage.frames.header import FRAME, SEGMENT, decode_header
from turnstate.storage.session_reader import fold_at
from turnstate.storage.session_view import SessionView
from turnstate.storage.stored_head import StoredHead
from turnstate.storage.warm.rocksdb import WarmStore
from turnstate.streams import documents
from turnstate.streams.clock import SystemClock
from turnstate.streams.documents import Document
from turnstate.streams.embedded.engine import Engine
from turnstate.streams.embedded.steady import steadily
from turnstate.streams.settings import Settings

STORE_FOLDER = "store"
"""RocksDB's folder inside the data folder."""

_Read = TypeVar("_Read")


class EmbeddedStore:
    """Own a data folder and answer everything about it.

    Opens RocksDB, so that one process at a time holds it; others reach it
    through the owner's socket. Safe to use from several threads.

    Args:
        settings: Where it is, and its sizes.
        clock: For arrival times; the machine's where None.

    Raises:
        UnavailableError: another process owns the store (code `owned`).
    """

    def __init__(self, settings: Settings, clock: Clock | None = None) -> None:
        self.settings = settings
        self.clock = clock or SystemClock()
        self.graph = graph_of(settings)
        settings.data.mkdir(parents=True, exist_ok=True)
        self.warm = WarmStore(
            settings.data / STORE_FOLDER,
            log_name=settings.log_name,
            cache_bytes=settings.block_cache_bytes,
            write_buffer_bytes=settings.write_buffer_bytes,
        )
        try:
            self.engine = Engine(self.warm, settings, self.graph, self.clock)
        except BaseException:
            self.warm.close()
            raise

    def close(self) -> None:
        """Commit what waits, then let the store go."""
        self.engine.close()

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

    # -- reading one session -------------------------------------------------

    def state(
        self,
        tenant: str,
        session: str,
        *,
        version: int | None = None,
        branch: str = MAIN,
    ) -> Document:
        """Return the state of a session, at any version that it ever had.

        Raises:
            NotFoundError: no such session, version or branch.
            CorruptDataError: what it needs is damaged.
        """
        name = SessionName(tenant, session)

        def read(stored: StoredHead) -> Document:
            view = self._view(name.key(), stored, version)
            tier = self._tier(name.key())
            return documents.state_document(name, view, branch, self.graph.start, tier)

        return self._reading(name, read)

    def turns(
        self,
        tenant: str,
        session: str,
        *,
        version: int | None = None,
        branch: str = MAIN,
        at: int = 0,
        limit: int = 1000,
    ) -> Document:
        """Return turns of a branch in order, a page of them.

        Raises:
            NotFoundError: no such session, version or branch.
        """
        name = SessionName(tenant, session)

        def read(stored: StoredHead) -> Document:
            view = self._view(name.key(), stored, version)
            return documents.turns_document(view.listing(branch), at, limit)

        return self._reading(name, read)

    def history(self, tenant: str, session: str) -> Document:
        """Return how the session is stored: one row a frame or segment.

        Raises:
            NotFoundError: no such session.
        """
        name = SessionName(tenant, session)

        def read(stored: StoredHead) -> Document:
            rows: list[Document] = []
            for frame in self.warm.frames(name.key(), stored.head.incarnation, 0):
                header = decode_header(frame)
                if header.kind not in (FRAME, SEGMENT):
                    continue
                rows.append(
                    {
                        "from": header.from_version,
                        "to": header.to_version,
                        "time": header.time_ms,
                        "bytes": len(frame),
                        "raw_bytes": header.raw_length,
                        "codec": header.codec_name,
                        "kind": header.kind_name,
                    }
                )
            return {"versions": rows}

        return self._reading(name, read)

    def head(self, tenant: str, session: str, version: int | None = None) -> Head:
        """Return the head of a session at a version, for programs.

        Raises:
            NotFoundError: no such session or version.
        """
        name = SessionName(tenant, session)
        return self._reading(
            name, lambda stored: self._view(name.key(), stored, version).head
        )

    # -- reading many ----------------------------------------------------------

    def sessions(
        self,
        *,
        tenant: str | None = None,
        tier: str | None = None,
        prefix: str = "",
    ) -> Iterator[Document]:
        """Yield a row for each session, in key order."""
        for key, stored in self.stored_heads(tenant, prefix):
            if stored.is_tombstone:
                continue
            where = self._tier(key)
            if tier is None or tier == where:
                yield documents.session_document(
                    SessionName.from_key(key), stored, where
                )

    def stored_heads(
        self, tenant: str | None = None, prefix: str = ""
    ) -> Iterator[tuple[bytes, StoredHead]]:
        """Yield (key, head) of every session, tombstones too, in key order."""
        start = tenant_prefix(tenant) + prefix.encode() if tenant is not None else b""
        for key in self.warm.keys(start):
            anywhere = tenant is None and bool(prefix)
            if anywhere and not SessionName.from_key(key).session.startswith(prefix):
                continue
            stored = self.engine.head(key)
            if stored is not None:
                yield key, stored

    # -- inside ------------------------------------------------------------------

    def _tier(self, key: bytes) -> str:
        return "hot" if self.engine.hot.peek(key) is not None else "warm"

    def _stored(self, tenant: str, session: str) -> StoredHead:
        name = SessionName(checked_id(tenant, "tenant"), checked_id(session, "session"))
        return self._present(name, self.engine.head(name.key()))

    def _present(self, name: SessionName, stored: StoredHead | None) -> StoredHead:
        tenant, session = name
        if stored is None or stored.is_tombstone:
            raise NotFoundError(
                f"there is no session {session!r} of tenant {tenant!r}",
                field="session",
                hint="turnstate sessions lists what there is",
            )
        return stored

    def _view(
        self, key: bytes, stored: StoredHead, version: int | None
    ) -> SessionView:
        if version is None or version == stored.head.version:
            return SessionView(self.warm, key, stored)
        head = fold_at(self.warm, key, stored, version, self.graph).head()
        return SessionView(self.warm, key, stored, head)

    def _reading(
        self, name: SessionName, read: Callable[[StoredHead], _Read]
    ) -> _Read:
        """Read with the newest head, following it where a seal comes between."""

        def read_stored(stored: StoredHead | None) -> _Read:
            return read(self._present(name, stored))

        checked_id(name.tenant, "tenant")
        checked_id(name.session, "session")
        return steadily(self.engine, name.key(), read_stored)

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


