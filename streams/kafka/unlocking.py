"""Unlock restored partitions: read the keys that their rows were encrypted with."""

import asyncio
from collections.abc import Mapping

from turnstate.schemas.errors import UnavailableError
from turnstate.storage.encryption.key_file import FIELD
from turnstate.storage.encryption.key_set import OpenedKeySet
from turnstate.storage.encryption.row_cipher import RowCipher
from turnstate.storage.encryption.slotted_keys import SlottedKeyRing
from turnstate.storage.hot.redis_cipher import RedisCipher
from turnstate.storage.warm.changelog import KEY_SET_KEY
from turnstate.streams.kafka.partition import Partition
from turnstate.streams.kafka.partition_keys import ClusterKeys, PartitionKeys, Unlocked
from turnstate.streams.kafka.rounds import Rounds


async def unlock(
    partitions: Mapping[int, Partition], keys: ClusterKeys | None, rounds: Rounds
) -> bool:
    """Encrypt what restored partitions write from now on, and open what they have.

    After they were claimed and restored up to the claim, before anything is
    folded: until then no row has to be opened. Those that a later owner has
    claimed stay locked.

    Args:
        partitions: By number.
        keys: What wraps their data keys; None = nothing is encrypted.
        rounds: Writes what no turn brought.

    Returns:
        Whether they are; not where another worker may own one by now.

    Raises:
        UnavailableError: the master key or the keys are other ones than a
            partition was encrypted with, or away; or one is encrypted, and no
            master key was given (code `encrypted`).
    """
    if keys is None:
        for partition in partitions.values():
            _refuse_locked(partition)
        return True
    done = await asyncio.gather(
        *(
            _unlocked(partition, keys.of(number), rounds)
            for number, partition in partitions.items()
            if partition.applied.epoch == partition.epoch
        )
    )
    return all(done)


async def _unlocked(partition: Partition, keys: PartitionKeys, rounds: Rounds) -> bool:
    held = partition.unlocked
    if (
        held is not None
        and partition.store.row_cipher is not None
        and held.epoch.number + 1 == partition.epoch.number
    ):
        # Nobody else was its owner meanwhile, so nobody changed its keys; and a
        # rebalance of others does not depend on the place where they lie.
        partition.unlocked = held._replace(epoch=partition.epoch)
        return True
    expected = partition.store.meta(KEY_SET_KEY)
    opened = await asyncio.to_thread(keys.take_over, expected)
    use_keys(partition, keys, opened)
    if expected is not None:
        return True
    # Durable before the first row that is encrypted: without the set none opens.
    batch = partition.batch()
    batch.stage_key_set(opened.stored.id)
    return await rounds.write(partition, batch)


def use_keys(partition: Partition, keys: PartitionKeys, opened: OpenedKeySet) -> None:
    """Have a partition encrypt what it writes from now on, and open what it has."""
    ring = SlottedKeyRing(partition.store, opened)
    partition.store.row_cipher = RowCipher(ring, keys.wrapper)
    partition.unlocked = Unlocked(keys, ring, partition.epoch)
    encrypt_redis(partition, opened)


def encrypt_redis(partition: Partition, keys: OpenedKeySet) -> None:
    """Have what goes to Redis encrypted by the newest key of a set for it."""
    if partition.redis is not None:
        partition.redis.encrypts(RedisCipher(*keys.hot_keys()[-1]))


def _refuse_locked(partition: Partition) -> None:
    if partition.store.meta(KEY_SET_KEY) is not None:
        raise UnavailableError(
            f"partition {partition.number} is encrypted, and the setting {FIELD} is"
            " empty",
            field=FIELD,
            hint="set TURNSTATE_ENCRYPTION=keyfile:PATH to where its key is",
            code="encrypted",
        )
