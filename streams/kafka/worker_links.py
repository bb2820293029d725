"""Connections to workers, kept for the next request; each attempt in bounded time."""

import socket
import threading
import time
from typing import Any, Final

from turnstate.schemas.errors import TurnstateError, UnavailableError
from turnstate.streams.embedded.link import Link, NotRead
from turnstate.streams.embedded.messages import ConnectionLost
from turnstate.streams.kafka.queries import QUERIES
from turnstate.streams.kafka.routing import Address

CONNECT_S: Final = 3.0
"""A worker that has not said hello after so long hangs, or its machine is gone."""

ATTEMPT_S: Final = 15.0
"""How long one worker may take for one answer."""

_IDLE_LINKS_MAX: Final = 8


class WorkerLinks:
    """Ask workers; safe to use from several threads.

    A request has a connection of its own while it runs.

    Args:
        log: The topic id of turns: a worker of another log does not answer.
    """

    def __init__(self, log: bytes) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._idle: dict[Address, list[Link]] = {}
        self._closed = False

    def close(self) -> None:
        """Hang up."""
        with self._lock:
            self._closed = True
            for links in self._idle.values():
                for link in links:
                    link.close()
            self._idle.clear()

    def ask(
        self, address: Address, method: str, arguments: dict[str, Any], deadline: float
    ) -> Any:
        """Return a worker's answer.

        Raises:
            UnavailableError: it is away, silent (codes `worker_lost`,
                `worker_silent`), or what it answered.
            TurnstateError: what the method raises.
        """
        link = self._taken(address, deadline)
        whole = False
        try:
            link.look_every(max(min(ATTEMPT_S, deadline - time.monotonic()), 0.001))
            link.begin(method, arguments)
            (parts,) = list(link.rows())
            whole = True
            return QUERIES[method].form.unpack(parts)
        except TimeoutError as error:
            raise _silent(address) from error
        except (ConnectionLost, NotRead) as error:
            raise _lost(address, error) from error
        except TurnstateError:
            # It answered: the connection is as good as before.
            whole = True
            raise
        finally:
            self._put_back(address, link, whole=whole)

    def _taken(self, address: Address, deadline: float) -> Link:
        with self._lock:
            if self._closed:
                raise UnavailableError("this reader is closed", hint="open it again")
            idle = self._idle.get(address, [])
            while idle:
                link = idle.pop()
                if not link.is_lost():
                    return link
                link.close()
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        try:
            return Link(
                family,
                tuple(address),
                _silent(address),
                hello={"log": self._log},
                timeout_s=max(min(CONNECT_S, deadline - time.monotonic()), 0.001),
            )
        except ConnectionLost as error:
            raise _lost(address, error) from error

    def _put_back(self, address: Address, link: Link, *, whole: bool) -> None:
        with self._lock:
            idle = self._idle.setdefault(address, [])
            if whole and not self._closed and len(idle) < _IDLE_LINKS_MAX:
                idle.append(link)
                return
        link.close()


def _lost(address: Address, error: Exception) -> UnavailableError:
    return UnavailableError(
        f"the worker at {address} is gone: {error}",
        field="partition",
        hint="its partitions go to another one after the session time-out",
        code="worker_lost",
    )


def _silent(address: Address) -> UnavailableError:
    return UnavailableError(
        f"the worker at {address} does not answer",
        field="partition",
        hint="see what it does; its partitions go to another one if it hangs",
        code="worker_silent",
    )
