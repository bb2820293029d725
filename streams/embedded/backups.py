"""Back up an embedded store while it is in use; only what is new is uploaded."""

import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, cast

from turnstate.replay.recording import RecordedErasure, RecordedItem, write_recording
from turnstate.schemas.errors import InvalidInputError, UnavailableError
from turnstate.storage.backup.checkpoint import make_checkpoint, remove_checkpoint
from turnstate.storage.backup.keys import copy_keys, without_keys
from turnstate.storage.backup.manifest import StoreFacts, manifests, numbers
from turnstate.storage.backup.packs import (
    ColdSource,
    cold_source,
    packs_pointed_to,
)
from turnstate.storage.backup.savepoints import (
    Savepoint,
    SavepointWriter,
    delete_savepoint,
    savepoints,
)
from turnstate.storage.backup.snapshot import check_backup, collect, take_backup
from turnstate.storage.warm.tables import HEADS, KEYS
from turnstate.streams.documents import Document
from turnstate.streams.embedded.backup_lease import held_place
from turnstate.streams.embedded.backup_places import remember_place
from turnstate.streams.embedded.exchange import export_items
from turnstate.streams.places import Access, opened_place

if TYPE_CHECKING:
    from turnstate.streams.embedded.engine import Engine
    from turnstate.streams.embedded.store import EmbeddedStore

Told = Callable[[int, int | None], None]
"""Is told how much is done, and of how much where that is known."""


class _Made(NamedTuple):
    folder: Path
    facts: StoreFacts
    now_ms: int


def backup(
    store: "EmbeddedStore",
    where: str,
    *,
    access: Access | None = None,
    keep: int | None = None,
    progress: Told | None = None,
) -> Document:
    """Make a backup of the whole store as of one moment, while it is in use.

    The owner's thread links the files, which takes as long as a flush; they
    are uploaded outside of it.

    Args:
        store: The store.
        where: A folder, or `s3://BUCKET/PREFIX`; absolute.
        access: How S3 is reached.
        keep: Backups that stay, older ones are removed; None = all stay.
        progress: Is told how many files are done.

    Returns:
        `number`, `position` in the log, `files`, `packs` of the cold tier,
        `bytes`, of those `files_new` and `bytes_new`, `removed` backups,
        `seconds`.

    Raises:
        InvalidInputError: `keep` is below 1.
        ConflictError: the place holds another store's backups.
        UnavailableError: the place cannot be reached, or another backup is
            under way.
        ChecksumError: what was read back is not what was sent.
    """
    if keep is not None and keep < 1:
        raise InvalidInputError(
            f"{keep} backups cannot be kept", field="keep", hint="at least 1"
        )
    start = time.monotonic()
    remember_place(store, where)
    engine = store.engine
    with (
        _alone(engine),
        opened_place(where, access or {}) as objects,
        held_place(objects, _holder(engine), store.clock) as still_held,
    ):

        def told(done: int, total: int) -> None:
            still_held()
            if progress is not None:
                progress(done, total)

        made: _Made = engine.call(partial(_made, store)).result()
        try:
            cold = _cold(store, made.folder)
            if store.warm.row_cipher is not None:
                without_keys(made.folder)
                copy_keys(objects, store.warm.stored_rows(KEYS))
            taken = take_backup(
                objects,
                made.folder,
                made.facts,
                made.now_ms,
                cold=cold,
                progress=told,
            )
        finally:
            remove_checkpoint(made.folder)
        removed = None
        if keep is not None:
            still_held()
            removed = collect(objects, keep=keep, now_ms=store.clock.now_ms())
    return {
        "where": where,
        "number": taken.manifest.number,
        "position": made.facts.position,
        "files": len(taken.manifest.files),
        "packs": len(taken.manifest.packs),
        "bytes": taken.manifest.bytes,
        "files_new": taken.files_new,
        "bytes_new": taken.bytes_new,
        "removed": removed.backups if removed else [],
        "seconds": round(time.monotonic() - start, 3),
    }


