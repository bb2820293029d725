"""Readers of one partition: of what lies in its store, and of one cold session."""

from collections.abc import Iterator, Sequence
from typing import cast

from turnstate.schemas.dialogue.turn_index import IdEntry
from turnstate.schemas.errors import UnavailableError
from turnstate.schemas.ids import turn_id_hash
from turnstate.storage.encryption.cipher import is_encrypted
from turnstate.storage.hot.memory import MemoryTier
from turnstate.storage.session_row import SessionRow
from turnstate.storage.stored_head import StoredHead, decode_entry
from turnstate.storage.warm.below import Below
from turnstate.storage.warm.cold_rows import ColdHead
from turnstate.storage.warm.opened_image import OpenedImage
from turnstate.storage.warm.rocksdb import WarmStore
from turnstate.streams.expiry import NEVER, Expiry
from turnstate.streams.kafka.partition import Partition
from turnstate.streams.kafka.read_gate import GateShutError
from turnstate.streams.reading import StoreReader


class PartitionReader(StoreReader):
    """Answer for the sessions of a partition, and say of each which tier it is in.

    Where there is a Redis it is the hot tier; heads in memory are a cache then.

    Args:
        partition: Whose they are.
        expiry: Says what is served no more.
    """

    def __init__(self, partition: Partition, expiry: Expiry = NEVER) -> None:
        super().__init__(partition.store, partition, partition.graph)
        self._partition = partition
        self._expiry = expiry

    def has_expired(self, arrived_ms: int) -> bool:
        """Say whether a session whose last turn came then is served no more."""
        return self._expiry.is_over(arrived_ms)

    def row(self, key: bytes) -> SessionRow | None:
        """Return the facts of one session, None where it is not known."""
        found = super().row(key)
        redis = self._partition.redis
        if found is None or redis is None or found.tier == "cold":
            return found
        return found._replace(tier="hot" if redis.has(key) else "warm")

    def _tier(self, key: bytes) -> str:
        found = super()._tier(key)
        if self._partition.redis is not None and found == "hot":
            return "warm"  # hot itself was asked before
        return found


class ColdReader(StoreReader):
    """Answer for one cold session out of its image, and out of no store.

    The cold tier may be slow, or away: nobody who waits for it may keep a
    partition's store from being closed.

    Args:
        partition: Whose it is; its keys open what is encrypted.
        cold: Its pointer.
        below: Where images are.
        expiry: Says what is served no more.
    """

    def __init__(
        self,
        partition: Partition,
        cold: ColdHead,
        below: Below,
        expiry: Expiry = NEVER,
    ) -> None:
        store = _ColdStore(partition, cold, below)
        super().__init__(cast("WarmStore", store), store, partition.graph)
        self._expiry = expiry

    def has_expired(self, arrived_ms: int) -> bool:
        """Say whether a session whose last turn came then is served no more."""
        return self._expiry.is_over(arrived_ms)


class _ColdStore:
    """What a reader asks of a store, of one session alone."""

    def __init__(self, partition: Partition, cold: ColdHead, below: Below) -> None:
        self.hot = MemoryTier(1)
        self._partition = partition
        self._cold = cold
        self._log_name = partition.log_name
        self._image = below.image(cold)

    def head(self, key: bytes) -> StoredHead | None:
        """Return its head."""
        return self._opened(key).stored

    def located(self, keys: Sequence[bytes]) -> list[ColdHead]:
        """Return its pointer."""
        del keys
        return [self._cold]

    def frames(
        self, key: bytes, incarnation: int, after_version: int
    ) -> Iterator[bytes]:
        """Yield segments, then frames, that lead above a version."""
        del incarnation
        yield from self._opened(key).frames(after_version)

    def base(self, key: bytes, *_: object) -> bytes | None:
        """Return the state that its unsealed frames start from."""
        return self._opened(key).base

    def entry(self, key: bytes, incarnation: int, turn_id: str) -> IdEntry | None:
        """Return one entry of its turn index."""
        del key, incarnation
        row = self._image.index().get(b"i" + turn_id_hash(turn_id))
        return None if row is None else decode_entry(row, self._log_name)

    def asides(self, key: bytes, incarnation: int) -> list[int]:
        """Return the versions of its edits and redactions."""
        del key, incarnation
        found = [suffix[1:] for suffix in self._image.index() if suffix[:1] == b"e"]
        return [int.from_bytes(version, "big") for version in found]

    def _opened(self, key: bytes) -> OpenedImage:
        return OpenedImage(self._image, key, self._cold.incarnation, self._open)

    def _open(self, table: str, at: bytes, row: bytes) -> bytes:
        """Return a row as it was before it was encrypted; its key is in the store.

        Raises:
            UnavailableError: the store is being closed.
        """
        if not is_encrypted(row):
            return row
        try:
            with self._partition.gate.reading():
                return self._partition.store.opened(table, at, row)
        except GateShutError:
            raise UnavailableError(
                f"partition {self._partition.number} is being handed over",
                field="partition",
                hint="ask again in a moment",
                code="not_fresh",
            ) from None
