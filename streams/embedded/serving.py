"""Answer requests on a listening socket, one thread a connection, within limits."""

import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

import structlog

from turnstate.schemas.errors import (
    InvalidInputError,
    TurnstateError,
    UnavailableError,
)
from turnstate.streams.embedded import messages
from turnstate.streams.embedded.messages import ConnectionLost, Inbox
from turnstate.streams.embedded.methods import Method, item_of
from turnstate.streams.embedded.owner_card import other_version, package_version

_log = structlog.get_logger(__name__)

DRAIN_S: Final = 30.0
"""How long a server that closes waits for what it has begun to answer."""

FAREWELL_S: Final = 2.0
"""How long it then waits until each connection has been told."""

_CHUNK_BYTES: Final = 64 << 10
"""Rows go out together once there are so many bytes of them."""

_PAUSE_S: Final = 0.05

_CLOSING: Final = messages.packed([0, messages.CLOSING, None])


class Limits(NamedTuple):
    """What strangers at a socket may ask for.

    Attributes:
        connections: One more is told to come again: each has a thread.
        request_bytes: A longer request ends its connection.
        silence_s: A connection that asks nothing for so long is ended.
        request_s: A request that began has to have come whole by then.
        send_s: So long may the other side take for one piece of an answer.
    """

    connections: int = 128
    request_bytes: int = messages.MESSAGE_BYTES_MAX
    silence_s: float | None = None
    request_s: float | None = None
    send_s: float | None = None


