"""Back up or restore until killed: `backing_up.py backup|restore DATA PLACE`.

Objects are slow, so that a kill finds it at work. Says `begun`, and `done`.
"""

import os
import sys
import time
from pathlib import Path
from typing import Final

from turnstate.storage.cold.directory import DirectoryObjects
from turnstate.streams.embedded import backups
from turnstate.streams.embedded.restoring import restore
from turnstate.streams.embedded.store import EmbeddedStore
from turnstate.streams.settings import Settings

SLOW_S: Final = 0.02


def slow_down() -> None:
    """Let every object take its time."""
    create, read = DirectoryObjects.create, DirectoryObjects.read

    def slow_create(self: DirectoryObjects, name: str, data: bytes) -> bool:
        time.sleep(SLOW_S)
        return create(self, name, data)

    def slow_read(
        self: DirectoryObjects, name: str, start: int = 0, length: int | None = None
    ) -> bytes:
        time.sleep(SLOW_S)
        return read(self, name, start, length)

    DirectoryObjects.create = slow_create  # type: ignore[method-assign]
    DirectoryObjects.read = slow_read  # type: ignore[method-assign]


def main(what: str, data: str, place: str) -> None:
    """Do it; a backup is made again and again, a restore once."""
    slow_down()
    settings = Settings(data=Path(data))
    if what == "restore":
        os.write(1, b"begun\n")
        restore(settings, place, access={})
        os.write(1, b"done\n")
        return
    with EmbeddedStore(settings) as store:
        turn = store.engine.log.end
        os.write(1, b"begun\n")
        while True:
            for _ in range(3):
                turn += 1
                store.publish(
                    [
                        b'{"tenant":"acme","session":"s%d","role":"user","content":"%d"}'
                        % (turn % 5, turn)
                    ]
                )
            backups.backup(store, place, keep=3)
            os.write(1, b"done\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
