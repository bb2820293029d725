"""What a job did, as a text file that Prometheus' node exporter picks up."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

from turnstate.schemas.errors import UnavailableError

_NUMBERS: Final = {
    "bytes": "Bytes that were copied.",
    "skipped": "Sessions that wait for the next run.",
    "swept": "Moves that a dead job had left.",
    "seconds": "How long the job took.",
    "rewritten": "Packs that were rewritten.",
    "packs": "Packs that were looked at, or deleted.",
    "new_packs": "Packs that a compaction made.",
}


def write_metrics(path: Path, job: str, document: Mapping[str, Any], at_s: int) -> None:
    """Write the counts of a job's report, in one step so that none is read half.

    Args:
        path: The file, `*.prom` in the folder that the exporter looks into.
        job: The name of the job.
        document: Its report.
        at_s: When it ended, epoch seconds.

    Raises:
        UnavailableError: the file cannot be written.
    """
    lines: list[str] = []

    def gauge(name: str, about: str, rows: Mapping[str, float]) -> None:
        full = f"turnstate_job_{name}"
        lines.append(f"# HELP {full} {about}")
        lines.append(f"# TYPE {full} gauge")
        lines.extend(f"{full}{{{labels}}} {value}" for labels, value in rows.items())

    mine = f'job="{job}"'
    moved: Any = document.get("moved")
    if isinstance(moved, dict):
        ways = cast("dict[str, int]", moved)
        rows = {f'{mine},path="{way}"': count for way, count in ways.items()}
        gauge("moved_sessions", "Sessions that were moved, by where.", rows)
    for name, about in _NUMBERS.items():
        value = document.get(name)
        if isinstance(value, int | float):
            gauge(name, about, {mine: value})
    gauge("ended_timestamp_seconds", "When the job ended last.", {mine: at_s})
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        beside.write_text("\n".join(lines) + "\n", encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        raise UnavailableError(
            f"the metrics cannot be written to {path}: {error.strerror}",
            field="metrics",
            hint="name a file in a folder that is there",
        ) from error
