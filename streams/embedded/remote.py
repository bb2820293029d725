"""A store that another process owns: the same methods, through its socket."""

import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Self

from turnstate.agents.session.step import Answer
from turnstate.schemas.errors import TurnstateError, UnavailableError
from turnstate.schemas.turn import Turn
from turnstate.schemas.wire.json import turn_to_json
from turnstate.streams.documents import Document
from turnstate.streams.embedded import messages
from turnstate.streams.embedded.calls import SessionCalls, StoreCalls
from turnstate.streams.embedded.link import Link, NotRead, Stopped
from turnstate.streams.embedded.messages import ConnectionLost
from turnstate.streams.embedded.methods import Method, method_named
from turnstate.streams.embedded.owner import OwnedStore
from turnstate.streams.embedded.owner_card import (
    OwnerCard,
    other_version,
    package_version,
)
from turnstate.streams.settings import Settings

PUBLISH_BYTES_MAX: Final = 16 << 20
"""What one message of a long publish carries."""

_IDLE_LINKS_MAX: Final = 8
_DEATHS_MAX: Final = 3
"""Rows are asked for once more after so many owners that died amid them."""

OWNER_WAIT_S: Final = 10.0
"""How long to look for an owner that stays: one that closes has read nothing, and
one that begins holds the lock and shows no socket yet."""

PAUSE_S: Final = 0.02
"""Between two looks."""

_LOOK_S: Final = 0.25


class OwnerLink(Link):
    """A connection to the owner of a data folder.

    Args:
        card: What the owner said of itself.

    Raises:
        ConnectionLost: there is no owner at that socket any more.
        UnavailableError: the owner is another version, or too busy.
    """

    def __init__(self, card: OwnerCard) -> None:
        if card.protocol != messages.PROTOCOL:
            raise other_version(card.version, package_version())
        super().__init__(socket.AF_UNIX, card.socket, _hanging(card))


class _Search:
    """Look for an owner that stays.

    Args:
        deaths: So many may die before they have answered.
    """

    def __init__(self, deaths: int) -> None:
        self._deaths = deaths
        self._deadline = time.monotonic() + OWNER_WAIT_S

    def goes_on(self, error: Exception) -> bool:
        """Say whether to ask again; wait a little for one that closes to be gone."""
        if isinstance(error, ConnectionLost):
            self._deaths -= 1
            return self._deaths >= 0
        time.sleep(PAUSE_S)
        return time.monotonic() <= self._deadline


