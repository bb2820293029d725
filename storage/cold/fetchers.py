"""A few threads that fetch from the cold tier, and keep nobody from ending."""

import queue
import threading
from collections.abc import Callable
from typing import Final

from turnstate.schemas.errors import UnavailableError

WAITING_MAX: Final = 1024
"""Fetches that wait for a thread; a tier that is so far behind is away."""


class Fetchers:
    """Run fetches, so many at a time; the others wait their turn.

    Threads of a usual pool are waited for when a process ends; one that hangs
    at a bucket would keep it from ending for as long as the bucket likes.

    Args:
        most: Threads at most; they begin when they are needed.
        name: Of the threads.
        waiting_max: How many fetches wait for a thread at most.
    """

    def __init__(self, most: int, name: str, waiting_max: int = WAITING_MAX) -> None:
        self._most = most
        self._name = name
        self._waiting: queue.SimpleQueue[Callable[[], object] | None]
        self._waiting = queue.SimpleQueue()
        self._waiting_max = waiting_max
        self._lock = threading.Lock()
        self._threads = 0
        self._closed = False

    def start(self, fetch: Callable[[], object]) -> None:
        """Have a fetch run in a thread; it must not raise.

        Raises:
            UnavailableError: closed (code `closed`), or too many wait (`cold_away`).
        """
        with self._lock:
            if self._closed:
                raise closed()
            waiting = self._waiting.qsize()
            if waiting >= self._waiting_max:
                raise UnavailableError(
                    f"the cold tier is behind: {waiting} fetches wait for it",
                    hint="nothing is lost: ask again in a moment",
                    code="cold_away",
                )
            self._waiting.put(fetch)
            if self._threads < self._most:
                self._threads += 1
                threading.Thread(target=self._run, name=self._name, daemon=True).start()

    def close(self) -> None:
        """Begin no more fetches; those under way are not waited for. Twice is once."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for _ in range(self._threads):
                self._waiting.put(None)

    def _run(self) -> None:
        while True:
            fetch = self._waiting.get()
            if fetch is None:
                return
            if not self._closed:
                fetch()


def closed() -> UnavailableError:
    """Return what whoever waits for a fetch is told once nobody fetches any more."""
    return UnavailableError(
        "the cold tier was closed while a session was read from it",
        hint="open the store again; nothing is lost",
        code="closed",
    )
