"""Subscriptions: the events of one session or of all, from any token, each once."""

import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Final

from turnstate.schemas.errors import (
    InvalidInputError,
    NotFoundError,
)
from turnstate.schemas.ids import SessionName, checked_id
from turnstate.schemas.operation import Op
from turnstate.schemas.position import Position
from turnstate.storage.session_reader import operations
from turnstate.storage.stored_head import StoredHead
from turnstate.streams.documents import Document
from turnstate.streams.embedded.engine import Published
from turnstate.streams.embedded.events import (
    Place,
    event_document,
    log_offset,
    session_place,
)
from turnstate.streams.embedded.log_walk import LogWalk, log_rows
from turnstate.streams.steady import steadily

if TYPE_CHECKING:
    from turnstate.streams.embedded.owner import OwnedStore
    from turnstate.streams.embedded.store import EmbeddedStore

BUFFER_OPERATIONS_MAX: Final = 512
"""What waits in memory for one subscriber; a slower one reads from the store."""

PAGE_OPERATIONS: Final = 256
"""What is read from the store at once, between two looks at the newest head."""

_LOOK_S: Final = 0.25
"""How often a waiting subscriber looks whether it should stop."""

Stopped = Callable[[], bool]


def _never() -> bool:
    return False


class _Subscriber:
    """What one subscriber has not seen yet: never more than its buffer holds."""

    def __init__(self) -> None:
        self._news: list[tuple[Place, Op]] = []
        self._lock = threading.Lock()
        self.end = 0
        self.ready = threading.Event()

    def tell(self, published: Published) -> None:
        """Take one session's change; called in the owner's thread."""
        after = published.change.after
        first = after.head.version - len(published.ops) + 1
        with self._lock:
            if len(self._news) + len(published.ops) > BUFFER_OPERATIONS_MAX:
                # What is dropped here is read from the store.
                self._news.clear()
            else:
                self._news += (
                    (Place(after.head.incarnation, first + at), op)
                    for at, op in enumerate(published.ops)
                )
        self.ready.set()

    def take(self) -> list[tuple[Place, Op]]:
        """Return what waits, and forget it."""
        with self._lock:
            news, self._news = self._news, []
        return news

    def tell_end(self, end: int) -> None:
        """Hear how far the log is committed; called in the owner's thread."""
        self.end = max(self.end, end)
        self.ready.set()

    def wait(self) -> None:
        """Wait for news, but not for long."""
        self.ready.wait(_LOOK_S)
        self.ready.clear()


