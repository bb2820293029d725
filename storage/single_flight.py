"""Many callers who want one thing at once cause one call."""

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class SingleFlight(Generic[K, V]):
    """Let the first who asks for a key fetch it, and the others wait for that.

    A failure is everybody's who waited; who comes later tries anew. Safe from
    any thread.

    Example:
        >>> flight: SingleFlight[str, int] = SingleFlight()
        >>> flight.fetched("a", lambda: 1)
        1
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._flying: dict[K, Future[V]] = {}

    def fetched(self, key: K, fetch: Callable[[], V]) -> V:
        """Return what `fetch` gives, called by this or by another thread."""
        with self._lock:
            flying = self._flying.get(key)
            is_first = flying is None
            if flying is None:
                flying = self._flying[key] = Future()
        if not is_first:
            return flying.result()
        try:
            flying.set_result(fetch())
        except BaseException as error:
            flying.set_exception(error)
            raise
        finally:
            with self._lock:
                del self._flying[key]
        return flying.result()
