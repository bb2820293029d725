"""An object store that hangs until it is let go, and says who waits there."""

import threading
import time
from collections.abc import Iterator, Sequence

from turnstate.schemas.errors import UnavailableError
from turnstate.storage.cold.objects import ObjectInfo, ObjectStore

WAIT_S = 30.0


class HangingObjects:
    """Pass calls on to a store; while it hangs, reads wait at the door.

    Args:
        objects: The store itself.

    Attributes:
        reads: Names that were read, in order, when they came to the door.
        fails: Whether what waits at the door fails when it is let go.
        delay_s: How late every read is.
    """

    def __init__(self, objects: ObjectStore) -> None:
        self.objects = objects
        self.reads: list[str] = []
        self.fails = False
        self.delay_s = 0.0
        self._open = threading.Event()
        self._open.set()
        self._came = threading.Condition()

    def hang(self) -> None:
        """Let no read through from here on."""
        self._open.clear()

    def go_on(self) -> None:
        """Let all through."""
        self._open.set()

    def wait_for_reads(self, count: int) -> None:
        """Wait until so many reads have come to the door."""
        with self._came:
            assert self._came.wait_for(lambda: len(self.reads) >= count, WAIT_S)

    def create(self, name: str, data: bytes) -> bool:
        return self.objects.create(name, data)

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        self._pass(name)
        return self.objects.read(name, start, length)

    def read_end(self, name: str, length: int) -> bytes:
        self._pass(name)
        return self.objects.read_end(name, length)

    def list(self, prefix: str = "", after: str = "") -> Iterator[ObjectInfo]:
        return self.objects.list(prefix, after)

    def delete(self, names: Sequence[str]) -> None:
        self.objects.delete(names)

    def _pass(self, name: str) -> None:
        with self._came:
            is_held = not self._open.is_set()
            self.reads.append(name)
            self._came.notify_all()
        time.sleep(self.delay_s)
        if is_held:
            assert self._open.wait(WAIT_S), "the test forgot to let it go"
            if self.fails:
                raise UnavailableError("the bucket is away, as the test wants it")
