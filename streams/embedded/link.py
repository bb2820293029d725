"""A connection to who answers requests: the asking side of the messages."""

import os
import socket
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from turnstate.schemas.errors import UnavailableError
from turnstate.streams.embedded import messages
from turnstate.streams.embedded.messages import ConnectionLost, Inbox
from turnstate.streams.embedded.methods import item_parts
from turnstate.streams.embedded.owner_card import other_version, package_version

CONNECT_TIMEOUT_S: Final = 5.0
"""Who has not said hello after so long hangs."""

Stopped = Callable[[], bool]


class NotRead(Exception):
    """The owner closed before it read the request: nothing was done."""


class Link:
    """One connection to who answers requests; one request at a time.

    Args:
        family: Of the socket.
        address: Where it listens.
        silent: What is raised where it does not say hello.
        hello: What the hello tells besides the protocol.
        timeout_s: How long the hello may take.

    Raises:
        ConnectionLost: nobody listens there any more.
        UnavailableError: it is another version, too busy, or silent.
    """

    def __init__(
        self,
        family: int,
        address: Any,
        silent: UnavailableError,
        *,
        hello: Mapping[str, Any] | None = None,
        timeout_s: float = CONNECT_TIMEOUT_S,
    ) -> None:
        self._number = 0
        self._connection = socket.socket(family, socket.SOCK_STREAM)
        self._connection.settimeout(timeout_s)
        self._inbox = Inbox(self._connection)
        try:
            messages.send_at_once(self._connection)
            self._connection.connect(address)
            self._hello(hello or {})
            self._connection.settimeout(None)
        except TimeoutError as error:
            self.close()
            raise silent from error
        except OSError as error:
            self.close()
            raise ConnectionLost(str(error)) from error
        except BaseException:
            self.close()
            raise

    def _hello(self, more: Mapping[str, Any]) -> None:
        arguments = {
            **more,
            "protocol": messages.PROTOCOL,
            "version": package_version(),
            "pid": os.getpid(),
        }
        try:
            self.begin(messages.HELLO, arguments)
            ((protocol, version),) = list(self.rows())
        except NotRead as error:
            raise ConnectionLost(str(error)) from error
        if protocol != messages.PROTOCOL:
            raise other_version(version, package_version())

    def begin(self, method: str, arguments: dict[str, Any]) -> None:
        """Send a request.

        Raises:
            NotRead: the owner is gone; it has not read it.
        """
        self._number += 1
        data = messages.packed([self._number, method, arguments])
        try:
            messages.send(self._connection, data)
        except ConnectionLost as error:
            raise NotRead(str(error)) from error

    def give(self, items: Iterator[Any]) -> None:
        """Stream the items that the request takes.

        Raises:
            ConnectionLost: the owner died.
        """
        for item in items:
            parts = item_parts(item)
            data = messages.packed([self._number, messages.ITEM, parts])
            messages.send(self._connection, data)
        end = messages.packed([self._number, messages.END, None])
        messages.send(self._connection, end)

    def rows(self, stopped: Stopped | None = None) -> Iterator[Any]:
        """Yield what the owner answers, until it has answered or is to stop.

        Raises:
            NotRead: the owner closed without reading the request.
            ConnectionLost: the owner died.
            TurnstateError: what the owner raised.
        """
        while True:
            try:
                _, kind, parts = self._inbox.next()
            except TimeoutError:
                if stopped is None:
                    raise
                if stopped():
                    return
                continue
            if kind == messages.ITEM:
                yield parts
            elif kind == messages.END:
                return
            elif kind == messages.CLOSING:
                raise NotRead("the owner is closing")
            else:
                raise messages.error_of(parts)

    def look_every(self, seconds: float | None) -> None:
        """Wait for no message longer than this before asking whether to stop."""
        self._connection.settimeout(seconds)

    def is_lost(self) -> bool:
        """Say whether the owner has hung up meanwhile."""
        return messages.is_closed(self._connection)

    def close(self) -> None:
        """Hang up; the owner stops what it streams to here."""
        self._connection.close()