class RemoteStore(StoreCalls, SessionCalls):
    """Ask the owner of a store; become the owner where it is gone.

    Safe to use from several threads: each request has a connection of its own.

    Args:
        settings: Which store.
        reach: Connects to the owner, or opens the store where there is none.
        link: A connection that is open already.
    """

    def __init__(
        self,
        settings: Settings,
        reach: Callable[[Settings], "OwnedStore | Link"],
        link: Link,
    ) -> None:
        self.settings = settings
        self._reach = reach
        self._lock = threading.Lock()
        self._idle = [link]
        self._owned: OwnedStore | None = None
        self._closed = False

    def close(self) -> None:
        """Hang up; and let the store go where this process came to own it."""
        with self._lock:
            self._closed = True
            for link in self._idle:
                link.close()
            self._idle.clear()
            owned, self._owned = self._owned, None
        if owned is not None:
            owned.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- one way for every method ----------------------------------------------

    def call(self, method: str, **arguments: Any) -> Any:
        """Have the owner perform a method.

        What only reads is asked once more where the owner died meanwhile; so
        is everything that the owner had not read yet.

        Raises:
            UnavailableError: the owner died before it answered (code
                `owner_lost`): what was asked may or may not have happened.
            TurnstateError: what the method raises.
        """
        known = method_named(method)
        arguments.pop("progress", None)
        if known.form.streams:
            return self._rows(method, known, arguments)
        search = _Search(1 if known.reads else 0)
        while True:
            link = self._take()
            if isinstance(link, OwnedStore):
                return link.call(method, **arguments)
            try:
                return self._asked(link, method, known, arguments)
            except (ConnectionLost, NotRead) as error:
                link.close()
                # Items that were given are gone.
                if known.takes_items or not search.goes_on(error):
                    raise _owner_lost(method) from error

    def _asked(
        self, link: Link, method: str, known: Method, arguments: dict[str, Any]
    ) -> Any:
        try:
            if known.takes_items:
                items = arguments["items"]
                link.begin(method, {n: v for n, v in arguments.items() if n != "items"})
                link.give(items)
            else:
                link.begin(method, arguments)
            (parts,) = list(link.rows())
        except TurnstateError:
            self._put_back(link)
            raise
        self._put_back(link)
        return known.form.unpack(parts)

    def _rows(
        self, method: str, known: Method, arguments: dict[str, Any]
    ) -> Iterator[Any]:
        """Yield rows; a subscription goes on through a new owner by its token."""
        search = _Search(_DEATHS_MAX)
        started = False
        stopped: Stopped | None = arguments.pop("stopped", None)
        while True:
            link = self._take()
            if isinstance(link, OwnedStore):
                if stopped is not None:
                    arguments["stopped"] = stopped
                yield from link.call(method, **arguments)
                return
            whole = False
            try:
                link.begin(method, arguments)
                if stopped is not None:
                    link.look_every(_LOOK_S)
                for parts in link.rows(stopped):
                    row = known.form.unpack(parts)
                    if known.takes_stopped:
                        arguments["token"] = row["token"]
                        search = _Search(_DEATHS_MAX)
                    started = not known.takes_stopped
                    yield row
                whole = True
                return
            except (ConnectionLost, NotRead, UnavailableError) as error:
                if isinstance(error, UnavailableError) and (
                    error.code != "owner_closing"
                ):
                    raise
                if started or not search.goes_on(error):
                    raise _owner_lost(method) from error
            finally:
                if whole and stopped is None:
                    self._put_back(link)
                else:
                    link.close()

    def _take(self) -> "OwnedStore | Link":
        with self._lock:
            if self._closed:
                raise UnavailableError("this store is closed", hint="open it again")
            if self._owned is not None:
                return self._owned
            while self._idle:
                link = self._idle.pop()
                if not link.is_lost():
                    return link
                link.close()
            found = self._reach(self.settings)
            if isinstance(found, OwnedStore):
                self._owned = found
            return found

    def _put_back(self, link: Link) -> None:
        with self._lock:
            if not self._closed and len(self._idle) < _IDLE_LINKS_MAX:
                self._idle.append(link)
                return
        link.close()

    # -- the methods of EmbeddedStore --------------------------------------------

    def publish(
        self,
        records: Sequence[bytes],
        refused: Mapping[int, Sequence[str | None]] | None = None,
    ) -> list[Answer]:
        """Fold JSON turns; return once they are durable, one answer each."""
        why = {at: list(reason) for at, reason in (refused or {}).items()}
        if len(records) < 2 or sum(map(len, records)) <= PUBLISH_BYTES_MAX:
            answers: list[Answer] = self.call(
                "publish", records=list(records), refused=why
            )
            return answers
        half = len(records) // 2
        later = {at - half: why.pop(at) for at in list(why) if at >= half}
        return [
            *self.publish(records[:half], why),
            *self.publish(records[half:], later),
        ]

    def operate(self, turn: Turn) -> Answer:
        """Fold one operation; raise the error of a refusal."""
        answer = self.publish([turn_to_json(turn)])[0]
        if answer.error is not None:
            raise answer.error
        return answer

    def sessions(self, **options: Any) -> Iterator[Document]:
        """Yield a row for each session, in key order."""
        rows: Iterator[Document] = self.call("sessions", **options)
        return rows


def _owner_lost(method: str) -> UnavailableError:
    return UnavailableError(
        f"the process that owns the store went away during {method}",
        hint="try again: turns with a turn_id are never folded twice",
        code="owner_lost",
    )


def _hanging(card: OwnerCard) -> UnavailableError:
    return UnavailableError(
        f"the process {card.pid} owns the store and does not answer",
        hint="see what it does; stop it if it hangs",
        code="owner_silent",
    )
