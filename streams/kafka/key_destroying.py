"""Destroy the data keys of ended lives: rows, and what could open their old copies."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from turnstate.schemas.errors import UnavailableError
from turnstate.storage.encryption.key_set import HOT_SLOT, OpenedKeySet
from turnstate.storage.encryption.slotted_keys import slot_of
from turnstate.streams.kafka.partition import Partition
from turnstate.streams.kafka.partition_keys import Unlocked
from turnstate.streams.kafka.partition_moves import PartitionMoves
from turnstate.streams.kafka.unlocking import encrypt_redis
from turnstate.streams.kafka.worker_moves import WorkerMoves


def destroy_keys(
    partition: Partition, moves: WorkerMoves, lives: Mapping[bytes, int]
) -> int:
    """Destroy the data keys of lives of sessions; return how many there were.

    Their rows are replaced, in the store and in the changelog; and so is the key
    of their slot, by which older copies of these rows could be opened: records
    that Kafka has not compacted yet, files of backups, stores of workers that are
    down. What else the slot wraps is wrapped anew first; what lies in Redis counts
    no more, and is written anew as it is needed. A crash leaves the two
    keys of a slot beside each other; repeating it finishes. Called in a thread,
    not on the worker's loop.

    Args:
        partition: Of this worker.
        moves: Does things between two rounds.
        lives: session key → the last of its lives that ends.

    Raises:
        UnavailableError: the partition is away, or the place of the keys is (code
            `keys_away`).
    """
    unlocked = partition.unlocked
    if unlocked is None:
        return 0
    keys = unlocked.keys
    number = partition.number
    by_slot = moves.done(number, lambda each: _by_slot(each, unlocked, lives))
    if not by_slot:
        return 0
    slots = [*sorted(by_slot), HOT_SLOT]
    opened = _at_place(lambda: keys.replace(slots))
    moves.done(number, lambda each: _take(each, unlocked, opened))
    count = 0
    for slot, ended in by_slot.items():
        part = partial(_rewrap, unlocked=unlocked, slot=slot, ended=ended)
        gone = moves.done(number, part)
        count += len(gone)
    # All that goes on is durable under the new keys, and nobody else's is it.
    opened = _at_place(lambda: keys.destroy_replaced(slots))
    moves.done(number, lambda each: _take(each, unlocked, opened))
    return count


def _at_place(call: Callable[[], OpenedKeySet]) -> OpenedKeySet:
    """Change the object with the keys; where its place is away, say so.

    Raises:
        UnavailableError: it is (code `keys_away`): all else can be cleaned.
    """
    try:
        return call()
    except UnavailableError as error:
        if error.code == "not_fresh":
            raise
        raise UnavailableError(
            f"the place of the keys: {error}",
            field="encryption",
            hint="erase again once it answers",
            code="keys_away",
        ) from error


async def _by_slot(
    moves: PartitionMoves, unlocked: Unlocked, lives: Mapping[bytes, int]
) -> dict[int, dict[bytes, int]]:
    """Return the lives that have keys, by slot; and slots that a crash left halfway."""
    _check_same(moves, unlocked)
    found: dict[int, dict[bytes, int]] = {
        slot: {} for slot in unlocked.ring.keys.stored.replaced if slot != HOT_SLOT
    }
    for key, last in lives.items():
        if unlocked.ring.destroyed_rows({key: last}):
            found.setdefault(slot_of(key), {})[key] = last
    return found


async def _take(
    moves: PartitionMoves, unlocked: Unlocked, opened: OpenedKeySet
) -> None:
    _check_same(moves, unlocked)
    unlocked.ring.take(opened)
    encrypt_redis(moves.partition, opened)


async def _rewrap(
    moves: PartitionMoves,
    unlocked: Unlocked,
    slot: int,
    ended: Mapping[bytes, int],
) -> Sequence[bytes]:
    """Replace the rows of ended keys, and wrap anew the others of a slot."""
    _check_same(moves, unlocked)
    ring = unlocked.ring
    left = ring.destroyed_rows(ended)
    batch = moves.partition.batch()
    for key_id, row in left.items():
        batch.put_key(key_id, row)
    for key_id, row in ring.rewrapped_rows(slot):
        if key_id not in left:
            batch.put_key(key_id, row)
    if batch.key_records:
        await moves.written(batch, lambda: ring.forget(left))
    return list(left)


def _check_same(moves: PartitionMoves, unlocked: Unlocked) -> None:
    if moves.partition.unlocked is not unlocked:
        raise UnavailableError(
            f"partition {moves.partition.number} was taken over anew",
            field="partition",
            hint="ask again in a moment",
            code="not_fresh",
        )
