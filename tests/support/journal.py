"""Keep what a publisher says, in a process of its own: every line is synced.

As a script: `python journal.py FILE`, standard input is the publisher's pipe.
Imports nothing but what starts in no time.
"""

import os
import sys
from typing import Final, NamedTuple

BUFFER_BYTES: Final = 1 << 16


class Journal(NamedTuple):
    """What was read from a journal.

    Attributes:
        sent: How many turns were handed over for certain.
        answers: Of each acknowledged turn, in order: (verdict, version).
    """

    sent: int
    answers: list[tuple[str, int]]

    @property
    def in_flight(self) -> int:
        """Return how many turns were handed over and not acknowledged."""
        return max(0, self.sent - len(self.answers))


def read_journal(path: str | os.PathLike[str]) -> Journal:
    """Return a journal's whole lines; a last one that was cut says nothing."""
    with open(path, "rb") as file:  # noqa: PTH123 - pathlib is slow to start
        lines = file.read().split(b"\n")[:-1]
    sent = 0
    answers: list[tuple[str, int]] = []
    for line in lines:
        kind, *words = line.decode().split()
        if kind == "sent":
            sent = int(words[0])
        else:
            answers.append((words[0], int(words[1])))
    return Journal(sent, answers)


def main(path: str) -> None:
    """Copy standard input to a file and sync it, until the publisher is gone."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    while data := os.read(0, BUFFER_BYTES):
        os.write(file, data)
        os.fsync(file)


if __name__ == "__main__":
    main(sys.argv[1])
