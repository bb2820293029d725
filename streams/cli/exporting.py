"""Write recordings whole or not at all; read them, checked before they act."""

import gzip
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

from turnstate.replay.readers import Refusal
from turnstate.replay.readers.lines import STDIN
from turnstate.replay.recording import (
    RecordedErasure,
    RecordedItem,
    is_recording,
    read_recording,
    write_recording,
)
from turnstate.replay.recording_json import json_line, read_items
from turnstate.schemas.errors import ConflictError, InvalidInputError
from turnstate.schemas.ids import SessionName
from turnstate.streams.cli.render import note, write
from turnstate.streams.documents import Document

REFUSALS_SHOWN = 10
"""Refused lines that stderr tells of; the count has them all."""


class _Counted:
    """Count what passes through."""

    def __init__(self, items: Iterable[RecordedItem]) -> None:
        self._items = items
        self.operations = self.erasures = self.sessions = 0

    def __iter__(self) -> Iterator[RecordedItem]:
        last: SessionName | None = None
        for item in self._items:
            if item.name != last:  # exported session by session
                last = item.name
                self.sessions += 1
            if isinstance(item, RecordedErasure):
                self.erasures += 1
            else:
                self.operations += 1
            yield item


def export_to(target: str, items: Iterable[RecordedItem], *, force: bool) -> Document:
    """Write a recording and say what it holds.

    Written beside the target under another name, synced, then renamed.

    Raises:
        ConflictError: the file is there and may not be written over.
        InvalidInputError: it cannot be written.
    """
    start = time.monotonic()
    counted = _Counted(items)
    if target == STDIN:
        write_recording(cast("BinaryIO", _Stdout()), counted)
        size = None
    else:
        path = Path(target)
        if path.exists() and not force:
            raise ConflictError(
                f"{path} is there", field="file", hint="give another name, or --force"
            )
        size = _written_whole(path, counted)
    return {
        "file": target,
        "operations": counted.operations,
        "erasures": counted.erasures,
        "sessions": counted.sessions,
        "bytes": size,
        "seconds": round(time.monotonic() - start, 3),
    }


def _written_whole(path: Path, items: Iterable[RecordedItem]) -> int:
    try:
        handle, beside = tempfile.mkstemp(prefix=f".{path.name[:64]}.", dir=path.parent)
    except OSError as error:
        raise InvalidInputError(
            f"{path} cannot be written: {error.strerror}",
            field="file",
            hint="name a file in a folder that is there",
        ) from error
    try:
        with os.fdopen(handle, "wb") as file:
            _write_as(path.name, cast("BinaryIO", file), items)
            file.flush()
            os.fsync(file.fileno())
        Path(beside).chmod(0o644)
        Path(beside).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(beside).unlink()
        raise
    return path.stat().st_size


def _write_as(name: str, file: BinaryIO, items: Iterable[RecordedItem]) -> None:
    if name.endswith(".jsonl"):
        _write_lines(file, items)
    elif name.endswith(".jsonl.gz"):
        with gzip.GzipFile(fileobj=file, mode="wb", mtime=0) as packed:
            _write_lines(cast("BinaryIO", packed), items)
    else:
        write_recording(file, items)


def _write_lines(file: BinaryIO, items: Iterable[RecordedItem]) -> None:
    file.writelines(json_line(item) + b"\n" for item in items)


class _Stdout:
    """Standard output as a file that notices when nobody reads any more."""

    def write(self, data: bytes) -> int:
        write(data)
        return len(data)


def import_from(source: str, store: Any) -> Document:
    """Fold a recording into a store and say what became of it.

    Raises:
        CorruptDataError: it is damaged or cut; nothing was folded.
        InvalidInputError: it cannot be read at all.
    """
    start = time.monotonic()
    path = source
    with tempfile.TemporaryDirectory() as folder:
        if source == STDIN:
            # Checked as a whole before it acts: a pipe is kept aside first.
            path = str(Path(folder) / "stdin")
            with Path(path).open("wb") as file:
                while chunk := sys.stdin.buffer.read(1 << 20):
                    file.write(chunk)
        _check_whole(path)
        refused: list[Refusal] = []
        document: Document = store.import_items(_items(path, refused))
    document["refused"] += len(refused)
    document["seconds"] = round(time.monotonic() - start, 3)
    return document


def _check_whole(path: str) -> None:
    try:
        with Path(path).open("rb") as file:
            if is_recording(file.read(8)):
                file.seek(0)
                for _ in read_recording(file):
                    pass
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise InvalidInputError(
            f"{path} cannot be opened: {why}", field="file", hint="name a recording"
        ) from error


def _items(path: str, refused: list[Refusal]) -> Iterator[RecordedItem]:
    for item in read_items(path):
        if not isinstance(item, Refusal):
            yield item
            continue
        refused.append(item._replace(raw=b""))
        if len(refused) <= REFUSALS_SHOWN:
            note(f"line {item.line} is refused: {item.reason}")