class RequestServer:
    """Answer at a socket that listens, until closed; `start` begins.

    Args:
        listener: A socket that listens; closed with the server.
        store: The first argument of every method.
        methods: What may be asked for, by name.
        who: What the other side is told that it speaks to.
        limits: What it may ask for.
        check_hello: Raises where the hello is not for this server.
    """

    def __init__(
        self,
        listener: socket.socket,
        store: Any,
        methods: Mapping[str, Method],
        *,
        who: str = "the owner of the store",
        limits: Limits = Limits(),  # noqa: B008 - it cannot be changed
        check_hello: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self.store = store
        self.closing = False
        self._listener = listener
        self._methods = methods
        self._who = who
        self._limits = limits
        self._check_hello = check_hello
        self._lock = threading.Condition()
        self._connections: dict[socket.socket, bool] = {}
        self._thread = threading.Thread(
            target=self._accept, name="turnstate-server", daemon=True
        )

    def start(self) -> None:
        """Take connections from here on."""
        self._thread.start()

    def close(self, drain_s: float = DRAIN_S) -> None:
        """Take no more requests, answer the ones begun, then hang up."""
        with self._lock:
            if self.closing:
                return
            self.closing = True
        self.leave()
        _hang_up(self._listener, socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for connection, busy in self._connections.items():
                if not busy:
                    _hang_up(connection, socket.SHUT_RD)
            self._lock.wait_for(lambda: not any(self._connections.values()), drain_s)
            self._lock.wait_for(lambda: not self._connections, FAREWELL_S)
            for connection in self._connections:
                _hang_up(connection, socket.SHUT_RDWR)
        if self._thread.is_alive():
            self._thread.join(FAREWELL_S)

    def leave(self) -> None:
        """Do what has to be done before the socket goes."""

    def _stopped(self, connection: socket.socket) -> bool:
        return self.closing or messages.is_closed(connection)

    # -- connections -------------------------------------------------------------

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                if self.closing:
                    return
                # Too many files are open, or who connected is gone already.
                time.sleep(_PAUSE_S)
                continue
            messages.send_at_once(connection)
            with self._lock:
                full = len(self._connections) >= self._limits.connections
                closing = self.closing
                if not full and not closing:
                    self._connections[connection] = False
            if closing:
                with suppress(ConnectionLost):
                    messages.send(connection, _CLOSING)
                connection.close()
                continue
            if full:
                self._refuse(connection)
                continue
            threading.Thread(
                target=self._serve,
                args=(connection,),
                name="turnstate-server-connection",
                daemon=True,
            ).start()

    def _refuse(self, connection: socket.socket) -> None:
        error = UnavailableError(
            f"{self._who} has {self._limits.connections} connections",
            hint="try again in a moment",
            code="owner_busy",
        )
        parts = messages.error_parts(error)
        with suppress(ConnectionLost):
            messages.send(connection, messages.packed([0, messages.ERROR, parts]))
        connection.close()

    def _serve(self, connection: socket.socket) -> None:
        limits = self._limits
        inbox = Inbox(
            connection,
            bytes_max=limits.request_bytes,
            silence_s=limits.silence_s,
            message_s=limits.request_s,
        )
        try:
            # A time-out is a connection that was silent, or a reader too slow.
            with suppress(ConnectionLost, TimeoutError):
                self._serve_requests(connection, inbox)
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
            connection.settimeout(self._limits.send_s)
            # Who follows the log is not waited for at the end: it never ends.
            known = self._methods.get(name) if isinstance(name, str) else None
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

    # -- requests ----------------------------------------------------------------

    def _answer(
        self,
        connection: socket.socket,
        inbox: Inbox,
        number: int,
        name: Any,
        arguments: Any,
    ) -> None:
        """Answer one request; a failure of it is an answer, too."""
        try:
            _check_request(name, arguments)
            if name == messages.HELLO:
                parts = self._hello(arguments)
                last = messages.packed([number, messages.ITEM, parts])
            else:
                method = self._method(name)
                last = self._perform(connection, inbox, number, method, arguments)
            # With the end in one piece: one wait of the other side less.
            end = last + messages.packed([number, messages.END, None])
        except ConnectionLost:
            raise
        except Exception as error:  # noqa: BLE001 - it belongs to who asked
            if not isinstance(error, TurnstateError):
                _log.exception("server.request_failed", method=name)
            parts = messages.error_parts(error)
            end = messages.packed([number, messages.ERROR, parts])
        messages.send(connection, end)

    def _hello(self, arguments: dict[str, Any]) -> list[Any]:
        if arguments.get("protocol") != messages.PROTOCOL:
            raise other_version(package_version(), arguments.get("version"))
        if self._check_hello is not None:
            self._check_hello(arguments)
        return [messages.PROTOCOL, package_version()]

    def _method(self, name: str) -> Method:
        known = self._methods.get(name)
        if known is None:
            raise InvalidInputError(
                f"{self._who} knows no method {name!r}",
                hint="its turnstate is another version: restart it with this one",
                code="unknown_method",
            )
        return known

    def _perform(
        self,
        connection: socket.socket,
        inbox: Inbox,
        number: int,
        method: Method,
        arguments: dict[str, Any],
    ) -> bytes:
        """Do what is asked; return what of the answer is not sent yet."""
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
            return messages.packed([number, messages.ITEM, form.pack(result)])
        rest = _stream(connection, number, result, form.pack, prompt=form.prompt)
        if method.takes_stopped and self.closing:
            raise UnavailableError(
                f"{self._who} is closing",
                hint="subscribe again with the last token",
                code="owner_closing",
            )
        return rest


def _check_request(name: object, arguments: object) -> None:
    if type(name) is not str or type(arguments) is not dict:
        raise InvalidInputError(
            "a request is a number, a name and arguments by name", code="bad_request"
        )


def _stream(
    connection: socket.socket,
    number: int,
    rows: Iterator[Any],
    pack: Callable[[Any], Any],
    *,
    prompt: bool,
) -> bytes:
    """Send rows as they come; return what waits at the end."""
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
    return bytes(waiting)


def _items(inbox: Inbox, number: int) -> Iterator[Any]:
    """Yield what the caller streams to a method."""
    while True:
        sent, kind, parts = inbox.next()
        if sent != number or kind == messages.END:
            return
        yield item_of(parts)


def _hang_up(connection: socket.socket, how: int) -> None:
    with suppress(OSError):
        connection.shutdown(how)
