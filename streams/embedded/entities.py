"""Follow entities of an embedded store: what sessions became, every ten versions."""

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from typing import TYPE_CHECKING

from turnstate.agents.tiering.entities import (
    VERSIONS_AN_UPSERT,
    EntityUpsert,
    entity_value,
)
from turnstate.agents.tiering.entity_view import EntityView
from turnstate.schemas.ids import SessionName
from turnstate.schemas.position import Position
from turnstate.streams.documents import Document
from turnstate.streams.embedded.engine import Engine
from turnstate.streams.embedded.log_walk import Found, LogWalk, draft_of_record
from turnstate.streams.entity_documents import entity_document

if TYPE_CHECKING:
    from turnstate.streams.embedded.owner import OwnedStore


def entities(
    store: "OwnedStore",
    tenant: str | None = None,
    *,
    token: str | None = None,
    follow: bool = True,
    stopped: Callable[[], bool] | None = None,
) -> Generator[Document]:
    """Yield the entity upserts of a tenant, or of all, in log order.

    They are made of the log as it is walked, so none is missed: whoever was
    away resumes by token. A session shows the state that it has by then, which
    may be later than the boundary; `version` says which.

    Args:
        store: The store.
        tenant: Only this tenant's.
        token: Of the last upsert that was seen, 0 for the beginning of what
            the log keeps; None = what comes from now on.
        follow: Whether to wait for what comes, or to end at the newest.
        stopped: Asked four times a second whether to end.

    Raises:
        InvalidInputError: the token is none, of another log, ahead of it,
            or its offset was trimmed.
    """
    engine = store.engine
    walk, view, log = LogWalk(engine), EntityView(), engine.log
    asked = {} if stopped is None else {"stopped": stopped}
    with closing(store.feed.records(token, follow=follow, **asked)) as records:
        for offset, raw in records:
            for after, upsert in _upserts(engine, walk, offset, raw):
                name = SessionName.from_key(upsert.key)
                if tenant in (None, name.tenant) and view.is_news(upsert):
                    at = Position(log.identity, log.partition, after)
                    yield entity_document(upsert, at.token())


def _upserts(
    engine: Engine, walk: LogWalk, offset: int, raw: bytes
) -> Iterator[tuple[int, EntityUpsert]]:
    """Yield what a record of the log leads to, and the offset to resume after."""
    draft = draft_of_record(raw, offset)
    if draft is None:
        return
    if draft.body.op == "erase":
        removal = _removal(engine, draft.key)
        if removal is not None:
            yield offset, removal
    for found in walk.take_draft(offset, draft):
        if found.place.version % VERSIONS_AN_UPSERT == 0:
            upsert = _upsert(engine, found)
            if upsert is not None:
                yield found.offset, upsert


def _upsert(engine: Engine, found: Found) -> EntityUpsert | None:
    stored = engine.head(found.key)
    incarnation, boundary = found.place
    if stored is None or stored.head.incarnation != incarnation:
        return None  # erased since: its erase is told
    head = stored.head
    value = entity_value(found.key, head)
    return EntityUpsert(found.key, incarnation, boundary, value, head.version)


def _removal(engine: Engine, key: bytes) -> EntityUpsert | None:
    """Return the removal that an erase leads to: of all lives that are over."""
    stored = engine.head(key)
    if stored is None or stored.head.incarnation <= 1:
        return None
    return EntityUpsert(key, stored.head.incarnation - 1, 0, None)
