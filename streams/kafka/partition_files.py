"""The files of a partition's store: linked between rounds, read for what they are."""

from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from turnstate.schemas.errors import CorruptDataError
from turnstate.storage.backup.checkpoint import make_checkpoint
from turnstate.storage.backup.manifest import PartitionFacts, StoreFacts
from turnstate.storage.warm.changelog import folded_position
from turnstate.storage.warm.rocksdb import WarmStore
from turnstate.storage.warm.tables import HEADS
from turnstate.streams.kafka.applied import CHANGELOG_KEY, Applied, decode_applied
from turnstate.streams.kafka.partition import Partition

_INFO_FILES: Final = ("LOCK", "LOG", "LOG.old.")
"""What RocksDB leaves where a folder was opened: nothing of the store."""

_CACHE_BYTES: Final = 1 << 20


class Facts(NamedTuple):
    """What the files of a partition's store say of themselves."""

    store: StoreFacts
    partition: PartitionFacts


def store_identity(changelog: bytes, number: int) -> str:
    """Return what tells one partition's backups from those of any other store.

    Example:
        >>> store_identity(b"ab", 3)
        '6162/3'
    """
    return f"{changelog.hex()}/{number}"


def link_files(partition: Partition) -> Path:
    """Link the files of a store that is open; return the folder.

    Called while nothing is folded, in a thread. Whatever is written beside it
    all the same comes as a whole batch, with its offset, or not at all.

    Raises:
        GateShutError: the store is being closed.
        UnavailableError: the files cannot be linked.
    """
    with partition.gate.reading():
        return make_checkpoint(partition.store)


def facts_in(folder: Path, *, log_name: str, number: int, partitions: int) -> Facts:
    """Return what the files of a store say, without a change to them.

    Args:
        folder: Where they are; nobody has it open.
        log_name: Rows of the turn index leave it out.
        number: Of the partition.
        partitions: How many there are.

    Raises:
        CorruptDataError: they cannot be read, or are those of no partition.
    """
    with closing(
        WarmStore(folder, log_name=log_name, cache_bytes=_CACHE_BYTES, read_only=True)
    ) as opened:
        row = opened.meta(CHANGELOG_KEY)
        if row is None:
            raise CorruptDataError(f"{folder} is not the store of a partition")
        applied: Applied = decode_applied(row)
        folded = folded_position(opened)
        sessions = opened.rows_about(HEADS)
    for path in folder.iterdir():
        if path.name.startswith(_INFO_FILES):
            path.unlink()
    return Facts(
        StoreFacts(
            store_identity(applied.topic_id, number),
            log_name,
            [log_name],
            0 if folded is None else folded[0] + 1,
            sessions,
        ),
        PartitionFacts(
            number,
            partitions,
            applied.topic_id.hex(),
            applied.offset,
            (applied.epoch.number, applied.epoch.generation),
        ),
    )
