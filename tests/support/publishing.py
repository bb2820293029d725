"""Publish the lines of a file into a store until killed: `publishing.py DATA FILE`.

With `late` as third argument it has a bug: it acknowledges before it keeps.

Says on standard output what it handed over (`sent N`) and, as soon as it is
told, what was acknowledged (`kept VERDICT VERSION`), one turn a line.
"""

import os
import sys
import threading
from concurrent.futures import Future
from pathlib import Path
from random import Random
from typing import Final

from turnstate.agents.session.step import Answer
from turnstate.storage.warm.batch import Batch
from turnstate.storage.warm.rows import RocksTables
from turnstate.streams.embedded.store import EmbeddedStore
from turnstate.streams.settings import Settings

WINDOW: Final = 4
"""Submissions on their way at a time: enough that one always is."""

TURNS_MAX: Final = 6
"""Turns in one submission."""


def keep_late() -> None:
    """Let every synced batch wait until the next one comes; a bug for tests."""
    write = RocksTables.write
    held: list[Batch] = []

    def late(self: RocksTables, batch: Batch, *, sync: bool) -> None:
        if not sync:
            write(self, batch, sync=False)
            return
        for before in held:
            write(self, before, sync=True)
        held[:] = [batch]

    RocksTables.write = late  # type: ignore[method-assign]


def main(data: str, lines_path: str, bug: str = "") -> None:
    """Publish; ends only when the lines are used up, which a test takes care of."""
    if bug:
        keep_late()
    lines = Path(lines_path).read_bytes().splitlines()
    chance = Random(len(lines))
    room = threading.Semaphore(WINDOW)

    def told(done: "Future[list[Answer]]") -> None:
        said = [f"kept {each.verdict.value} {each.version}\n" for each in done.result()]
        os.write(1, "".join(said).encode())
        room.release()

    settings = Settings.from_env(os.environ, data=Path(data))
    with EmbeddedStore(settings) as store:
        at = 0
        while at < len(lines):
            room.acquire()
            part = lines[at : at + 1 + chance.randrange(TURNS_MAX)]
            at += len(part)
            store.engine.submit(part).add_done_callback(told)
            os.write(1, b"sent %d\n" % at)


if __name__ == "__main__":
    main(*sys.argv[1:])