def savepoint(
    store: "EmbeddedStore",
    where: str,
    name: str,
    *,
    access: Access | None = None,
    progress: Told | None = None,
) -> Document:
    """Export every stored operation under a name that only a person deletes.

    Each session is as of one moment; sessions are not of the same one.

    Args:
        store: The store.
        where: A folder, or `s3://BUCKET/PREFIX`; absolute.
        name: Of the savepoint.
        access: How S3 is reached.
        progress: Is told how many operations are written.

    Raises:
        InvalidInputError: it is no name of a savepoint.
        ConflictError: there is one of that name.
        UnavailableError: the place cannot be reached.
    """
    start = time.monotonic()
    remember_place(store, where)
    counts: Counter[str] = Counter()
    with opened_place(where, access or {}) as objects:
        writer = SavepointWriter(objects, name)
        facts = facts_of(store)
        now_ms = store.clock.now_ms()
        items = _counted(export_items(store), counts, progress)
        write_recording(cast("BinaryIO", writer), items)
        card = writer.commit(facts, now_ms, counts["operations"])
    return savepoint_document(card) | {
        "where": where,
        "erasures": counts["erasures"],
        "seconds": round(time.monotonic() - start, 3),
    }


def listing(where: str, access: Access) -> Document:
    """Return the backups and savepoints at a place; no store is needed.

    Raises:
        CorruptDataError: a manifest or card is damaged.
        UnavailableError: the place cannot be reached.
    """
    with opened_place(where, access, may_make=False) as objects:
        made = list(manifests(objects, numbers(objects)))
        named = list(savepoints(objects))
    return {
        "where": where,
        "backups": [
            {
                "number": each.number,
                "time_ms": each.time_ms,
                "position": each.facts.position,
                "sessions": each.facts.sessions,
                "files": len(each.files),
                "packs": len(each.packs),
                "bytes": each.bytes,
            }
            for each in made
        ],
        "savepoints": [savepoint_document(each) for each in named],
    }


def verified(
    where: str,
    access: Access,
    *,
    number: int | None = None,
    progress: Told | None = None,
) -> Document:
    """Read a backup whole and say what of it is bad; no store is needed.

    Raises:
        NotFoundError: there is no such backup.
        CorruptDataError: its manifest is damaged.
    """
    with opened_place(where, access, may_make=False) as objects:
        manifest, faults = check_backup(objects, number, progress)
    return {
        "where": where,
        "number": manifest.number,
        "time_ms": manifest.time_ms,
        "files": len(manifest.files),
        "packs": len(manifest.packs),
        "bytes": manifest.bytes,
        "bad": faults,
    }


def forget_savepoint(where: str, name: str, access: Access) -> Document:
    """Delete a savepoint by its name; no store is needed.

    Raises:
        NotFoundError: there is none of that name.
    """
    with opened_place(where, access, may_make=False) as objects:
        deleted = delete_savepoint(objects, name)
    return {"where": where, "savepoint": name, "objects": deleted}


def savepoint_document(card: Savepoint) -> Document:
    """Return a row of the list of savepoints."""
    return {
        "savepoint": card.name,
        "time_ms": card.time_ms,
        "position": card.facts.position,
        "operations": card.operations,
        "bytes": card.bytes,
    }


def facts_of(store: "EmbeddedStore") -> StoreFacts:
    """Return what a store is; of one moment only in the owner's thread."""
    log = store.engine.log
    return StoreFacts(
        log.identity.hex(),
        store.settings.log_name,
        [name for _, name in log.names.names],
        log.end,
        store.warm.rows_about(HEADS),
    )


def _holder(engine: "Engine") -> str:
    return f"store {engine.log.identity.hex()} as {engine.log.names.current}"


def _made(store: "EmbeddedStore") -> _Made:
    """Make a checkpoint; in the owner's thread, so between two commits."""
    folder = make_checkpoint(store.warm)
    return _Made(folder, facts_of(store), store.clock.now_ms())


def _cold(store: "EmbeddedStore", checkpoint: Path) -> ColdSource | None:
    """Return the packs that a backup needs; asks nobody where nothing is cold."""
    if not store.warm.knows_cold:
        return None
    names = packs_pointed_to(checkpoint, store.settings.log_name)
    return cold_source(store.tiering.packs, names) if names else None


@contextmanager
def _alone(engine: "Engine") -> Generator[None]:
    """Let one backup of a store run at a time: there is one checkpoint folder."""
    if not engine.backing_up.acquire(blocking=False):
        raise UnavailableError(
            "a backup of this store is under way",
            hint="wait for it",
            code="backup_under_way",
        )
    try:
        yield
    finally:
        engine.backing_up.release()


def _counted(
    items: Iterable[RecordedItem], counts: "Counter[str]", progress: Told | None
) -> Iterator[RecordedItem]:
    for item in items:
        kind = "erasures" if isinstance(item, RecordedErasure) else "operations"
        counts[kind] += 1
        if progress is not None and counts[kind] % 4096 == 0:
            progress(counts["operations"], None)
        yield item
