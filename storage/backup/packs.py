"""Packs of the cold tier in a backup: which are needed, copied, and put back."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from turnstate.schemas.errors import (
    ChecksumError,
    ConflictError,
    CorruptDataError,
    NotFoundError,
)
from turnstate.storage.backup.content import content_hash
from turnstate.storage.backup.manifest import PackCopy
from turnstate.storage.cold.manifest import Change, Manifest, PackInfo
from turnstate.storage.cold.names import pack_time_ms
from turnstate.storage.cold.objects import ObjectStore
from turnstate.storage.cold.store import PackStore
from turnstate.storage.warm.cold_rows import decode_cold_head, is_cold_row
from turnstate.storage.warm.rocksdb import WarmStore
from turnstate.storage.warm.tables import HEADS


class ColdSource(NamedTuple):
    """The packs that a backup has to hold.

    Attributes:
        objects: Where they are.
        orders: Name of each needed pack → its order, 0 where nobody knows.
    """

    objects: ObjectStore
    orders: dict[str, int]

    def read(self, pack: str) -> bytes:
        """Return a pack whole.

        Raises:
            ConflictError: it was collected since the checkpoint was made.
        """
        try:
            return self.objects.read(pack)
        except NotFoundError as error:
            raise ConflictError(
                f"the pack {pack} went while it was backed up",
                field="where",
                hint="make the backup again, not while turnstate tiers gc runs",
                code="backup_beside",
            ) from error


def packs_pointed_to(checkpoint: Path, log_name: str) -> set[str]:
    """Return the names of the packs to which sessions of a checkpoint point.

    Reads every head: about a second for a million sessions.

    Raises:
        CorruptDataError: a row is damaged.
    """
    with closing(
        WarmStore(checkpoint, log_name=log_name, cache_bytes=1 << 20, read_only=True)
    ) as opened:
        return {
            decode_cold_head(row).pointer.pack
            for _, row in opened.stored_rows(HEADS)
            if is_cold_row(row)
        }


def cold_source(packs: PackStore, names: set[str]) -> ColdSource:
    """Return what a backup has to copy of a cold tier.

    Raises:
        UnavailableError: the cold tier is away.
    """
    known = packs.manifests.latest().packs
    return ColdSource(
        packs.objects,
        {name: known[name].order if name in known else 0 for name in sorted(names)},
    )


def put_back(
    source: ObjectStore, copies: Sequence[PackCopy], packs: PackStore
) -> Iterator[PackCopy]:
    """Put packs into a cold tier that lacks them; yield each that is there then.

    They come into the manifest of the tier last, in one commit, so that its
    collection leaves them alone. The caller holds the lease of the tier.

    Args:
        source: Where the backup is.
        copies: What the backup says of them.
        packs: The cold tier, with the fencing token of the caller.

    Raises:
        ChecksumError: a copy is damaged, or another object has its name.
        CorruptDataError: a copy is missing.
        FencedError: a job works on the cold tier.
    """
    for copy in copies:
        data = _copied(source, copy)
        packs.objects.create(copy.pack, data)
        if packs.objects.read(copy.pack) != data:
            raise ChecksumError(
                f"the cold tier has another object {copy.pack}",
                field="cold",
                hint="set `cold` to a place of its own for the restored store",
            )
        yield copy
    packs.commit(_with_restored({copy.pack: _info(packs, copy) for copy in copies}))


def _copied(source: ObjectStore, copy: PackCopy) -> bytes:
    try:
        data = source.read(copy.object_name)
    except NotFoundError:
        raise CorruptDataError(
            f"{copy.object_name} ({copy.pack}) is missing",
            hint="restore another backup: --number N",
        ) from None
    if len(data) != copy.bytes or content_hash(data) != copy.hash:
        raise ChecksumError(
            f"{copy.object_name} ({copy.pack}) is damaged",
            hint="restore another backup: --number N",
        )
    return data


def _info(packs: PackStore, copy: PackCopy) -> PackInfo:
    entries = packs.entries(copy.pack)
    image_bytes = sum(entry.length for entry in entries)
    order = max((entry.order for entry in entries), default=0)
    return PackInfo(
        copy.bytes,
        len(entries),
        image_bytes,
        image_bytes,
        pack_time_ms(copy.pack),
        copy.order or order,
    )


def _with_restored(restored: dict[str, PackInfo]) -> Change:
    """Return the change that takes packs in as they were, whatever their age."""

    def change(manifest: Manifest) -> Manifest:
        packs = dict(manifest.packs)
        order = max((info.order for info in restored.values()), default=0)
        order = max(order, manifest.order)
        for name, info in restored.items():
            if name not in packs:
                order += not info.order
                packs[name] = replace(info, order=info.order or order)
        return replace(manifest, packs=packs, order=order)

    return change
