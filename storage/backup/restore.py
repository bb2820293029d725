"""Restore a backup into an empty folder: every file fetched, verified, in place."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from turnstate.schemas.errors import (
    ConflictError,
    CorruptDataError,
    NotFoundError,
    UnavailableError,
)
from turnstate.storage.backup.content import content_hash
from turnstate.storage.backup.manifest import (
    BackupFile,
    Manifest,
    read_manifest,
)
from turnstate.storage.backup.snapshot import Progress
from turnstate.storage.cold.objects import ObjectStore

RESTORING_ENDING: Final = ".restoring"
"""Of the folder beside the store in which a restore gathers the files."""

_PART_ENDING: Final = ".part"
"""Of a file that is being written; no file of RocksDB has it."""

_NAMED: Final = 5
"""Missing objects that an error names; the count has them all."""

_Result = TypeVar("_Result")


def restoring_folder(store: Path) -> Path:
    """Return where a restore of a store gathers its files.

    Example:
        >>> str(restoring_folder(Path("data/store")))
        'data/store.restoring'
    """
    return store.with_name(store.name + RESTORING_ENDING)


def refuse_half_restored(store: Path) -> None:
    """Refuse to open a store whose restore did not come to its end.

    Without this an empty store would be made, which looks like a restored one.

    Raises:
        UnavailableError: a restore was broken off (code `half_restored`).
    """
    folder = restoring_folder(store)
    if folder.exists() and not store.exists():
        raise UnavailableError(
            f"a restore into {store.parent} was broken off: {folder.name} is there",
            field="data",
            hint="run the same turnstate restore again, or remove that folder",
            code="half_restored",
        )


def refuse_taken(store: Path) -> None:
    """Refuse to restore over something.

    Raises:
        ConflictError: the folder is there and not empty (code `not_empty`).
    """
    if store.exists() and (not store.is_dir() or any(store.iterdir())):
        raise ConflictError(
            f"{store} holds a store already",
            field="data",
            hint="restore into another --data, or move that one away",
            code="not_empty",
        )


def fetch_backup(
    objects: ObjectStore,
    store: Path,
    number: int | None = None,
    progress: Progress | None = None,
) -> tuple[Manifest, Path]:
    """Fetch and verify all files of a backup; nobody sees them as a store yet.

    What a broken restore has fetched already is checked and kept.

    Args:
        objects: Where the backups are.
        store: The folder that the store will have; not there, or empty.
        number: Of the backup; the latest one where None.
        progress: Is told how many files are done, and of how many.

    Returns:
        The manifest, and the folder in which the files lie: check them there,
        then call `put_in_place`.

    Raises:
        ConflictError: the folder is not empty.
        NotFoundError: there is no such backup.
        CorruptDataError: objects are missing or damaged; they are named.
        UnavailableError: the disk or the place of the objects refuses.
    """
    refuse_taken(store)
    manifest = read_manifest(objects, number)
    folder = restoring_folder(store)
    _told(folder, _prepared, folder, {file.name for file in manifest.files})
    faults: list[str] = []
    for done, file in enumerate(manifest.files, start=1):
        fault = _told(folder, _fetched, objects, folder, file)
        if fault is not None:
            faults.append(fault)
        if progress is not None:
            progress(done, len(manifest.files))
    if faults:
        more = f" and {len(faults) - _NAMED} more" if len(faults) > _NAMED else ""
        raise CorruptDataError(
            f"backup {manifest.number} is not whole: "
            f"{', '.join(faults[:_NAMED])}{more}",
            field="number",
            hint="restore an earlier one: --number N",
        )
    _told(folder, _sync, folder)
    return manifest, folder


def put_in_place(folder: Path, store: Path) -> None:
    """Make the gathered files the store, in one step.

    Raises:
        ConflictError: the folder of the store is not empty.
        UnavailableError: the disk refuses.
    """
    refuse_taken(store)

    def rename() -> None:
        if store.exists():
            store.rmdir()
        folder.rename(store)
        _sync(store.parent)

    _told(folder, rename)


def drop_half_restored(store: Path) -> None:
    """Remove what a broken restore has left, if one has.

    Raises:
        UnavailableError: the disk refuses.
    """
    folder = restoring_folder(store)
    if folder.exists():
        _told(folder, shutil.rmtree, folder)


def _prepared(folder: Path, wanted: set[str]) -> None:
    """Make the folder, or take out of it what is not of this backup."""
    folder.mkdir(parents=True, exist_ok=True)
    _sync(folder.parent)
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name not in wanted:
            path.unlink()


def _fetched(objects: ObjectStore, folder: Path, file: BackupFile) -> str | None:
    """Fetch a file unless it is there; return what is wrong with its object."""
    path = folder / file.name
    if path.exists() and _holds(path.read_bytes(), file):
        return None
    try:
        data = objects.read(file.object_name)
    except NotFoundError:
        return f"{file.object_name} ({file.name}) is missing"
    if not _holds(data, file):
        return f"{file.object_name} ({file.name}) is damaged"
    part = folder / (file.name + _PART_ENDING)
    with part.open("wb") as target:
        target.write(data)
        target.flush()
        os.fsync(target.fileno())
    part.replace(path)
    return None


def _holds(data: bytes, file: BackupFile) -> bool:
    return len(data) == file.bytes and content_hash(data) == file.hash


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _told(folder: Path, call: Callable[..., _Result], *arguments: Any) -> _Result:
    """Do it, and say the disk's failures in our words."""
    try:
        return call(*arguments)
    except OSError as error:
        raise UnavailableError(
            f"{folder} cannot be written: {error.strerror or error}",
            field="data",
            hint="make room there, or name another --data; then restore again",
        ) from error
