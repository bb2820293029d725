"""Erase from what was copied out of a store: packs, backups, savepoints."""

import os
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, cast

from turnstate.replay.recording import (
    RecordedItem,
    RecordedOperation,
    read_recording,
    write_recording,
)
from turnstate.schemas.errors import NotFoundError, TurnstateError
from turnstate.storage.backup.manifest import numbers
from turnstate.storage.backup.savepoints import (
    Savepoint,
    SavepointWriter,
    delete_savepoint,
    open_savepoint,
    savepoints,
)
from turnstate.storage.backup.snapshot import collect
from turnstate.storage.cold.objects import ObjectStore
from turnstate.streams.embedded.backup_places import places
from turnstate.streams.embedded.backups import backup
from turnstate.streams.embedded.erase_cold import scrub_packs
from turnstate.streams.embedded.recordings import item_without, items_without
from turnstate.streams.embedded.scrub import Gone
from turnstate.streams.places import access_of, opened_place

if TYPE_CHECKING:
    from turnstate.streams.embedded.store import EmbeddedStore


class Copies(NamedTuple):
    """What was found in copies.

    Attributes:
        scanned: kind → how many things were looked at.
        found: Things that have to go; after an erase those still there.
        not_covered: Places that could not be looked into, and why.
    """

    scanned: dict[str, int]
    found: int
    not_covered: list[str]


def scrub_copies(
    store: "EmbeddedStore", gone: Gone, keys: Sequence[bytes], *, dry_run: bool = False
) -> Copies:
    """Erase from packs, and from every place the store was backed up to.

    Packs and savepoints are rewritten. Of backups a new one is made, and the
    older ones go, with the files that only they had. A place that cannot be
    reached is named: erase again once it can.

    Args:
        store: The store, from which everything is erased already.
        gone: What has to go.
        keys: The sessions that were erased or rewritten.
        dry_run: Only count.
    """
    seen, held, still = scrub_packs(store, keys, dry_run=dry_run)
    scanned = {"packs": seen, "backups": 0, "savepoints": 0}
    found = held if dry_run else still
    unreached: list[str] = []
    for where in places(store):
        try:
            there = _at_place(store, where, gone, dry_run=dry_run)
        except TurnstateError as error:
            # A folder that is not there may be a disk that is not mounted.
            unreached.append(f"{where}: {error}")
            continue
        for kind, count in there.scanned.items():
            scanned[kind] += count
        found += there.found
    return Copies(scanned, found, unreached)


def _at_place(
    store: "EmbeddedStore", where: str, gone: Gone, *, dry_run: bool
) -> Copies:
    access = access_of(os.environ)
    with opened_place(where, access, may_make=False) as objects:
        cards = list(savepoints(objects))
        older = len(numbers(objects))
        touched = [card for card in cards if _holds(objects, card, gone)]
        found = older + len(touched) if dry_run else 0
        if not dry_run:
            for card in touched:
                _rewrite(objects, card, gone)
            if older:
                backup(store, where, access=access, keep=1)
                now_ms = store.clock.now_ms()
                collect(objects, keep=1, now_ms=now_ms, unused_age_ms=0)
            found += sum(_holds(objects, card, gone) for card in savepoints(objects))
            found += max(len(numbers(objects)) - 1, 0)
    return Copies({"backups": older, "savepoints": len(cards)}, found, [])


def _holds(objects: ObjectStore, card: Savepoint, gone: Gone) -> bool:
    with open_savepoint(objects, card) as file:
        return any(
            item_without(item, gone) is not item for item in read_recording(file)
        )


def _rewrite(objects: ObjectStore, card: Savepoint, gone: Gone) -> None:
    """Write a savepoint anew under its name.

    Beside itself first, so that a crash leaves one or the other whole.
    """
    named = blake2b(card.name.encode(), digest_size=16).hexdigest()
    beside = f"erasing.{named}"
    _drop(objects, [beside])
    _copy(objects, card, beside, gone)
    delete_savepoint(objects, card.name)
    made = next(each for each in savepoints(objects) if each.name == beside)
    _copy(objects, made, card.name, gone)
    _drop(objects, [beside])


def _copy(objects: ObjectStore, card: Savepoint, name: str, gone: Gone) -> None:
    writer = SavepointWriter(objects, name)
    operations = 0

    def kept() -> Iterator[RecordedItem]:
        nonlocal operations
        for item in items_without(read_recording(file), gone):
            operations += isinstance(item, RecordedOperation)
            yield item

    with open_savepoint(objects, card) as file:
        write_recording(cast("BinaryIO", writer), kept())
    writer.commit(card.facts, card.time_ms, operations)


def _drop(objects: ObjectStore, names: Iterable[str]) -> None:
    for name in names:
        try:
            delete_savepoint(objects, name)
        except NotFoundError:
            continue
