"""An object store that fails, tears and delays as told, or as a seed has it."""

import time
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from random import Random
from threading import Lock
from typing import TypeVar

from turnstate.schemas.errors import UnavailableError
from turnstate.storage.cold.objects import ObjectInfo, ObjectStore

Answer = TypeVar("Answer")


class Mishap(StrEnum):
    """What happens to one call."""

    REFUSED = "raises, and nothing is done"
    LOST = "is done, then raises as a time-out does"
    TORN = "half of the bytes are written or read"
    SWAPPED = "a byte is another one, written or read"
    DELAYED = "comes late"


class FaultyObjects:
    """Pass calls on to a store, but for those that have a mishap.

    Args:
        objects: The store itself.
        at: The mishap of the n-th call, counted from 1.
        seed: Of chance; None for none.
        rate: How probable a mishap is, per call.
        mishaps: What chance chooses from.
        delay_s: How late a delayed call comes.
    """

    def __init__(
        self,
        objects: ObjectStore,
        at: Mapping[int, Mishap] | None = None,
        *,
        seed: int | None = None,
        rate: float = 0.1,
        mishaps: Sequence[Mishap] = (Mishap.REFUSED, Mishap.LOST),
        delay_s: float = 0.05,
    ) -> None:
        self.objects = objects
        self.calls = 0
        self.met: list[tuple[int, str, Mishap]] = []
        """Call, method and mishap of all that happened."""
        self._at = dict(at or {})
        self._chance = None if seed is None else Random(seed)
        self._rate = rate
        self._mishaps = mishaps
        self._delay_s = delay_s
        self._lock = Lock()

    def create(self, name: str, data: bytes) -> bool:
        mishap = self._begin("create")
        created = self.objects.create(name, _damaged(data, mishap))
        return _answered(created, mishap)

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        mishap = self._begin("read")
        data = self.objects.read(name, start, length)
        return _answered(_damaged(data, mishap), mishap)

    def read_end(self, name: str, length: int) -> bytes:
        mishap = self._begin("read_end")
        data = self.objects.read_end(name, length)
        return _answered(_damaged(data, mishap), mishap)

    def list(self, prefix: str = "", after: str = "") -> Iterator[ObjectInfo]:
        mishap = self._begin("list")
        yield from self.objects.list(prefix, after)
        _answered(None, mishap)

    def delete(self, names: Sequence[str]) -> None:
        mishap = self._begin("delete")
        self.objects.delete(names)
        _answered(None, mishap)

    def _begin(self, method: str) -> Mishap | None:
        with self._lock:
            self.calls += 1
            mishap = self._at.get(self.calls)
            if self._chance is not None and self._chance.random() < self._rate:
                mishap = self._chance.choice(self._mishaps)
            if mishap is not None:
                self.met.append((self.calls, method, mishap))
        if mishap is Mishap.DELAYED:
            time.sleep(self._delay_s)
        if mishap is Mishap.REFUSED:
            raise UnavailableError("the store is away, as the test wants it")
        return mishap


def _answered(answer: Answer, mishap: Mishap | None) -> Answer:
    if mishap is Mishap.LOST:
        raise UnavailableError("the answer was lost, as the test wants it")
    return answer


def _damaged(data: bytes, mishap: Mishap | None) -> bytes:
    if mishap is Mishap.TORN:
        return data[: len(data) // 2]
    if mishap is Mishap.SWAPPED and data:
        middle = len(data) // 2
        return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
    return data
