"""The Python API of a store: plain dicts in and out, for servers and scripts."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from turnstate.agents.session.step import Answer
from turnstate.schemas.operation import MAIN
from turnstate.streams.documents import Document, from_json, to_json
from turnstate.streams.embedded.access import OpenStore, open_store
from turnstate.streams.embedded.iterating import in_thread
from turnstate.streams.embedded.owner import OwnedStore
from turnstate.streams.given_turns import AnyTurn, raised, turn_bytes
from turnstate.streams.settings import Settings

if TYPE_CHECKING:
    from turnstate.streams.kafka.cluster_reader import ClusterReader

_T = TypeVar("_T")

THREADS: Final = 32
"""How many calls of an `AsyncClient` may wait at once."""


def open(  # noqa: A001 - read as client.open
    data: str | Path | None = None, *, settings: Settings | None = None
) -> "Client":
    """Open a store, whoever owns it; or read a cluster (profile `cluster`).

    A cluster's workers answer what reads; turns go to it through
    `streams.kafka.producer`.

    Args:
        data: Its folder; made if it is not there.
        settings: All settings, instead of the folder alone.

    Raises:
        UnavailableError: its owner does not answer.
        CorruptDataError: it cannot be opened.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder, open(folder) as client:
        ...     turn = {"tenant": "t", "session": "s", "role": "user", "content": "hi"}
        ...     client.publish(turn).version
        ...     client.state("t", "s")["turns"][0]["content"]
        1
        'hi'
    """
    if settings is None:
        settings = Settings() if data is None else Settings(data=Path(data))
    if settings.profile == "cluster":
        from turnstate.streams.kafka.cluster_reader import ClusterReader
        from turnstate.streams.kafka.cluster_settings import ClusterSettings

        return Client(ClusterReader(ClusterSettings.load(settings.data)))
    return Client(open_store(settings))


class Client:
    """Publish turns and read sessions; safe to use from several threads.

    Works the same in the process that owns the store and beside it. Errors
    are those of `turnstate.schemas.errors`.

    Args:
        store: An open store; closed with the client.
    """

    def __init__(self, store: "OpenStore | ClusterReader") -> None:
        self.store = store

    def close(self) -> None:
        """Commit what waits, and let the store go."""
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- writing -----------------------------------------------------------

    def publish(self, turn: AnyTurn) -> Answer:
        """Fold one turn; return once it is durable.

        A turn that has come before is answered as it was then (`duplicate`).

        Raises:
            InvalidInputError: it is no turn; the field is named.
            ConflictError: its id is there with other content, or `if_version`
                does not hold.
        """
        return raised(self.publish_many([turn])[0])

    def publish_many(self, turns: Iterable[AnyTurn]) -> list[Answer]:
        """Fold turns in order; return an answer each, refusals among them.

        Raises:
            InvalidInputError: a dict holds what JSON cannot say.
        """
        return self.store.publish([turn_bytes(turn) for turn in turns])

    def rollback(
        self, tenant: str, session: str, version: int, branch: str = MAIN
    ) -> Answer:
        """Go back to what a branch was at a version; nothing is dropped.

        Raises:
            NotFoundError: no such session, version or branch.
        """
        return self.store.rollback(tenant, session, version, branch)

    def fork(
        self,
        tenant: str,
        session: str,
        branch: str,
        *,
        version: int | None = None,
        turn: str | None = None,
    ) -> Answer:
        """Begin a branch at a version, at a turn, or where main stands.

        Raises:
            ConflictError: the branch exists.
        """
        return self.store.fork(tenant, session, branch, version=version, turn=turn)

    def end(
        self, tenant: str, session: str, *, branch: str = MAIN, to: str | None = None
    ) -> Answer:
        """Mark a branch as ended; `to` names the session that goes on."""
        return self.store.end(tenant, session, branch=branch, to=to)

    # -- reading -------------------------------------------------------------

    def state(
        self,
        tenant: str,
        session: str,
        *,
        version: int | None = None,
        branch: str = MAIN,
        at_least: int | str | None = None,
    ) -> Document:
        """Return the state of a session as plain values, integers exact.

        Args:
            tenant: The tenant.
            session: The session.
            version: As it was then; the newest where None.
            branch: Which branch.
            at_least: Wait until the session is at this version, or the log at
                this token.

        Raises:
            NotFoundError: no such session, version or branch.
            UnavailableError: `at_least` was not reached in time.
        """
        if at_least is not None:
            self.store.reach(tenant=tenant, session=session, at_least=at_least)
        return self._plain(
            self.store.state(tenant, session, version=version, branch=branch)
        )

    def patch(
        self,
        tenant: str,
        session: str,
        since: int,
        *,
        version: int | None = None,
        branch: str = MAIN,
    ) -> Document:
        """Return what changed since a version: `from`, `to` and a JSON Patch.

        Applied to what `state` returned at `since` (RFC 6902; `jsonpatch` does
        it), it gives what `state` returns at `version`, exactly.

        Raises:
            NotFoundError: no such session; or version, or branch at one of them.
        """
        return self._plain(
            self.store.patch(
                tenant, session, since=since, version=version, branch=branch
            )
        )

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
        """Return a page of turns; `next` is the `at` of the page after it."""
        return self._plain(
            self.store.turns(
                tenant, session, version=version, branch=branch, at=at, limit=limit
            )
        )

    def history(self, tenant: str, session: str) -> Document:
        """Return how the session is stored: one row a frame or segment."""
        return self._plain(self.store.history(tenant, session))

    def context(
        self,
        tenant: str,
        session: str,
        *,
        budget_tokens: int,
        version: int | None = None,
        branch: str = MAIN,
        complete_open_calls: bool = False,
    ) -> Document:
        """Return the newest messages that fit, ready for a model.

        Tool calls and results stay together; the system prompt is kept.
        """
        return self._plain(
            self.store.context(
                tenant,
                session,
                budget_tokens=budget_tokens,
                version=version,
                branch=branch,
                complete_open_calls=complete_open_calls,
            )
        )

    def sessions(
        self, *, tenant: str | None = None, tier: str | None = None, prefix: str = ""
    ) -> Iterator[Document]:
        """Yield a row for each session."""
        for row in self.store.sessions(tenant=tenant, tier=tier, prefix=prefix):
            yield self._plain(row)

    def subscribe(
        self,
        tenant: str | None = None,
        session: str | None = None,
        *,
        token: str | None = None,
        follow: bool = True,
        stopped: Callable[[], bool] | None = None,
    ) -> Generator[Document]:
        """Yield events after a token, in order, each once, also across restarts.

        Args:
            tenant: Only this tenant's.
            session: Only this session's.
            token: Of the last event seen; "0" = from the beginning; None =
                from now on.
            follow: Whether to wait for what comes.
            stopped: Asked while waiting whether to end.
        """
        events = self.store.subscribe(
            tenant, session, token=token, follow=follow, stopped=stopped
        )
        with closing(events):
            for event in events:
                yield self._plain(event)

    def entities(
        self, tenant: str | None = None, **options: Any
    ) -> Generator[Document]:
        """Yield what sessions become, every ten versions; see `StoreCalls.entities`."""
        with closing(self.store.entities(tenant, **options)) as upserts:
            for upsert in upserts:
                yield self._plain(upsert)

    def _plain(self, document: Document) -> Document:
        """Return a document without raw JSON in it."""
        if isinstance(self.store, OwnedStore):
            return from_json(to_json(document))
        return document


class AsyncClient:
    """A client for asyncio: the same methods, awaited; never blocks the loop.

    Args:
        client: An open client; closed with this one.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> async def main(folder: str) -> int:
        ...     async with await AsyncClient.open(folder) as client:
        ...         turn = {"tenant": "t", "session": "s", "role": "user"}
        ...         return (await client.publish(turn)).version
        >>> with TemporaryDirectory() as folder:
        ...     asyncio.run(main(folder))
        1
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self._threads = ThreadPoolExecutor(THREADS, "turnstate-client")

    @classmethod
    async def open(
        cls, data: str | Path | None = None, *, settings: Settings | None = None
    ) -> "AsyncClient":
        """Open a store, whoever owns it; see `open`."""
        return cls(await asyncio.to_thread(open, data, settings=settings))

    async def close(self) -> None:
        """Commit what waits, and let the store go."""
        await asyncio.to_thread(self.client.close)
        self._threads.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _run(self, call: Callable[..., _T], *args: Any, **options: Any) -> _T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: call(*args, **options))

    async def publish(self, turn: AnyTurn) -> Answer:
        """Fold one turn; see `Client.publish`."""
        return await self._run(self.client.publish, turn)

    async def publish_many(self, turns: Iterable[AnyTurn]) -> list[Answer]:
        """Fold turns in order; see `Client.publish_many`."""
        return await self._run(self.client.publish_many, turns)

    async def rollback(
        self, tenant: str, session: str, version: int, branch: str = MAIN
    ) -> Answer:
        """Go back to what a branch was at a version."""
        return await self._run(self.client.rollback, tenant, session, version, branch)

    async def fork(
        self, tenant: str, session: str, branch: str, **options: Any
    ) -> Answer:
        """Begin a branch; see `Client.fork`."""
        return await self._run(self.client.fork, tenant, session, branch, **options)

    async def end(self, tenant: str, session: str, **options: Any) -> Answer:
        """Mark a branch as ended; see `Client.end`."""
        return await self._run(self.client.end, tenant, session, **options)

    async def state(self, tenant: str, session: str, **options: Any) -> Document:
        """Return the state of a session; see `Client.state`."""
        return await self._run(self.client.state, tenant, session, **options)

    async def patch(
        self, tenant: str, session: str, since: int, **options: Any
    ) -> Document:
        """Return what changed since a version; see `Client.patch`."""
        return await self._run(self.client.patch, tenant, session, since, **options)

    async def turns(self, tenant: str, session: str, **options: Any) -> Document:
        """Return a page of turns; see `Client.turns`."""
        return await self._run(self.client.turns, tenant, session, **options)

    async def history(self, tenant: str, session: str) -> Document:
        """Return how the session is stored."""
        return await self._run(self.client.history, tenant, session)

    async def context(self, tenant: str, session: str, **options: Any) -> Document:
        """Return messages for a model; see `Client.context`."""
        return await self._run(self.client.context, tenant, session, **options)

    async def sessions(self, **options: Any) -> AsyncGenerator[Document]:
        """Yield a row for each session."""
        async for row in in_thread(lambda _: self.client.sessions(**options)):
            yield row

    async def subscribe(
        self, tenant: str | None = None, session: str | None = None, **options: Any
    ) -> AsyncGenerator[Document]:
        """Yield events; see `Client.subscribe`. Ends when it is closed."""
        following = partial(self.client.subscribe, tenant, session, **options)
        async for event in in_thread(lambda stopped: following(stopped=stopped)):
            yield event

    async def entities(
        self, tenant: str | None = None, **options: Any
    ) -> AsyncGenerator[Document]:
        """Yield entity upserts; see `Client.entities`. Ends when it is closed."""
        following = partial(self.client.entities, tenant, **options)
        async for upsert in in_thread(lambda stopped: following(stopped=stopped)):
            yield upsert
