"""Create objects until killed: `creating.py FOLDER WRITER COUNT BYTES_MAX`.

Says on standard output each name that it created, after it did.
"""

import os
import sys
from pathlib import Path
from random import Random

from turnstate.storage.cold.directory import DirectoryObjects


def body_of(name: str, bytes_max: int) -> bytes:
    """Return the bytes that belong under a name, whoever writes them."""
    chance = Random(name)
    return chance.randbytes(chance.randrange(1, bytes_max))


def main(folder: str, writer: str, count: str, bytes_max: str) -> None:
    """Create, and try to create what other writers of the same kind do."""
    objects = DirectoryObjects(Path(folder))
    os.write(1, b"ready\n")
    sys.stdin.read(1)
    for number in range(int(count)):
        name = f"shared/{number:05d}" if writer == "racer" else f"{writer}/{number:05d}"
        if objects.create(name, body_of(name, int(bytes_max))):
            os.write(1, f"{name}\n".encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
