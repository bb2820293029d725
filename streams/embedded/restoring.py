"""Bring a backup or a savepoint back into a data folder that holds no store."""

import secrets
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, Final

from turnstate.replay.recording import RecordedItem, read_recording
from turnstate.schemas.errors import ConflictError, CorruptDataError, InvalidInputError
from turnstate.storage.backup.keys import (
    KeyRows,
    check_keys,
    copied_keys,
    put_keys,
)
from turnstate.storage.backup.manifest import Manifest, StoreFacts, read_manifest
from turnstate.storage.backup.packs import put_back
from turnstate.storage.backup.restore import (
    drop_half_restored,
    fetch_backup,
    put_in_place,
    refuse_taken,
    restoring_folder,
)
from turnstate.storage.backup.savepoints import (
    Savepoint,
    open_savepoint,
    read_savepoint,
)
from turnstate.storage.cold.lease import Leases
from turnstate.storage.cold.objects import ObjectStore
from turnstate.storage.encryption.key_file import KeyWrapper, wrapper_of
from turnstate.storage.log_names import (
    LOG_NAMES_KEY,
    LogNames,
    encode_log_names,
    restored_name,
)
from turnstate.storage.warm.rocksdb import WarmStore
from turnstate.storage.warm.tables import META
from turnstate.streams.clock import SystemClock
from turnstate.streams.documents import Document
from turnstate.streams.embedded.exchange import import_items
from turnstate.streams.embedded.lock import OwnerLock
from turnstate.streams.embedded.log import EmbeddedLog
from turnstate.streams.embedded.store import STORE_FOLDER, EmbeddedStore
from turnstate.streams.places import Access, opened_place
from turnstate.streams.settings import Settings
from turnstate.streams.tiers.opening import open_packs

Told = Callable[[int, int | None], None]
"""Is told how much is done, and of how much where that is known."""

_SUFFIX_BYTES: Final = 6
"""Of chance in the name of a restored log: no two restores get the same."""


def restore(
    settings: Settings,
    where: str,
    *,
    access: Access,
    number: int | None = None,
    continues: bool = False,
    progress: Told | None = None,
) -> Document:
    """Restore a whole store from a backup.

    It goes on under a new log name: the original may have given dots to turns
    that the backup does not have, and a dot must never mean two things.

    Args:
        settings: Where to: `data` must hold no store.
        where: A folder, or `s3://BUCKET/PREFIX`.
        access: How S3 is reached.
        number: Of the backup; the latest where None.
        continues: Go on under the same name. Only where it is known that
            nothing was acknowledged after the backup.
        progress: Is told how many files are done.

    Raises:
        ConflictError: there is a store (code `not_empty`).
        NotFoundError: there is no such backup.
        CorruptDataError: objects are missing or damaged; they are named.
        UnavailableError: the place or the disk refuses, or someone has the
            data folder open.
    """
    start = time.monotonic()
    store = settings.data / STORE_FOLDER
    with _opened(settings, where, access) as objects:
        refuse_taken(store)
        chosen = read_manifest(objects, number)
        _check_kind(chosen)
        _check_log_name(settings, chosen.facts)
        wrapper, keys = wrapper_of(settings.encryption), copied_keys(objects)
        check_keys(keys, wrapper)
        manifest, folder = fetch_backup(objects, store, chosen.number, progress)
        _put_keys(folder, settings, keys)
        names = _checked(folder, settings, manifest.facts, wrapper)
        if not continues:
            names = names.renamed(manifest.facts.position, _new_name(settings))
            _write_names(folder, settings, names)
        _put_back_packs(objects, manifest, settings)
        put_in_place(folder, store)
    return {
        "where": where,
        "number": manifest.number,
        "position": manifest.facts.position,
        "time_ms": manifest.time_ms,
        "files": len(manifest.files),
        "packs": len(manifest.packs),
        "bytes": manifest.bytes,
        "stamps_as": names.current,
        "seconds": round(time.monotonic() - start, 3),
    }


def restore_savepoint(
    settings: Settings,
    where: str,
    name: str,
    *,
    access: Access,
    continues: bool = False,
    progress: Told | None = None,
) -> Document:
    """Make a store of a savepoint: fold its operations, stamps and all.

    Made beside the place of the store and put there when it is whole, under a
    new log name as `restore` does.

    Raises:
        ConflictError: there is a store (code `not_empty`).
        NotFoundError: there is no savepoint of that name.
        CorruptDataError: a part of it is missing or damaged.
    """
    start = time.monotonic()
    store = settings.data / STORE_FOLDER
    with _opened(settings, where, access) as objects:
        refuse_taken(store)
        card = read_savepoint(objects, name)
        _check_log_name(settings, card.facts)
        drop_half_restored(store)
        # A data folder of its own, so that nobody takes it for the store.
        scratch = replace(settings, data=restoring_folder(store), fsync="never")
        made = scratch.data / STORE_FOLDER
        made.mkdir(parents=True)
        names = LogNames.always(
            settings.log_name if continues else _new_name(settings)
        )
        _write_names(made, settings, names)
        with EmbeddedStore(scratch) as target, open_savepoint(objects, card) as file:
            items = _watched(file, card.operations, progress)
            counts = import_items(target, items)
            target.warm.flush()
        _check_counts(card, counts)
        put_in_place(made, store)
        drop_half_restored(store)
    return counts | {
        "where": where,
        "savepoint": name,
        "time_ms": card.time_ms,
        "stamps_as": names.current,
        "seconds": round(time.monotonic() - start, 3),
    }


