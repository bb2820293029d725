"""The owner of a store: the one process that has it open and answers the others."""

import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import structlog

from turnstate.agents.ports import Clock
from turnstate.schemas.errors import TurnstateError, UnavailableError
from turnstate.streams.embedded import messages
from turnstate.streams.embedded.feed import Feed
from turnstate.streams.embedded.lock import OwnerLock
from turnstate.streams.embedded.messages import ConnectionLost, Inbox
from turnstate.streams.embedded.methods import (
    METHODS,
    Method,
    StoreCalls,
    item_of,
    method_named,
)
from turnstate.streams.embedded.owner_card import (
    OWNER_FILE,
    other_version,
    package_version,
    socket_path,
    write_card,
)
from turnstate.streams.embedded.store import EmbeddedStore
from turnstate.streams.settings import Settings

_log = structlog.get_logger(__name__)

CONNECTIONS_MAX: Final = 128
"""One more is told to come again: each has a thread."""

DRAIN_S: Final = 30.0
"""How long an owner that closes waits for what it has begun to answer."""

FAREWELL_S: Final = 2.0
"""How long it then waits until each connection has been told."""

_CHUNK_BYTES: Final = 64 << 10
"""Rows go out together once there are so many bytes of them."""


_CLOSING: Final = messages.packed([0, messages.CLOSING, None])


class OwnedStore(EmbeddedStore, StoreCalls):
    """A store that this process owns, with every method by its name.

    Args:
        settings: Where it is, and its sizes.
        clock: For arrival times; the machine's where None.
        serving: Whether other processes may ask through the socket.

    Raises:
        UnavailableError: another process owns the store (code `owned`).
    """

    def __init__(
        self,
        settings: Settings,
        clock: Clock | None = None,
        *,
        serving: bool = True,
    ) -> None:
        self._owner_lock = OwnerLock(settings.data)
        try:
            super().__init__(settings, clock)
        except BaseException:
            self._owner_lock.release()
            raise
        self.feed = Feed(self)
        self._server: StoreServer | None = None
        if serving:
            try:
                self._server = StoreServer(self)
            except BaseException:
                self.close()
                raise

    def __enter__(self) -> Self:
        return self

    def call(self, method: str, **arguments: Any) -> Any:
        """Perform a method by name.

        Raises:
            InvalidInputError: there is no such method.
            TurnstateError: what it raises.
        """
        return method_named(method).call(self, **arguments)

    def close(self) -> None:
        """Answer what others have asked, then let the store go."""
        if self._server is not None:
            self._server.close()
        self.feed.close()
        super().close()
        self._owner_lock.release()


