"""One partition of a worker: its store, its head cache and the agent that folds it."""

import shutil
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import structlog

from turnstate.agents.ports import Clock, Record
from turnstate.agents.session.agent import Folded, SessionAgent
from turnstate.schemas.dialogue.phases import DialogueGraph
from turnstate.schemas.errors import (
    CorruptDataError,
    InvalidInputError,
    UnknownVersionError,
)
from turnstate.storage.backup.checkpoint import checkpoint_folder, remove_checkpoint
from turnstate.storage.backup.restore import put_in_place
from turnstate.storage.hot.memory import MemoryTier
from turnstate.storage.seal import Sealed
from turnstate.storage.stored_head import StoredHead
from turnstate.storage.warm.below import Below
from turnstate.storage.warm.changelog import ChangelogBatch, folded_position
from turnstate.storage.warm.changelog_reader import ChangelogReader
from turnstate.storage.warm.changelog_records import Epoch, RowRecord, owner_record
from turnstate.storage.warm.failures import closed_on_failure
from turnstate.storage.warm.rocksdb import WarmStore
from turnstate.storage.warm.tables import META
from turnstate.streams.embedded.sealer import Sealer
from turnstate.streams.kafka.applied import CHANGELOG_KEY, Applied, decode_applied
from turnstate.streams.kafka.cold_tier import ColdPartition
from turnstate.streams.kafka.partitioning import partition_of
from turnstate.streams.kafka.read_gate import ReadGate

if TYPE_CHECKING:
    from turnstate.streams.kafka.hot_tier import HotPartition
    from turnstate.streams.kafka.partition_keys import Unlocked

_log = structlog.get_logger(__name__)

class PartitionSizes(NamedTuple):
    """What one partition may take.

    Attributes:
        hot_bytes: Of its head cache.
        write_buffer_bytes: Of its memtables.
        seal_after_s: A session idle for so long is sealed.
    """

    hot_bytes: int
    write_buffer_bytes: int
    seal_after_s: int


