"""Read sessions of an open store: state, turns, history, lists; in any thread."""

from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

from turnstate.schemas.dialogue.head import Head
from turnstate.schemas.dialogue.phases import DialogueGraph
from turnstate.schemas.errors import NotFoundError
from turnstate.schemas.ids import SessionName, checked_id, tenant_prefix
from turnstate.schemas.operation import MAIN
from turnstate.storage.cold.deadline import OneRead
from turnstate.storage.frames.header import FRAME, SEGMENT, decode_header
from turnstate.storage.hot.memory import MemoryTier
from turnstate.storage.session_reader import fold_at
from turnstate.storage.session_row import SessionRow, session_row
from turnstate.storage.session_view import SessionView
from turnstate.storage.stored_head import StoredHead
from turnstate.storage.warm.cold_rows import ColdHead
from turnstate.storage.warm.rocksdb import WarmStore
from turnstate.streams import documents
from turnstate.streams.documents import Document
from turnstate.streams.steady import steadily

_Read = TypeVar("_Read")


class Heads(Protocol):
    """Who knows the newest heads of a store: its engine."""

    hot: MemoryTier

    def head(self, key: bytes) -> StoredHead | None:
        """Return the newest durable head of a session, hot or warm."""
        ...


class StoreReader:
    """Answer what is asked about the sessions of one store.

    Args:
        warm: Where frames, segments and index are.
        engine: Who knows the newest heads.
        graph: The dialogue graph.
    """

    def __init__(self, warm: WarmStore, engine: Heads, graph: DialogueGraph) -> None:
        self.warm = warm
        self.heads = engine
        self.graph = graph

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
            start = self.graph.start
            document = documents.state_document(name, view, branch, start, tier)
            # Behind the answer: bringing the session back must not cost it.
            self.was_read(name.key(), tier)
            return document

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
            document = documents.turns_document(view.listing(branch), at, limit)
            self.was_read(name.key(), self._tier(name.key()))
            return document

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

    def has_expired(self, arrived_ms: int) -> bool:
        """Say whether a session whose last turn came then is served no more."""
        del arrived_ms
        return False

    def was_read(self, key: bytes, tier: str) -> None:
        """Be told that a reader asked for a session, and where it lay."""

    # -- reading many ----------------------------------------------------------

    def sessions(
        self,
        *,
        tenant: str | None = None,
        tier: str | None = None,
        prefix: str = "",
    ) -> Iterator[Document]:
        """Yield a row for each session, in key order."""
        for key, row in self.rows(tenant, prefix):
            gone = row.is_tombstone or self.has_expired(row.arrived_ms)
            if not gone and tier in (None, row.tier):
                yield documents.session_document(SessionName.from_key(key), row)

    def rows(
        self, tenant: str | None = None, prefix: str = ""
    ) -> Iterator[tuple[bytes, SessionRow]]:
        """Yield (key, facts) of every session, tombstones too; reads no cold one."""
        for key in self._keys(tenant, prefix):
            row = self.row(key)
            if row is not None:
                yield key, row

    def row(self, key: bytes) -> SessionRow | None:
        """Return the facts of one session, None where it is not known."""
        held = self.heads.hot.peek(key)
        found = held if held is not None else self.warm.located([key])[0]
        return None if found is None else session_row(found, is_hot=held is not None)

    def stored_heads(
        self, tenant: str | None = None, prefix: str = ""
    ) -> Iterator[tuple[bytes, StoredHead]]:
        """Yield (key, head) of every session, tombstones too; cold ones are read."""
        for key in self._keys(tenant, prefix):
            stored = self.heads.head(key)
            if stored is not None:
                yield key, stored

    def _keys(self, tenant: str | None, prefix: str) -> Iterator[bytes]:
        start = tenant_prefix(tenant) + prefix.encode() if tenant is not None else b""
        anywhere = tenant is None and bool(prefix)
        for key in self.warm.keys(start):
            if not anywhere or SessionName.from_key(key).session.startswith(prefix):
                yield key

    # -- inside ------------------------------------------------------------------

    def _tier(self, key: bytes) -> str:
        if self.heads.hot.peek(key) is not None:
            return "hot"
        (found,) = self.warm.located([key])
        return "cold" if isinstance(found, ColdHead) else "warm"

    def _stored(self, tenant: str, session: str) -> StoredHead:
        name = SessionName(checked_id(tenant, "tenant"), checked_id(session, "session"))
        return self._present(name, self.heads.head(name.key()))

    def _present(self, name: SessionName, stored: StoredHead | None) -> StoredHead:
        tenant, session = name
        if stored is not None and stored.is_tombstone:
            self.warm.refuse_erased(name.key())
        if stored is None or stored.is_tombstone or self.has_expired(stored.arrived_ms):
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
        with OneRead():
            return steadily(self.heads, name.key(), read_stored)
