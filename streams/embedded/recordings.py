"""Rewrite the recordings of a data folder without what was erased."""

import gzip
import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, cast

from turnstate.replay.recording import (
    MAGIC,
    RecordedItem,
    RecordedOperation,
    read_recording,
    write_recording,
)
from turnstate.replay.recording_json import item_from_json, json_line
from turnstate.schemas.errors import TurnstateError
from turnstate.streams.embedded.scrub import Gone, replace_file

OWN_NAMES: Final = frozenset(
    {
        "store",
        "cold",
        "recordings",
        "archive.key",
        "owner.lock",
        "owner.json",
        "owner.sock",
    }
)
"""What lies in a data folder and is looked through, or holds no turn."""

_GZIP: Final = b"\x1f\x8b"


def not_covered(data: Path) -> list[str]:
    """Return the files of a data folder that erasing does not look into."""
    if not data.is_dir():
        return []
    return sorted(
        str(path)
        for path in data.iterdir()
        if path.name not in OWN_NAMES
        and (path.is_dir() or (path.is_file() and path.stat().st_size > 0))
    )


def scrub_recordings(
    folder: Path, gone: Gone, *, dry_run: bool = False
) -> tuple[int, int, list[str]]:
    """Rewrite each recording without what has to go.

    Args:
        folder: Where recordings lie; need not be there.
        gone: What has to go.
        dry_run: Only count.

    Returns:
        Items looked at, items that went, files that could not be read.
    """
    seen = found = 0
    unread: list[str] = []
    paths = sorted(folder.rglob("*")) if folder.is_dir() else []
    for path in paths:
        if not path.is_file():
            continue
        scrub = _Scrub(gone)
        try:
            scrub.look_through(path, rewrite=not dry_run)
        except (TurnstateError, OSError, EOFError) as error:
            unread.append(f"{path}: {error}")
            continue
        seen += scrub.seen
        found += scrub.found
    return seen, found, unread


def items_without(
    items: Iterable[RecordedItem], gone: Gone
) -> Iterator[RecordedItem]:
    """Yield the items of a recording, with stubs or nothing for what has to go."""
    for item in items:
        kept = item_without(item, gone)
        if kept is not None:
            yield kept


def item_without(item: RecordedItem, gone: Gone) -> RecordedItem | None:
    """Return what to write instead of an item: itself, a stub, or nothing."""
    if not isinstance(item, RecordedOperation) or item.name.tenant != gone.tenant:
        return item
    key = item.name.key()
    if item.incarnation <= gone.lives.get(key, 0):
        return None
    if gone.user is None:
        return item
    op = item.op()
    if op.body.user == gone.user:
        # Once it is a stub it has no user any more.
        return RecordedOperation.of(item.name, op.stub())
    stub = gone.stubs.get((key, op.dot))
    if stub is None or op.body.hidden is not None:
        return item
    return RecordedOperation.of(item.name, stub)


class _Scrub:
    """The running scrub of one file."""

    def __init__(self, gone: Gone) -> None:
        self.gone = gone
        self.seen = 0
        self.found = 0

    def look_through(self, path: Path, *, rewrite: bool) -> None:
        with path.open("rb") as file:
            first = file.read(2)
        if first == MAGIC[:2]:
            self._recording(path, rewrite)
        else:
            self._lines(path, first == _GZIP, rewrite)

    def _recording(self, path: Path, rewrite: bool) -> None:
        with path.open("rb") as file:
            for item in read_recording(file):
                self._counted(item)
        if not rewrite or not self.found:
            return

        def write(beside: Path) -> None:
            with path.open("rb") as source, beside.open("wb") as target:
                items = items_without(read_recording(source), self.gone)
                write_recording(target, items)

        replace_file(path, write)

    def _counted(self, item: RecordedItem) -> None:
        self.seen += 1
        self.found += self._in_its_place(item) is not item

    def _in_its_place(self, item: RecordedItem) -> RecordedItem | None:
        return item_without(item, self.gone)

    def _lines(self, path: Path, packed: bool, rewrite: bool) -> None:
        """Look through lines of JSON, stamped or not."""
        kept = io.BytesIO()
        opener = gzip.open if packed else open
        with cast("io.BufferedIOBase", opener(path, "rb")) as file:
            for line in file:
                if not line.strip():
                    continue
                self.seen += 1
                put = self._line(line)
                self.found += put is not line
                if put is not None:
                    kept.write(put)
        if rewrite and self.found:
            data = kept.getvalue()
            replace_file(
                path,
                lambda beside: _write(beside, gzip.compress(data) if packed else data),
            )

    def _line(self, line: bytes) -> bytes | None:
        try:
            item = item_from_json(line.strip())
        except TurnstateError:
            return None if self.gone.is_about(line.strip()) else line
        kept = self._in_its_place(item)
        if kept is item:
            return line
        return None if kept is None else json_line(kept) + b"\n"


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)