class StoreServer:
    """Answer other processes at a Unix socket, one thread a connection.

    Only who holds the lock of the folder makes one, so a socket that is there already
    was left by an owner that died.

    Args:
        store: The store, owned by this process.
    """

    def __init__(self, store: OwnedStore) -> None:
        self.store = store
        data = store.settings.data
        self._path = socket_path(data)
        self._card = data / OWNER_FILE
        self._listener = _listening(self._path)
        self._lock = threading.Condition()
        self._connections: dict[socket.socket, bool] = {}
        self.closing = False
        write_card(self._card, self._path)
        self._thread = threading.Thread(
            target=self._accept, name="turnstate-owner", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Take no more requests, answer the ones begun, then hang up."""
        with self._lock:
            if self.closing:
                return
            self.closing = True
        # Both names go before the store's lock does: who finds neither opens it.
        self._card.unlink(missing_ok=True)
        Path(self._path).unlink(missing_ok=True)
        _hang_up(self._listener, socket.SHUT_RDWR)
        self._listener.close()
        self.store.feed.close()
        with self._lock:
            for connection, busy in self._connections.items():
                if not busy:
                    _hang_up(connection, socket.SHUT_RD)
            self._lock.wait_for(lambda: not any(self._connections.values()), DRAIN_S)
            self._lock.wait_for(lambda: not self._connections, FAREWELL_S)
            for connection in self._connections:
                _hang_up(connection, socket.SHUT_RDWR)
        self._thread.join(FAREWELL_S)

    def _stopped(self, connection: socket.socket) -> bool:
        return self.closing or messages.is_closed(connection)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                full = len(self._connections) >= CONNECTIONS_MAX
                closing = self.closing
                if not full and not closing:
                    self._connections[connection] = False
            if closing:
                with suppress(ConnectionLost):
                    messages.send(connection, _CLOSING)
                connection.close()
                continue
            if full:
                _refuse(connection)
                continue
            threading.Thread(
                target=self._serve,
                args=(connection,),
                name="turnstate-owner-connection",
                daemon=True,
            ).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with suppress(ConnectionLost):
                self._serve_requests(connection, Inbox(connection))
            if self.closing:
                with suppress(ConnectionLost):
                    messages.send(connection, _CLOSING)
        finally:
            connection.close()
            with self._lock:
                self._connections.pop(connection, None)
                self._lock.notify_all()

    def _serve_requests(self, connection: socket.socket, inbox: Inbox) -> None:
        while True:
            number, name, arguments = inbox.next()
            # Who follows the log is not waited for at the end: it never ends.
            known = METHODS.get(name) if isinstance(name, str) else None
            busy = known is None or not known.takes_stopped
            if not self._begun(connection, busy=busy):
                return
            try:
                self._answer(connection, inbox, number, name, arguments)
            finally:
                self._begun(connection, busy=False)

    def _begun(self, connection: socket.socket, *, busy: bool) -> bool:
        """Note whether a connection is waited for; say whether it may go on."""
        with self._lock:
            if busy and self.closing:
                return False
            self._connections[connection] = busy
            self._lock.notify_all()
            return not self.closing

    def _answer(
        self,
        connection: socket.socket,
        inbox: Inbox,
        number: int,
        name: str,
        arguments: dict[str, Any],
    ) -> None:
        """Answer one request; a failure of it is an answer, too."""
        try:
            if name == messages.HELLO:
                _check_hello(arguments)
                parts: Any = [messages.PROTOCOL, package_version()]
                data = messages.packed([number, messages.ITEM, parts])
                messages.send(connection, data)
            else:
                self._perform(connection, inbox, number, method_named(name), arguments)
            end = messages.packed([number, messages.END, None])
        except ConnectionLost:
            raise
        except Exception as error:  # noqa: BLE001 - it belongs to who asked
            if not isinstance(error, TurnstateError):
                _log.exception("owner.request_failed", method=name)
            parts = messages.error_parts(error)
            end = messages.packed([number, messages.ERROR, parts])
        messages.send(connection, end)

    def _perform(
        self,
        connection: socket.socket,
        inbox: Inbox,
        number: int,
        method: Method,
        arguments: dict[str, Any],
    ) -> None:
        form = method.form
        if method.takes_items:
            items = _items(inbox, number)
            try:
                result = method.call(self.store, items=items, **arguments)
            finally:
                # Where it failed half-way, the rest is read past.
                deque(items, maxlen=0)
        else:
            if method.takes_stopped:
                arguments["stopped"] = partial(self._stopped, connection)
            result = method.call(self.store, **arguments)
        if not form.streams:
            data = messages.packed([number, messages.ITEM, form.pack(result)])
            messages.send(connection, data)
            return
        _stream(connection, number, result, form.pack, prompt=form.prompt)
        if method.takes_stopped and self.closing:
            raise UnavailableError(
                "the owner of the store is closing",
                hint="subscribe again with the last token",
                code="owner_closing",
            )


def _stream(
    connection: socket.socket,
    number: int,
    rows: Iterator[Any],
    pack: Callable[[Any], Any],
    *,
    prompt: bool,
) -> None:
    waiting = bytearray()
    try:
        for row in rows:
            waiting += messages.packed([number, messages.ITEM, pack(row)])
            if prompt or len(waiting) >= _CHUNK_BYTES:
                messages.send(connection, bytes(waiting))
                waiting.clear()
    except TurnstateError:
        messages.send(connection, bytes(waiting))
        raise
    finally:
        close = getattr(rows, "close", None)
        if close is not None:
            close()
    messages.send(connection, bytes(waiting))


def _items(inbox: Inbox, number: int) -> Iterator[Any]:
    """Yield what the caller streams to a method."""
    while True:
        sent, kind, parts = inbox.next()
        if sent != number or kind == messages.END:
            return
        yield item_of(parts)


def _check_hello(arguments: dict[str, Any]) -> None:
    theirs = arguments.get("protocol")
    if theirs != messages.PROTOCOL:
        raise other_version(package_version(), arguments.get("version"))


def _refuse(connection: socket.socket) -> None:
    error = UnavailableError(
        f"the owner of the store has {CONNECTIONS_MAX} connections",
        hint="try again in a moment",
        code="owner_busy",
    )
    parts = messages.error_parts(error)
    with suppress(ConnectionLost):
        messages.send(connection, messages.packed([0, messages.ERROR, parts]))
    connection.close()


def _hang_up(connection: socket.socket, how: int) -> None:
    with suppress(OSError):
        connection.shutdown(how)


def _listening(path: str) -> socket.socket:
    Path(path).unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(path)
        # Nobody can connect before it listens, so nobody is let in by mistake.
        Path(path).chmod(0o600)
        listener.listen(CONNECTIONS_MAX)
    except OSError as error:
        listener.close()
        raise UnavailableError(
            f"the socket {path} cannot be made: {error}",
            hint="the data folder has to be on a file system with sockets",
        ) from error
    return listener
