"""Put a backup of a partition into the data folder of a worker that is down."""

import asyncio
import time

from turnstate.schemas.errors import ConflictError, CorruptDataError, UnavailableError
from turnstate.storage.backup.manifest import Manifest, read_manifest
from turnstate.storage.backup.restore import (
    drop_half_restored,
    fetch_backup,
    put_in_place,
    refuse_taken,
)
from turnstate.streams.documents import Document
from turnstate.streams.embedded.lock import OwnerLock
from turnstate.streams.kafka.backup_place import opened_backups, partition_place
from turnstate.streams.kafka.backup_rules import why_not
from turnstate.streams.kafka.changelog_topic import changelog_now
from turnstate.streams.kafka.cluster_backups import Told, checked_numbers
from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.partition_files import facts_in
from turnstate.streams.kafka.seeds import STORE
from turnstate.streams.kafka.topics import Topics
from turnstate.streams.settings import Settings


def restore_partition(
    settings: Settings,
    cluster: ClusterSettings,
    instance: str,
    partition: int,
    *,
    now_ms: int,
    where: str = "",
    number: int | None = None,
    progress: Told | None = None,
) -> Document:
    """Make a backup the store of a partition; the worker reads the tail as it starts.

    It goes on under its own name: the changelog has all that came later, so
    nothing that was acknowledged is missing from what the worker starts with.

    Args:
        settings: Whose data folder holds the worker's folder.
        cluster: Where the brokers are, and the place.
        instance: The worker, which is down.
        partition: Which one.
        now_ms: The present.
        where: Another place.
        number: Of the backup; the latest where None.
        progress: Is told how many files are done.

    Raises:
        ConflictError: there is a store (code `not_empty`), or the worker would
            throw this backup away (code `not_usable`).
        NotFoundError: there is no such backup.
        CorruptDataError: objects are missing or damaged; they are named.
        UnavailableError: the worker runs, or a place or the brokers are away.
    """
    start = time.monotonic()
    checked_numbers(cluster, [partition])
    folder = settings.data / instance
    store = folder / str(partition) / STORE
    changelog = asyncio.run(
        changelog_now(cluster, Topics.of(cluster).changelog, partition)
    )
    with opened_backups(cluster, partition, where) as objects:
        chosen = read_manifest(objects, number)
        why = why_not(
            chosen, partition, changelog, log_name=settings.log_name, now_ms=now_ms
        )
        if why is not None:
            raise ConflictError(
                f"backup {chosen.number} of partition {partition} will not do: {why}",
                field="number",
                hint="start the worker without it: it reads the whole changelog",
                code="not_usable",
            )
        folder.mkdir(parents=True, exist_ok=True)
        lock = _locked(settings, instance)
        try:
            refuse_taken(store)
            manifest, files = fetch_backup(objects, store, chosen.number, progress)
            found = facts_in(
                files,
                log_name=settings.log_name,
                number=partition,
                partitions=cluster.partitions,
            )
            if found.partition != manifest.partition:
                drop_half_restored(store)
                raise CorruptDataError(
                    f"the files of backup {manifest.number} are not what its"
                    " manifest says",
                    field="number",
                    hint="restore an earlier one: --number N",
                )
            put_in_place(files, store)
        finally:
            lock.release()
    return _document(
        partition_place(cluster, partition, where), manifest, changelog.end, start
    )


def _document(where: str, manifest: Manifest, end: int, start: float) -> Document:
    facts = manifest.partition
    assert facts is not None, "the rules have looked at it"
    return {
        "where": where,
        "partition": facts.number,
        "number": manifest.number,
        "position": manifest.facts.position,
        "offset": facts.offset,
        "behind": max(end - 1 - facts.offset, 0),
        "time_ms": manifest.time_ms,
        "files": len(manifest.files),
        "bytes": manifest.bytes,
        "seconds": round(time.monotonic() - start, 3),
    }


def _locked(settings: Settings, instance: str) -> OwnerLock:
    try:
        return OwnerLock(settings.data / instance)
    except UnavailableError as error:
        if error.code != "owned":
            raise
        raise UnavailableError(
            f"the worker {instance!r} runs",
            field="instance",
            hint="end it first; where its disk is empty it takes the latest backup"
            " by itself",
            code="owned",
        ) from error