class Partition:
    """Hold the state of one partition while it is assigned to this worker.

    Args:
        folder: Of its store; made where it is not there.
        number: Which partition.
        partitions: How many there are.
        changelog_id: The topic id of the changelog.
        sizes: What it may take.
        log_name: The name under which the log stamps.
        graph: The dialogue graph.
        clock: For arrival times.
        cache: RocksDB's block cache, shared by the partitions of a worker.
        log_id: The topic id of turns; what was folded of another topic of that
            name says nothing about this one. None = of any.
        below: Where cold sessions are read; None = there are none.

    Attributes:
        redis: Its sessions in the hot tier, where there is one.
        below: Where cold sessions are read; None = there are none.
        unlocked: Its keys; None where nothing is encrypted.

    Raises:
        UnavailableError: another process has the store open.
    """

    def __init__(
        self,
        folder: Path,
        number: int,
        *,
        partitions: int,
        changelog_id: bytes,
        sizes: PartitionSizes,
        log_name: str,
        graph: DialogueGraph,
        clock: Clock,
        cache: Any = None,
        log_id: bytes | None = None,
        below: Below | None = None,
    ) -> None:
        self.number = number
        self.partitions = partitions
        self.graph = graph
        self.log_name = log_name
        self.clock = clock
        self.epoch = Epoch(0, 0)
        self.is_fresh = False
        self.log_begin = 0
        self.gate = ReadGate()
        self.redis: HotPartition | None = None
        self.unlocked: Unlocked | None = None
        self.below = below
        self._folder = folder
        self._changelog_id = changelog_id
        self._log_id = log_id
        self._sizes = sizes
        self._cache = cache
        self._open()

    def _open(self) -> None:
        """Open the store; one that is damaged is made anew from the changelog."""
        self._folder.parent.mkdir(parents=True, exist_ok=True)
        # One that a crash left would keep bytes that are erased here.
        remove_checkpoint(checkpoint_folder(self._folder))
        try:
            if self._condemned.exists():
                raise CorruptDataError(self._condemned.read_text(encoding="utf-8"))
            self._open_store()
        except UnknownVersionError:
            raise
        except CorruptDataError as error:
            _log.error(
                "partition.damaged",
                partition=self.number,
                why=str(error),
                hint="it is wiped and rebuilt from its changelog",
            )
            self._wipe_folder()
            self._condemned.unlink(missing_ok=True)
            self._open_store()
        self.hot = MemoryTier(self._sizes.hot_bytes, frames_kept=0)
        self.cold = ColdPartition(
            self.number, self.store, self.batch, self.clock.now_ms
        )
        self.agent = SessionAgent(
            store=self.store,
            hot=self.hot,
            graph=self.graph,
            log_name=self.log_name,
            clock=self.clock,
            dictionaries=False,
            check=self._check,
            colder=self.cold,
        )
        self.sealer = Sealer(
            store=self.store,
            hot=self.hot,
            tails=self.agent.tails,
            graph=self.graph,
            clock=self.clock,
            idle_ms=1000 * self._sizes.seal_after_s,
            head=self.head_here,
        )

    def _open_store(self) -> None:
        """Open the store and read what it says of itself.

        Raises:
            CorruptDataError: it is damaged; it is not open then.
        """
        self.store = WarmStore(
            self._folder,
            log_name=self.log_name,
            write_buffer_bytes=self._sizes.write_buffer_bytes,
            cache=self._cache,
        )
        self.store.below = self.below
        with closed_on_failure(self.store):
            self.applied = self._read_applied()
            self.folded = folded_position(self.store, self._log_id)

    def _read_applied(self) -> Applied:
        row = self.store.meta(CHANGELOG_KEY)
        if row is None:
            return Applied(self._changelog_id, -1, Epoch(0, 0))
        return decode_applied(row)

    @property
    def _condemned(self) -> Path:
        return self._folder.with_name(f"{self._folder.name}.damaged")

    @contextmanager
    def condemning(self) -> Generator[None]:
        """Have the store made anew at the next start if it proves damaged.

        Damage may show only when a block is read. Going on is no help, nor is
        starting again with the same files; the worker ends, and comes back
        without them.

        Raises:
            CorruptDataError: what it met.
        """
        try:
            yield
        except UnknownVersionError:
            raise
        except CorruptDataError as error:
            self._condemned.write_text(str(error), encoding="utf-8")
            raise

    def wipe(self) -> None:
        """Throw the store away: its changelog is not the one it came from."""
        self.close()
        self._wipe_folder()
        self._open()

    def adopt(self, files: Path) -> None:
        """Take files that were fetched in the place of the store, as its own.

        Raises:
            UnavailableError: the disk refuses; the store is empty then.
        """
        self.close()
        self._wipe_folder()
        try:
            put_in_place(files, self._folder)
        finally:
            self._open()

    def _wipe_folder(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def close(self) -> None:
        """Let the store go, once its readers have left."""
        self.is_fresh = False
        self.gate.shut()
        self.store.close()

    # -- restoring ------------------------------------------------------------

    @property
    def is_of_another_changelog(self) -> bool:
        """Say whether the topic was made anew since the store was written."""
        return self.applied.topic_id != self._changelog_id

    def apply(self, rows: Sequence[tuple[int, bytes | None]]) -> int:
        """Apply (offset, value) records of the changelog in one batch.

        Returns:
            How many were of an owner that had been replaced.

        Raises:
            CorruptDataError: one cannot be read.
        """
        reader = ChangelogReader(self.store, self.applied.epoch)
        batch = self.store.batch()
        for _, value in rows:
            reader.stage(batch, value)
        applied = Applied(self._changelog_id, rows[-1][0], reader.epoch)
        batch.put(META, CHANGELOG_KEY, msgspec.msgpack.encode(applied))
        self.store.write(batch, sync=False)
        self.applied = applied
        return reader.stale

    def claim(self, generation: int) -> RowRecord:
        """Begin a new epoch; return the record that makes it known."""
        self.epoch = Epoch(self.applied.epoch.number + 1, generation)
        if self.redis is not None:
            self.redis.claimed(self.epoch)
        return owner_record(self.epoch)

    def restored(self, *, changed: bool) -> bool:
        """Take over, unless a later owner's claim was read; say which.

        All that was written before this one's own claim has been applied.
        """
        if changed:
            # Heads in memory may be older than what was read.
            for key in list(self.hot.keys()):
                self.hot.drop(key)
        self.note_folded()
        if self.applied.epoch != self.epoch:
            return False
        self.is_fresh = True
        self.gate.open()
        return True

    def note_folded(self) -> None:
        """Take what the store says now for the position that is folded."""
        self.folded = folded_position(self.store, self._log_id)

    # -- folding ----------------------------------------------------------------

    def head(self, key: bytes) -> StoredHead | None:
        """Return the newest durable head of a session, wherever it lies; may wait."""
        held = self.hot.peek(key)
        return held if held is not None else self.store.heads([key])[0]

    def head_here(self, key: bytes) -> StoredHead | None:
        """Return a head that is in memory or in the store; None where it is cold."""
        held = self.hot.peek(key)
        found = held if held is not None else self.store.located([key])[0]
        return found if isinstance(found, StoredHead) else None

    @property
    def next_offset(self) -> int:
        """Return the offset of the log that is to be folded next."""
        folded = 0 if self.folded is None else self.folded[0] + 1
        return max(folded, self.log_begin)

    def is_folded(self, offset: int) -> bool:
        """Say whether the log is folded, and durable, up to an offset."""
        return self.folded is not None and self.folded[0] >= offset

    def batch(self) -> ChangelogBatch:
        """Return an empty batch, with its changelog."""
        return ChangelogBatch(self.store, self.epoch)

    def staged(self, folded: Folded) -> ChangelogBatch:
        """Return the batch, and the changelog records, of what was folded."""
        batch = self.batch()
        for change in folded.changes:
            batch.stage(change)
        return batch

    def write(self, batch: ChangelogBatch, changelog_offset: int | None) -> None:
        """Write a batch whose changelog records are delivered.

        Not synced: what a power cut takes is read again from the changelog.
        """
        if changelog_offset is not None:
            self.applied = Applied(
                self._changelog_id, changelog_offset, self.epoch
            )
            batch.put_local(META, CHANGELOG_KEY, msgspec.msgpack.encode(self.applied))
        self.store.write(batch, sync=False)

    def committed(self, folded: Folded, offset: int, index: int) -> None:
        """Show a written batch to readers, then the position that it reflects."""
        self.agent.committed(folded)
        self.folded = (offset, index)
        self.sealer.note(folded.changes)

    # -- sealing ----------------------------------------------------------------

    def due_seals(self, *, urgent: bool = False) -> list[Sealed]:
        """Return seals of sessions that are due, a few at a time."""
        return self.sealer.planned(urgent=urgent)

    def staged_seals(self, seals: Sequence[Sealed]) -> ChangelogBatch:
        """Return the batch, and the changelog records, of some seals."""
        batch = self.batch()
        for sealed in seals:
            batch.stage_seal(sealed)
        return batch

    def sealed(self, seals: Sequence[Sealed]) -> None:
        """Show seals that are written."""
        for each in seals:
            self.sealer.done(each)

    # -- the hot tier ---------------------------------------------------------

    def void_hot(self) -> None:
        """Let hot forget what it was told last: it did not become durable here."""
        if self.redis is not None:
            self.redis.void()

    def turn_hot_off(self, why: object) -> None:
        """Do without the hot tier until the next claim."""
        if self.redis is not None:
            self.redis.turn_off(why)

    # -- inside ------------------------------------------------------------------

    def _check(self, record: Record, key: bytes) -> None:
        """Refuse a turn that lies where its session does not belong.

        Raises:
            InvalidInputError: the record's key is another session's, or the
                partition is.
        """
        if record.key is not None and record.key != key:
            raise InvalidInputError(
                "the record's key is not that of the turn's tenant and session",
                field="key",
                hint="key = 2-byte length of tenant, tenant, session; see producers",
                code="wrong_key",
            )
        if self.hot.peek(key) is not None:
            return
        right = partition_of(key, self.partitions)
        if right != self.number:
            raise InvalidInputError(
                f"the session belongs to partition {right}, not {self.number}",
                field="partition",
                hint="let Kafka's default partitioner choose, by the key",
                code="wrong_partition",
            )
