"""Kill a move at a step: in this process by an exception, or a process for good.

As a script, `moving.py DATA PATH STEP` moves every session from one tier to
another (`warm>cold`) and kills itself with SIGKILL when the step begins. A step
of an object store is `create`, `read` or `list`, then the number of the call,
then `before` or `after` it: `create:2:after`.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, Final, TypeVar

from support.cooling import Cooling
from support.faulty_store import CrashError
from turnstate.agents.tiering.facts import TierName
from turnstate.storage.cold.objects import ObjectInfo, ObjectStore
from turnstate.streams.embedded.methods import method_named
from turnstate.streams.embedded.owner import OwnedStore

PATHS: Final[tuple[tuple[TierName, TierName], ...]] = (
    ("hot", "warm"),
    ("warm", "hot"),
    ("warm", "cold"),
    ("cold", "warm"),
    ("hot", "cold"),
    ("cold", "hot"),
)
"""Every pair of tiers, both directions."""


Done = TypeVar("Done")


class Death:
    """The end of a process: once it has come, nothing is done any more.

    Args:
        step: Where it comes: a step of a move, or a call of an object store.
        kill: What then happens; raises where the process lives on.
    """

    def __init__(self, step: str, kill: Callable[[], None] | None = None) -> None:
        self.step = step
        self.is_dead = False
        self.passed: list[str] = []
        self._kill = kill
        self._lock = Lock()

    def at(self, step: str) -> None:
        """Come, where it is the step."""
        with self._lock:
            if self.is_dead:
                raise CrashError
            self.passed.append(step)
            if step != self.step:
                return
            self.is_dead = True
        if self._kill is not None:
            self._kill()
        raise CrashError


class DyingObjects:
    """Objects of a process that dies before or after one of its calls."""

    def __init__(self, objects: ObjectStore, death: Death) -> None:
        self.objects = objects
        self.death = death
        self.calls: dict[str, int] = {}

    def create(self, name: str, data: bytes) -> bool:
        return self._done("create", lambda: self.objects.create(name, data))

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        return self._done("read", lambda: self.objects.read(name, start, length))

    def read_end(self, name: str, length: int) -> bytes:
        return self._done("read", lambda: self.objects.read_end(name, length))

    def list(self, prefix: str = "", after: str = "") -> Iterator[ObjectInfo]:
        listed = self._done("list", lambda: [*self.objects.list(prefix, after)])
        return iter(listed)

    def delete(self, names: Sequence[str]) -> None:
        self._done("delete", lambda: self.objects.delete(names))

    def _done(self, kind: str, call: Callable[[], Done]) -> Done:
        number = self.calls[kind] = self.calls.get(kind, 0) + 1
        self.death.at(f"{kind}:{number}:before")
        answer = call()
        self.death.at(f"{kind}:{number}:after")
        return answer


class DyingStore:
    """A store whose owner, and whoever asks it, die together."""

    def __init__(self, store: OwnedStore, death: Death) -> None:
        self.store = store
        self.death = death

    def call(self, method: str, **arguments: Any) -> Any:
        if self.death.is_dead:
            raise CrashError
        answer = self.store.call(method, **arguments)
        return self._rows(answer) if method_named(method).form.streams else answer

    def _rows(self, rows: Iterator[Any]) -> Iterator[Any]:
        for row in rows:
            if self.death.is_dead:
                raise CrashError
            yield row


def kill_myself() -> None:
    """Let nothing be cleaned up, closed or released."""
    os.kill(os.getpid(), signal.SIGKILL)


def main(data: str, path: str, step: str) -> None:
    """Move every session along a path, and die on the way."""
    ((source, target),) = (each for each in PATHS if ">".join(each) == path)
    with Cooling(Path(data), fsync="batch") as world:
        place(world, source)
        move_all(world, target, Death(step, kill_myself))


def place(world: Cooling, tier: TierName) -> None:
    """Bring every session to a tier."""
    world.release()
    for name in world.names():
        world.job().move(name.key(), tier)
    assert world.tiers()[tier] == len(world.names())


def move_all(world: Cooling, target: TierName, death: Death) -> None:
    """Move every session to a tier; a death ends it.

    Raises:
        CrashError: it came.
    """
    objects = DyingObjects(world.objects, death)
    world.use(world.packs(objects), death.at)
    job = world.job(objects, store=DyingStore(world.asked, death))
    for name in world.names():
        job.move(name.key(), target)


if __name__ == "__main__":
    main(*sys.argv[1:])
