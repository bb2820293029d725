"""100 000 sessions: memory, state on disk, and whether the rate holds to the end."""

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec

from turnstate.infra.services.ran import ran
from turnstate.replay.bench.corpora import dialogues, interleaved, multiplied
from turnstate.replay.bench.figures import Progress, Report, Size, figure, tell
from turnstate.schemas.errors import UnavailableError

SESSIONS: Final = {"small": 120, "large": 100_000}
COLD_HEAD_BYTES: Final = 170
"""Bytes that the hot tier counts for 5 % of one head: a twentieth of what it
counts for all, divided by the sessions (`room_bytes` of `interleaved-cold`)."""

_WAIT_S: Final = 7_200


def large(size: Size, progress: Progress) -> Report:
    """Publish the corpora again and again under new session ids, interleaved.

    A process of its own reads the turns from a file, so that its memory is
    the store's and nothing else's. It runs with the default settings.
    """
    return _run(size, progress, None)


def large_cold(size: Size, progress: Progress) -> Report:
    """Publish the same with room for 5 % of the heads."""
    return _run(size, progress, SESSIONS[size] * COLD_HEAD_BYTES)


def _run(size: Size, progress: Progress, hot_bytes: int | None) -> Report:
    with TemporaryDirectory(prefix="turnstate-bench-") as folder:
        lines, data = Path(folder, "turns.jsonl"), Path(folder, "data")
        many = list(multiplied(dialogues(small=size == "small"), SESSIONS[size]))
        with lines.open("wb") as file:
            for at, turn in enumerate(interleaved(many)):
                file.write(turn + b"\n")
                if at % 100_000 == 0:
                    tell(progress, at)
        del many
        arguments = [str(lines), str(data), str(hot_bytes or 0)]
        module = "turnstate.streams.bench.large_child"
        done = ran(
            [sys.executable, "-m", module, *arguments],
            within_s=_WAIT_S,
            folder=Path(folder),
            environment={**os.environ, "PYTHONSAFEPATH": "1"},
        )
        if done.returncode:
            last = done.stderr.strip().rpartition("\n")[2]
            raise UnavailableError(
                f"the large run ended with {done.returncode}: {last}"
            )
    report: Report = msgspec.json.decode(done.stdout)
    return figure([report["turns_per_s"]], "turns/s") | report
