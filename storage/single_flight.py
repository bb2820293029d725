"""Many callers who want one thing at once cause one call."""

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
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
        return self.begun(key, fetch, _at_once).result()

    def begun(
        self,
        key: K,
        fetch: Callable[[], V],
        start: Callable[[Callable[[], object]], object],
    ) -> "Future[V]":
        """Return what will be there of a key, fetched once for all who ask.

        Whoever tires of waiting may go: the fetch goes on for who comes later.

        Args:
            key: What is wanted.
            fetch: Gets it.
            start: Has a call made, now or in another thread; what it raises is
                raised here, and told to whoever waits already.
        """
        with self._lock:
            flying = self._flying.get(key)
            if flying is not None:
                return flying
            mine: Future[V] = Future()
            self._flying[key] = mine

        def fly() -> None:
            try:
                value = fetch()
            except BaseException as error:  # noqa: BLE001 - it is who waits's
                self._fail(key, mine, error)
            else:
                self._land(key, mine, lambda: mine.set_result(value))

        try:
            start(fly)
        except BaseException as error:
            self._fail(key, mine, error)
            raise
        return mine

    def abandon(self, error: BaseException) -> None:
        """Tell everybody who waits that they wait in vain."""
        with self._lock:
            flying = list(self._flying.items())
        for key, future in flying:
            self._fail(key, future, error)

    def _land(
        self,
        key: K,
        future: "Future[V]",
        tell: Callable[[], None],
    ) -> None:
        with self._lock:
            if self._flying.get(key) is future:
                del self._flying[key]
        with suppress(InvalidStateError):  # it was abandoned
            tell()

    def _fail(self, key: K, future: "Future[V]", error: BaseException) -> None:
        self._land(key, future, lambda: future.set_exception(error))


def _at_once(fly: Callable[[], object]) -> None:
    fly()