class Feed:
    """Tell subscribers of a store what becomes durable.

    A subscriber is registered before it reads the store, so nothing falls
    between the two; what comes by both ways is dropped by its version.

    Args:
        store: The store, owned by this process.
    """

    def __init__(self, store: "EmbeddedStore") -> None:
        self._store = store
        self._engine = store.engine
        self._lock = threading.Lock()
        self._of_session: dict[bytes, list[_Subscriber]] = {}
        self._of_log: list[_Subscriber] = []
        self.closed = False
        self._engine.listeners.append(self._heard)

    def close(self) -> None:
        """End every subscription."""
        self.closed = True
        if self._heard in self._engine.listeners:
            self._engine.listeners.remove(self._heard)
        with self._lock:
            for subscriber in self._subscribers():
                subscriber.ready.set()

    def _subscribers(self) -> Iterator[_Subscriber]:
        for subscribers in self._of_session.values():
            yield from subscribers
        yield from self._of_log

    def _heard(self, news: list[Published]) -> None:
        if not self._of_session and not self._of_log:
            return
        with self._lock:
            for published in news:
                for subscriber in self._of_session.get(published.change.key, ()):
                    subscriber.tell(published)
            positions = [p.change.after.position for p in news]
            end = max((p.offset + 1 for p in positions if p is not None), default=0)
            for subscriber in self._of_log:
                subscriber.tell_end(end)

    def _register(self, key: bytes | None) -> _Subscriber:
        subscriber = _Subscriber()
        with self._lock:
            if key is None:
                self._of_log.append(subscriber)
            else:
                self._of_session.setdefault(key, []).append(subscriber)
        return subscriber

    def _forget(self, key: bytes | None, subscriber: _Subscriber) -> None:
        with self._lock:
            if key is None:
                self._of_log.remove(subscriber)
                return
            self._of_session[key].remove(subscriber)
            if not self._of_session[key]:
                del self._of_session[key]

    # -- one session -----------------------------------------------------------

    def session(
        self,
        tenant: str,
        session: str,
        token: str | None = None,
        *,
        follow: bool = True,
        stopped: Stopped = _never,
    ) -> Generator[Document]:
        """Yield the events of a session after a token, in version order.

        Args:
            tenant: The tenant.
            session: The session; with a token it may not be there yet.
            token: Of the last event that was seen, 0 for the beginning; None
                = what comes from now on.
            follow: Whether to wait for what comes, or to end at the newest.
            stopped: Asked four times a second whether to end.

        Raises:
            InvalidInputError: the token is none, or ahead of the session.
            NotFoundError: no such session, and no token.
        """
        name = SessionName(checked_id(tenant, "tenant"), checked_id(session, "session"))
        key = name.key()
        subscriber = self._register(key)
        try:
            place = self._first_place(key, token, session)
            while True:
                for at, op in self._stored(key, place):
                    place = at
                    yield self._session_event(key, place, op)
                if not follow:
                    return
                news = subscriber.take()
                while not news and not self._is_behind(key, place):
                    subscriber.wait()
                    if self.closed or stopped():
                        return
                    news = subscriber.take()
                for at, op in news:
                    if at <= place:
                        continue
                    if at.version != (
                        place.version + 1 if at.incarnation == place.incarnation else 1
                    ):
                        break
                    place = at
                    yield self._session_event(key, place, op)
        finally:
            self._forget(key, subscriber)

    def _is_behind(self, key: bytes, place: Place) -> bool:
        stored = self._engine.head(key)
        return stored is not None and place < _top(stored)

    def _first_place(self, key: bytes, token: str | None, session: str) -> Place:
        stored = self._engine.head(key)
        if token is None:
            if stored is None:
                raise NotFoundError(
                    f"there is no session {session!r}",
                    field="session",
                    hint="turnstate sessions lists what there is",
                )
            return _top(stored)
        place = session_place(token)
        if stored is None and place.version == 0:
            return place
        top = Place(0, 0) if stored is None else _top(stored)
        if place > top:
            raise InvalidInputError(
                f"the token {token!r} is ahead of the session, at {top.token()}",
                field="token",
                hint="this store knows less than the one it came from: begin at 0",
                code="token_ahead",
            )
        return place

    def _stored(self, key: bytes, place: Place) -> Iterator[tuple[Place, Op]]:
        """Yield what the store has after a place, a page at a time."""
        page = self._newest_page(key, place)
        while page:
            yield from page
            page = self._newest_page(key, page[-1][0])

    def _newest_page(self, key: bytes, place: Place) -> list[tuple[Place, Op]]:
        return steadily(
            self._engine, key, lambda stored: self._page(key, stored, place)
        )

    def _page(
        self, key: bytes, stored: StoredHead | None, place: Place
    ) -> list[tuple[Place, Op]]:
        if stored is None:
            return []
        incarnation, top = _top(stored)
        after = place.version if place.incarnation == incarnation else 0
        if after >= top or place.incarnation > incarnation:
            return []
        end = min(top, after + PAGE_OPERATIONS)
        return [
            (Place(incarnation, version), op)
            for version, op in operations(self._store.warm, key, stored, after, end)
        ]

    def _session_event(self, key: bytes, place: Place, op: Op) -> Document:
        return self._event(key, place, op, place.token())

    def _event(self, key: bytes, place: Place, op: Op, token: str) -> Document:
        stored = self._engine.head(key)
        assert stored is not None, "its operation was read"
        return event_document(self._store.warm, key, stored.head, place, op, token)

    # -- all sessions -----------------------------------------------------------

    def all(
        self,
        token: str | None = None,
        *,
        tenant: str | None = None,
        follow: bool = True,
        stopped: Stopped = _never,
    ) -> Generator[Document]:
        """Yield the events of all sessions after a token, in log order.

        Args:
            token: Of the last event that was seen, 0 for the beginning of
                what the log keeps; None = what comes from now on.
            tenant: Only this tenant's.
            follow: Whether to wait for what comes, or to end at the newest.
            stopped: Asked four times a second whether to end.

        Raises:
            InvalidInputError: the token is none, of another log, ahead of it,
                or its offset was trimmed.
        """
        log = self._engine.log
        walk = LogWalk(self._engine)
        with closing(self.records(token, follow=follow, stopped=stopped)) as records:
            for offset, raw in records:
                for found in walk.take(offset, raw):
                    name = SessionName.from_key(found.key)
                    if tenant is None or name.tenant == tenant:
                        at = Position(log.identity, log.partition, found.offset)
                        yield self._event(found.key, found.place, found.op, at.token())

    def records(
        self,
        token: str | None = None,
        *,
        follow: bool = True,
        stopped: Stopped = _never,
    ) -> Generator[tuple[int, bytes]]:
        """Yield (offset, record) of the log after a token, once they are durable.

        Args:
            token: As of `all`.
            follow: Whether to wait for what comes, or to end at the newest.
            stopped: Asked four times a second whether to end.

        Raises:
            InvalidInputError: as of `all`.
        """
        log = self._engine.log
        subscriber = self._register(None)
        try:
            # Between two groups, so that heads are as new as the log's end.
            subscriber.tell_end(self._engine.call(lambda: log.end).result())
            done = subscriber.end - 1
            if token is not None:
                done = log_offset(token, log.identity, log.partition)
                if done >= subscriber.end:
                    raise InvalidInputError(
                        f"the token {token!r} is ahead of the log",
                        field="token",
                        hint="this store knows less than the one it came from",
                        code="token_ahead",
                    )
            while True:
                end = subscriber.end
                yield from self._records(done, end)
                done = max(done, end - 1)
                if subscriber.end > end:
                    continue
                if not follow:
                    return
                subscriber.wait()
                if self.closed or stopped():
                    return
        finally:
            self._forget(None, subscriber)

    def _records(self, after: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Yield (offset, record) of the log above `after`, below `end`."""
        if after + 1 >= end:
            return
        for first, records in log_rows(self._engine, after):
            for offset, raw in enumerate(records, start=first):
                if offset >= end:
                    return
                if offset > after:
                    yield offset, raw


def _top(stored: StoredHead) -> Place:
    return Place(stored.head.incarnation, stored.head.version)


def subscribe(
    store: "OwnedStore",
    tenant: str | None = None,
    session: str | None = None,
    *,
    token: str | None = None,
    follow: bool = True,
    stopped: Stopped = _never,
) -> Generator[Document]:
    """Yield events: of one session, of a tenant, or of all sessions.

    Raises:
        InvalidInputError: a session without a tenant; see `Feed.session`.
        NotFoundError: see `Feed.session`.
    """
    if session is None:
        return store.feed.all(token, tenant=tenant, follow=follow, stopped=stopped)
    if tenant is None:
        raise InvalidInputError("a session is named without its tenant", field="tenant")
    return store.feed.session(tenant, session, token, follow=follow, stopped=stopped)
