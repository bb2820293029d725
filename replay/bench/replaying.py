"""Turns a second of a replay: a recording folded again on one core and on two."""

import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from turnstate.replay.bench.corpora import Dialogue, dialogues, multiplied
from turnstate.replay.bench.figures import (
    Progress,
    Report,
    Size,
    digest_of,
    figure,
    rounded,
    tell,
)
from turnstate.replay.bench.folding import LOG_NAME, Folder
from turnstate.replay.engine import FoldedRecording, fold_file
from turnstate.replay.recording import RecordedOperation, write_recording
from turnstate.schemas.dialogue.head import digest
from turnstate.schemas.dialogue.phases import default_graph
from turnstate.schemas.ids import SessionName

RUNS: Final = {"small": 1, "large": 3}
COPIES: Final = {"small": 1, "large": 10}
PROCESSES: Final = {"small": (1,), "large": (1, 2)}
"""Starting processes takes longer than a small run."""


def replay(size: Size, progress: Progress) -> Report:
    """Measure folding a recording and, beside it, lines of turns.

    Starting the processes is measured with it. The digests have to be those
    that the live agent came to.
    """
    found = dialogues(small=size == "small")
    many = list(multiplied(found, len(found) * COPIES[size]))
    with TemporaryDirectory(prefix="turnstate-bench-") as folder:
        recording, lines = Path(folder, "recording"), Path(folder, "turns.jsonl")
        wanted: list[tuple[bytes, bytes]] = []
        with recording.open("wb") as file:
            write_recording(file, _recorded(many, wanted))
        with lines.open("wb") as file:
            file.writelines(turn + b"\n" for each in many for turn in each.turns)
        expected = digest_of(wanted)
        rates: dict[str, list[float]] = {}
        for run in range(RUNS[size]):
            for name, path in (("recording", recording), ("turns", lines)):
                for processes in PROCESSES[size]:
                    rate, folded = _timed(path, processes)
                    told = digest_of((k, s.digest) for k, s in folded.sessions.items())
                    assert told == expected, "a replay comes to other states"
                    rates.setdefault(f"{name}_{processes}", []).append(rate)
            tell(progress, run + 1, RUNS[size])
    most = PROCESSES[size][-1]
    return figure(rates[f"recording_{most}"], f"turns/s, {most} processes") | {
        "turns": sum(len(each.turns) for each in many),
        "sessions": len(many),
        "turns_per_s": {
            name: rounded(figure(each, "")["median"]) for name, each in rates.items()
        },
        "digest": expected,
    }


def _recorded(
    many: list[Dialogue], wanted: list[tuple[bytes, bytes]]
) -> Iterator[RecordedOperation]:
    """Yield what the live agent makes of each session, and note its digest."""
    for each in many:
        folder = Folder()
        folded = folder.fold(each.turns)
        name = SessionName(each.corpus, each.session)
        for op in folded.ops[0]:
            yield RecordedOperation.of(name, op)
        wanted += [(key, digest(stored.head)) for key, stored in folder.heads()]


def _timed(path: Path, processes: int) -> tuple[float, FoldedRecording]:
    start = time.perf_counter()
    folded = fold_file(path, default_graph(), LOG_NAME, processes=processes)
    return folded.operations / (time.perf_counter() - start), folded