@contextmanager
def _opened(settings: Settings, where: str, access: Access) -> Generator[ObjectStore]:
    """Open the place while nobody else opens a store in the data folder."""
    with opened_place(where, access, may_make=False) as objects:
        lock = OwnerLock(settings.data)
        try:
            yield objects
        finally:
            lock.release()


def _check_kind(manifest: Manifest) -> None:
    """Refuse the backup of a partition: without its changelog it is no store.

    Raises:
        ConflictError: it is one (code `of_a_partition`).
    """
    if manifest.partition is not None:
        raise ConflictError(
            f"it is a backup of partition {manifest.partition.number} of a cluster",
            field="where",
            hint="turnstate restore --profile cluster",
            code="of_a_partition",
        )


def _check_log_name(settings: Settings, facts: StoreFacts) -> None:
    """Refuse another log name: rows of the turn index leave the right one out."""
    if settings.log_name != facts.log_name:
        raise InvalidInputError(
            f"the backup is of a store whose log_name is {facts.log_name!r},"
            f" here it is {settings.log_name!r}",
            field="log_name",
            hint=f"set TURNSTATE_LOG_NAME={facts.log_name}",
        )


def _put_back_packs(
    objects: ObjectStore, manifest: Manifest, settings: Settings
) -> None:
    """Put the packs of cold sessions into the cold tier that the settings name."""
    if not manifest.packs:
        return
    clock = SystemClock()
    packs = open_packs(settings, clock)
    leases = Leases(packs.objects, secrets.token_bytes)
    lease = leases.take(f"restore-{secrets.token_hex(4)}", clock.now_ms())
    packs.epoch = lease.token
    for _ in put_back(objects, manifest.packs, packs):
        lease = leases.renew(lease, clock.now_ms())
    leases.release(lease, clock.now_ms())


def _new_name(settings: Settings) -> str:
    return restored_name(settings.log_name, secrets.token_hex(_SUFFIX_BYTES))


def _put_keys(folder: Path, settings: Settings, keys: KeyRows) -> None:
    """Put the keys, which lie beside the files of backups, where they were."""
    if keys:
        with closing(WarmStore(folder, log_name=settings.log_name)) as opened:
            put_keys(opened, keys)


def _checked(
    folder: Path,
    settings: Settings,
    facts: StoreFacts,
    wrapper: KeyWrapper | None = None,
) -> LogNames:
    """Open the fetched files read-only and see that they are what was backed up.

    Raises:
        CorruptDataError: they are another store, or end elsewhere.
    """
    with closing(
        WarmStore(folder, log_name=settings.log_name, read_only=True, wrapper=wrapper)
    ) as opened:
        log = EmbeddedLog(opened)
        log.check_end()
        found = (log.identity.hex(), log.end)
        if found != (facts.store, facts.position):
            raise CorruptDataError(
                f"the files are of log {found[0]} up to offset {found[1]}, the"
                f" manifest says {facts.store} up to {facts.position}",
                field="number",
                hint="restore an earlier one: --number N",
            )
        return log.names


def _write_names(folder: Path, settings: Settings, names: LogNames) -> None:
    with closing(WarmStore(folder, log_name=settings.log_name)) as opened:
        batch = opened.batch()
        batch.put(META, LOG_NAMES_KEY, encode_log_names(names))
        opened.write(batch, sync=True)
        opened.flush()


def _watched(
    file: BinaryIO, total: int, progress: Told | None
) -> Iterator[RecordedItem]:
    for done, item in enumerate(read_recording(file), start=1):
        if progress is not None and done % 4096 == 0:
            progress(done, total)
        yield item


def _check_counts(card: Savepoint, counts: Document) -> None:
    """See that every operation of a savepoint was folded.

    Raises:
        CorruptDataError: some were refused.
    """
    if counts["operations"] != card.operations or counts["refused"]:
        raise CorruptDataError(
            f"of {card.operations} operations {counts['operations']} came and"
            f" {counts['refused']} were refused",
            field="savepoint",
        )
