"""Progress bars on stderr, for whoever watches a terminal."""

import os
import stat
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)


class Step(Protocol):
    """Told how much is done, and of how much, None where that is not known."""

    def __call__(self, done: int, total: int | None = None, /) -> None:
        """Move the bar."""
        ...


@contextmanager
def bar(title: str) -> Generator[Step | None]:
    """Give what moves a bar on a terminal; None where nobody watches."""
    if not sys.stderr.isatty():
        yield None
        return
    with _columns("{task.completed:,.0f}") as progress:
        task = progress.add_task(title, total=None)

        def step(done: int, total: int | None = None, /) -> None:
            progress.update(task, completed=done, total=total)

        yield step


@contextmanager
def publish_progress() -> Generator[Callable[[Any, BinaryIO], None]]:
    """Give what shows how far the open file has been read, and the turns so far."""
    with _columns("{task.fields[turns]:,} turns") as progress:
        tasks: dict[int, Any] = {}

        def watch(counts: Any, file: BinaryIO) -> None:
            known = id(file)
            if known not in tasks:
                name = str(getattr(file, "name", "") or "stdin")
                tasks[known] = progress.add_task(
                    Path(name).name, total=_size(file), turns=0
                )
            at = file.tell() if _size(file) is not None else counts.turns
            progress.update(tasks[known], completed=at, turns=counts.turns)

        yield watch


@contextmanager
def restore_progress() -> Generator[Callable[[Any], None] | None]:
    """Give what shows a restore of a worker, a bar each time; None unwatched."""
    if not sys.stderr.isatty():
        yield None
        return
    shown: list[tuple[Progress, Any]] = []

    def end() -> None:
        while shown:
            shown.pop()[0].stop()

    def told(restore: Any) -> None:
        if not shown:
            progress = _columns("{task.completed:,.0f} records")
            progress.start()
            shown.append((progress, progress.add_task("restore", total=None)))
        progress, task = shown[0]
        if restore.files is not None:
            done, total = restore.files
            what = f"files of backups {done}/{total}"
            progress.update(task, description=what, completed=0, total=None)
            return
        progress.update(
            task, description="restore", completed=restore.done, total=restore.total
        )
        if restore.done >= restore.total:
            end()

    try:
        yield told
    finally:
        end()


def _columns(count: str) -> Progress:
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn(count, markup=False),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )


def _size(file: BinaryIO) -> int | None:
    try:
        status = os.fstat(file.fileno())
    except (OSError, ValueError):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
