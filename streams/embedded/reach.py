"""Wait until a session, or the log, is as far as a reader asks for."""

import time
from typing import TYPE_CHECKING, Any, Final

from turnstate.schemas.errors import UnavailableError
from turnstate.schemas.ids import SessionName
from turnstate.storage.stored_head import StoredHead
from turnstate.streams.embedded.events import Place, log_offset, session_place

if TYPE_CHECKING:
    from turnstate.streams.embedded.owner import OwnedStore

_PAUSE_S: Final = 0.002


def reach(
    store: "OwnedStore",
    tenant: str,
    session: str,
    *,
    at_least: int | str,
    timeout_ms: int = 5000,
) -> dict[str, Any]:
    """Wait until a session is at a version, or the log at a token's offset.

    Raises:
        UnavailableError: it is not there in time (code `not_yet`).
        InvalidInputError: the token is of another log.
    """
    key = SessionName(tenant, session).key()
    engine = store.engine
    log = engine.log
    if isinstance(at_least, str) and ":" in at_least:
        offset = log_offset(at_least, log.identity, log.partition)

        def reached() -> bool:
            return log.end > offset

    else:
        place = wanted_place(at_least)

        def reached() -> bool:
            return has_reached(engine.head(key), place)

    deadline = time.monotonic() + timeout_ms / 1000
    while not reached():
        if time.monotonic() > deadline:
            raise UnavailableError(
                f"session {session!r} has not come to {at_least!r} yet",
                field="at_least",
                hint="ask again in a moment",
                code="not_yet",
            )
        time.sleep(_PAUSE_S)
    # The log's end moves a moment before the head that readers see.
    engine.call(_nothing).result()
    return {"reached": True}


def _nothing() -> None:
    """Do nothing in the owner's thread: what was committed is seen after it."""


def wanted_place(at_least: int | str) -> Place:
    """Return how far a session has to be; a number is a version of any life.

    Raises:
        InvalidInputError: it is no token of a session.
    """
    if isinstance(at_least, int):
        return Place(0, at_least)
    return session_place(at_least)


def has_reached(stored: StoredHead | None, wanted: Place) -> bool:
    """Say whether a session is as far as wanted."""
    if stored is None:
        return wanted.version == 0
    incarnation, version = Place(stored.head.incarnation, stored.head.version)
    if wanted.incarnation in (0, incarnation):
        return version >= wanted.version
    return incarnation > wanted.incarnation
