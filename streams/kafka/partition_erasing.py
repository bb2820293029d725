"""What the owner of a partition writes for an erase, between two rounds."""

from collections.abc import Mapping, Sequence

from turnstate.schemas.errors import UnavailableError
from turnstate.storage.session_image import SessionImage
from turnstate.storage.warm.changelog import is_needed
from turnstate.storage.warm.changelog_records import RowRecord
from turnstate.storage.warm.erase_marks import PURGED_KEY, Mark, encode_mark
from turnstate.storage.warm.tables import HEADS, META
from turnstate.streams.kafka.partition_moves import PartitionMoves


async def note(moves: PartitionMoves, marks: Sequence[tuple[bytes, Mark]]) -> None:
    """Make durable how far the erase of some sessions has come."""
    batch = moves.partition.batch()
    for key, mark in marks:
        batch.stage_erasing(key, encode_mark(mark))
    await moves.written(batch)


async def swap(moves: PartitionMoves, row: bytes, image: SessionImage) -> bool:
    """Put a session that was written anew in its own place.

    Args:
        moves: Of the partition.
        row: The row of the head that it was made from.
        image: All its new rows.

    Returns:
        Whether it was; not where something was said meanwhile.
    """
    partition, key = moves.partition, image.key
    if partition.store.stored(HEADS, key) != row:
        return False
    batch = partition.batch()
    batch.stage_rewritten(image)

    def shown() -> None:
        partition.hot.drop(key)
        partition.agent.tails.forget(key)

    await moves.written(batch, shown)
    return True


async def bury(moves: PartitionMoves, keys: Sequence[bytes]) -> int:
    """Send a tombstone for each record of the changelog that brings no row any more.

    Returns:
        How many were buried.
    """
    partition = moves.partition
    batch = partition.batch()
    batch.tombstones += [
        RowRecord(key, None) for key in keys if not is_needed(partition.store, key)
    ]
    if batch.tombstones:
        await moves.written(batch)
    return len(batch.tombstones)


async def purged(moves: PartitionMoves, rows: Mapping[bytes, bytes]) -> None:
    """Note the marks for which the files of this store were rewritten."""
    partition = moves.partition
    batch = partition.batch()
    for key, row in rows.items():
        batch.put_local(META, PURGED_KEY + key, row)
    partition.write(batch, None)


async def clear_hot(
    moves: PartitionMoves, lives: Mapping[bytes, int], dropped: Sequence[bytes]
) -> int:
    """End lives in Redis, forget other sessions; return how many are there still.

    Raises:
        UnavailableError: Redis is away.
    """
    redis = moves.partition.redis
    if redis is None:
        return 0
    try:
        return await redis.clear(lives, dropped)
    except UnavailableError as error:
        if error.code == "busy":
            raise
        raise UnavailableError(
            f"Redis: {error}", field="redis", code="hot_away"
        ) from error
