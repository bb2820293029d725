"""What opens encrypted values in Redis for a reader who has the master key."""

import asyncio
import time
from collections.abc import Sequence
from typing import Final

import structlog

from turnstate.schemas.errors import TurnstateError
from turnstate.storage.hot.redis_cipher import RedisCipher, key_id_of
from turnstate.storage.hot.redis_value import HeadValue
from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.partition_keys import ClusterKeys, cluster_keys

_log = structlog.get_logger(__name__)

AGAIN_S: Final = 5.0
"""How often the keys of a partition are looked at that lack the one of a value."""


class HotKeys:
    """Open what partitions' owners have encrypted in Redis; for one event loop.

    Args:
        keys: Where the partitions' keys are.
    """

    def __init__(self, keys: ClusterKeys) -> None:
        self._keys = keys
        self._known: dict[int, dict[bytes, RedisCipher]] = {}
        self._looked: dict[int, float] = {}

    async def opened(
        self, partition: int, session: bytes, value: HeadValue, frames: Sequence[bytes]
    ) -> tuple[HeadValue, list[bytes]] | None:
        """Return a session as it was; None where its key cannot be had: ask the owner.

        Raises:
            CorruptDataError: it was changed.
        """
        key_id = key_id_of(value)
        if key_id is None:
            return value, list(frames)
        cipher = self._known.get(partition, {}).get(key_id)
        if cipher is None and self._is_due(partition):
            try:
                found = await asyncio.to_thread(self._keys.of(partition).redis_ciphers)
            except TurnstateError as error:
                _log.warning("hot.no_key", partition=partition, why=str(error))
                return None
            self._known[partition] = {each.key_id: each for each in found}
            cipher = self._known[partition].get(key_id)
        return None if cipher is None else cipher.opened(session, value, frames)

    def close(self) -> None:
        """Hang up."""
        self._keys.close()

    def _is_due(self, partition: int) -> bool:
        now = time.monotonic()
        if now - self._looked.get(partition, -AGAIN_S) < AGAIN_S:
            return False
        self._looked[partition] = now
        return True


def hot_keys(cluster: ClusterSettings) -> HotKeys | None:
    """Return what opens values for a reader, None for one that has no key.

    It asks the owners then, as where there is no Redis.
    """
    try:
        keys = cluster_keys(cluster)
    except TurnstateError as error:
        _log.warning("hot.no_key", why=str(error))
        return None
    return None if keys is None else HotKeys(keys)
