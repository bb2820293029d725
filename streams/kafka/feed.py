"""Follow the topic `deltas` from code that does not run in an event loop."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import closing
from typing import Any, Final

from turnstate.schemas.errors import InvalidInputError
from turnstate.streams.documents import Document
from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.deltas import Deltas

_LOOK_S: Final = 0.25
"""How often it is asked whether to stop."""


def followed(
    cluster: ClusterSettings,
    state: Callable[[str, str], Document],
    tenant: str | None,
    session: str | None,
    *,
    token: str | None,
    follow: bool,
    stopped: Callable[[], bool] | None,
) -> Generator[Document]:
    """Yield the events of a session, or of all.

    Args:
        cluster: Where the brokers are.
        state: Answers the state of a session in which there is a gap.
        tenant: Only this tenant's.
        session: Only this session's.
        token: Of the last event seen; "0" = from the beginning; None = from
            now on.
        follow: Whether to wait for what comes.
        stopped: Asked while waiting whether to end.

    Raises:
        InvalidInputError: a session without its tenant, or a token that is none.
        UnavailableError: no broker answers.
    """
    if session is not None and tenant is None:
        raise InvalidInputError(
            "a session without its tenant", field="tenant", hint="give both"
        )

    async def state_of(of_tenant: str, of_session: str) -> Document:
        return await asyncio.to_thread(state, of_tenant, of_session)

    deltas = Deltas(cluster, state_of=state_of)
    if tenant is not None and session is not None:
        events = deltas.session(tenant, session, token, follow=follow)
    else:
        events = deltas.all(token, follow=follow)
    with closing(driven(events, stopped)) as told:
        for event in told:
            if tenant in (None, event["tenant"]):
                yield event


def driven(
    events: AsyncGenerator[Document], stopped: Callable[[], bool] | None
) -> Generator[Document]:
    """Yield what an asynchronous feed yields, in an event loop of its own.

    Args:
        events: The feed; closed at the end.
        stopped: Asked while waiting whether to end.
    """
    with asyncio.Runner() as runner:
        try:
            while True:
                event = runner.run(_next(events, stopped))
                if event is None:
                    return
                yield event
        finally:
            runner.run(events.aclose())


async def _next(events: Any, stopped: Callable[[], bool] | None) -> Document | None:
    """Return the next event; None at the end, or where it is to stop."""
    coming = asyncio.ensure_future(anext(events, None))
    while not coming.done():
        await asyncio.wait([coming], timeout=_LOOK_S if stopped else None)
        if not coming.done() and stopped is not None and stopped():
            coming.cancel()
            await asyncio.wait([coming])
            return None
    return coming.result()
