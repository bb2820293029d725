"""An object store in memory, in which others may act between any two calls."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from turnstate.schemas.errors import NotFoundError, UnavailableError
from turnstate.storage.cold.objects import ObjectInfo


class MemoryObjects:
    """Hold objects in a dict, with the semantics of a bucket.

    Args:
        clock: Tells when an object is made, epoch milliseconds.

    Attributes:
        held: Name → (bytes, when made).
        calls: How many calls there were.
        is_away: Whether every call raises, as if the network were down.
        interrupts: Call from now → what another process does just before it;
            calls that it makes are not counted.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self.clock = clock
        self.held: dict[str, tuple[bytes, int]] = {}
        self.calls = 0
        self.is_away = False
        self.interrupts: dict[int, Callable[[], object]] = {}
        self._is_interrupted = False

    def interrupt(self, at: Mapping[int, Callable[[], object]]) -> None:
        """Let others act before the n-th call from now, counted from 1."""
        self.interrupts = {self.calls + n: act for n, act in at.items()}

    def create(self, name: str, data: bytes) -> bool:
        self._begin()
        if name in self.held:
            return False
        self.held[name] = (bytes(data), self.clock())
        return True

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        self._begin()
        data = self._data(name)
        return data[start : None if length is None else start + length]

    def read_end(self, name: str, length: int) -> bytes:
        self._begin()
        data = self._data(name)
        return data[max(len(data) - length, 0) :]

    def list(self, prefix: str = "", after: str = "") -> Iterator[ObjectInfo]:
        self._begin()
        return iter(
            [
                ObjectInfo(name, len(data), made_ms)
                for name, (data, made_ms) in sorted(self.held.items())
                if name.startswith(prefix) and name > after
            ]
        )

    def delete(self, names: Sequence[str]) -> None:
        self._begin()
        for name in names:
            self.held.pop(name, None)

    def _data(self, name: str) -> bytes:
        if name not in self.held:
            raise NotFoundError(f"there is no object {name}")
        return self.held[name][0]

    def _begin(self) -> None:
        if self._is_interrupted:
            return
        self.calls += 1
        if self.is_away:
            raise UnavailableError("the cold tier is away, as the test wants it")
        act = self.interrupts.pop(self.calls, None)
        if act is not None:
            self._is_interrupted = True
            try:
                act()
            finally:
                self._is_interrupted = False
