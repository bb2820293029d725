"""Run tier commands one after another until told to stop: `tier_jobs.py DATA BEGIN`.

One process for all of them, so that two of these meet often. Says on standard
output what each command says, a JSON document in a line, then `CODE COMMAND`.
It stops when its standard input ends.
"""

import select
import sys
from typing import Final

from turnstate.streams.cli import main as cli

LATER: Final = "2029-01-01T00:00:00Z"
"""So late that everything has been idle for long enough, whenever it is run."""

WORK: Final = (
    ("run", "--once", "--now", LATER),
    ("run", "--now", LATER, "--budget-bytes", "20000"),
    ("compact",),
    ("run", "--now", LATER),
    ("gc",),
)


def main(data: str, begin: str) -> None:
    """Run until standard input ends."""
    number = int(begin)
    while not select.select([sys.stdin], [], [], 0)[0]:
        command = WORK[number % len(WORK)]
        number += 1
        code = cli.run(["tiers", *command, "--data", data, "--json"])
        sys.stdout.write(f"{code} {command[0]}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
