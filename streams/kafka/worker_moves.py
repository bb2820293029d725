"""What a worker does for jobs that move sessions, asked from any thread."""

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from typing import Final, TypeVar

from turnstate.agents.tiering.facts import SessionFacts, facts_of_row
from turnstate.schemas.errors import TurnstateError, UnavailableError
from turnstate.storage.cold.pointer import Pointer
from turnstate.storage.moves.journal import WARM, Plan
from turnstate.storage.session_image import EncodedImage, SessionImage, encode_image
from turnstate.storage.session_row import SessionRow
from turnstate.storage.warm.cold_rows import ColdHead
from turnstate.streams.documents import Document
from turnstate.streams.kafka.checkpoint import Checkpointer
from turnstate.streams.kafka.cold_place import ClusterPacks
from turnstate.streams.kafka.cold_tier import Fetched
from turnstate.streams.kafka.fresh import FreshPartitions
from turnstate.streams.kafka.partition_moves import PartitionMoves
from turnstate.streams.kafka.tier_queries import (
    ArchiveQuery,
    FactQuery,
    FactsQuery,
    FillsQuery,
    FlipQuery,
    KeysQuery,
    PlansQuery,
    PointersQuery,
    RepointQuery,
    UnfinishedQuery,
)
from turnstate.streams.kafka.worker_archive import WorkerArchive
from turnstate.streams.tiers.reads import Reads

WAIT_S: Final = 10.0
"""How long a move waits for the round under way."""

PAGE_ITEMS: Final = 1000
IMAGES_BYTES: Final = 8 << 20
"""Of one answer, about; the rest is asked for again."""

IMAGES_AT_ONCE: Final = 16
"""Read between two rounds: some milliseconds."""

_T = TypeVar("_T")


class WorkerMoves:
    """Do between two rounds what jobs ask for, and say what sessions are like.

    Args:
        parts: The worker's partitions.
        checkpointer: Makes its rounds.
        packs: Of the cold tier; knows the newest job.
        loop: Of the worker.
        now_ms: Tells epoch milliseconds.

    Attributes:
        archiving: Archives what expires; None = jobs cannot have it erased.
    """

    def __init__(
        self,
        parts: FreshPartitions,
        checkpointer: Checkpointer,
        packs: ClusterPacks,
        loop: asyncio.AbstractEventLoop,
        now_ms: Callable[[], int],
    ) -> None:
        self._parts = parts
        self._checkpointer = checkpointer
        self._packs = packs
        self._loop = loop
        self._now_ms = now_ms
        self._moves: dict[int, PartitionMoves] = {}
        self._reads = Reads()
        self.archiving: WorkerArchive | None = None

    # -- what sessions are like -----------------------------------------------------

    def facts(self, query: FactsQuery) -> Document:
        """Return what the policy is told of a page of sessions."""
        found: list[SessionFacts] = []
        following: bytes | None = None
        with self._parts.fresh(query.partition) as fresh:
            for key in fresh.reader.warm.keys(b"", query.after):
                row = fresh.reader.row(key)
                if row is not None:
                    found.append(self._facts(key, row))
                if len(found) >= PAGE_ITEMS or fresh.is_over():
                    following = key
                    break
        return {"facts": found, "next": following}

    def facts_of(self, query: FactQuery) -> SessionFacts | None:
        """Return what the policy is told of one session, None where it is unknown."""
        with self._parts.fresh(query.partition) as fresh:
            row = fresh.reader.row(query.key)
            return None if row is None else self._facts(query.key, row)

    def fills(self, query: FillsQuery) -> dict[str, list[int]]:
        """Return (used, capacity) in bytes of what a tier may fill: the disk of warm.

        Hot lets go by itself: Redis by its own policy, memory by its budget.
        """
        with self._parts.fresh(query.partition) as fresh:
            usage = shutil.disk_usage(fresh.partition.store.path)
        return {WARM: [usage.used, usage.total]}

    def _facts(self, key: bytes, row: SessionRow) -> SessionFacts:
        return facts_of_row(key, row, self._reads.accesses(key))

    def pointers(self, query: PointersQuery) -> Document:
        """Return where a page of cold sessions lies."""
        if query.token is not None:
            self._packs.admit(query.token)
        found: list[tuple[bytes, Pointer]] = []
        following: bytes | None = None
        with self._parts.fresh(query.partition) as fresh:
            store = fresh.reader.warm
            for key in store.keys(b"", query.after):
                (located,) = store.located([key])
                if isinstance(located, ColdHead):
                    found.append((key, located.pointer))
                if len(found) >= PAGE_ITEMS or fresh.is_over():
                    following = key
                    break
        return {"pointers": found, "next": following}

    def archive(self, query: ArchiveQuery) -> Document:
        """Archive what is about to be erased; see `WorkerArchive.archive`.

        Raises:
            UnavailableError: the archive is away, or this worker has none.
        """
        if self.archiving is None:
            raise UnavailableError("nothing expires here", code="no_archive")
        return self.archiving.archive(query)

    def unfinished(self, query: UnfinishedQuery) -> list[Plan]:
        """Return the moves that were planned before a moment and are not done."""
        return self.done(
            query.partition, lambda moves: moves.unfinished(query.before_ms)
        )

    # -- moves ----------------------------------------------------------------------

    def plan(self, query: PlansQuery) -> Document:
        """Journal moves; the sessions that go to the cold tier are sealed first."""
        self.done(query.partition, lambda moves: moves.plan(query.plans))
        return {"planned": len(query.plans)}

    def images(
        self, query: PlansQuery
    ) -> list[tuple[bytes, EncodedImage | None]]:
        """Return (id of the move, image), None for what stays; perhaps not all."""
        answer: list[tuple[bytes, EncodedImage | None]] = []
        size = begin = 0
        while begin < len(query.plans) and size < IMAGES_BYTES:
            part = query.plans[begin : begin + IMAGES_AT_ONCE]
            found = self.done(query.partition, _images_of(part))
            for plan, image in zip(part, found, strict=True):
                encoded = None if image is None else encode_image(image)
                answer.append((plan.id, encoded))
                size += 0 if encoded is None else len(encoded.data)
            begin += len(part)
        return answer

    def flip(self, query: FlipQuery) -> list[bytes]:
        """Point to verified copies; return the ids of the moves that were made.

        Raises:
            FencedError: another job has taken over.
        """
        self._packs.admit(query.token)
        return self.done(query.partition, lambda moves: moves.flip(query.copied))

    def release(self, query: PlansQuery) -> list[bytes]:
        """Let the hot tier forget sessions; return the ids of the moves made."""
        return self.done(query.partition, lambda moves: moves.release(query.plans))

    def fill(self, query: PlansQuery) -> list[bytes]:
        """Take sessions up into the hot tier; return the ids of the moves made."""
        return self.done(query.partition, lambda moves: moves.fill(query.plans))

    def warm(self, query: KeysQuery) -> list[bytes]:
        """Bring cold sessions back; return the keys that came.

        Raises:
            UnavailableError: one of them cannot be read.
        """
        partition = self._parts.partition(query.partition)
        fetched, failed = partition.cold.fetch(query.keys)
        came = self.done(query.partition, _warmed(fetched)) if fetched else []
        for error in failed.values():
            raise error
        return came

    def repoint(self, query: RepointQuery) -> list[bytes]:
        """Point to the copies that a compaction made; return the keys that do now.

        Raises:
            FencedError: another job has taken over.
        """
        self._packs.admit(query.token)
        return self.done(query.partition, lambda moves: moves.repoint(query.moved))

    def give_up(self, query: PlansQuery) -> Document:
        """Strike moves out of the journal that are not going to be made."""
        self.done(query.partition, lambda moves: moves.give_up(query.plans))
        return {"given_up": len(query.plans)}

    # -- readers ----------------------------------------------------------------------

    def was_read_cold(self, number: int, key: bytes) -> None:
        """Note that a reader asked for a cold session; the second one wakes it."""
        _, rises = self._reads.note(key, self._now_ms(), is_cold=True)
        if not rises:
            return
        asyncio.run_coroutine_threadsafe(self._rise(number, key), self._loop)

    async def _rise(self, number: int, key: bytes) -> None:
        try:
            partition = self._parts.partition(number)
            fetched, _ = await asyncio.to_thread(partition.cold.fetch, [key])
            if fetched:
                await self._between(number, _warmed(fetched))
        except TurnstateError:
            return  # its reader has what was asked for; the next one tries again
        finally:
            self._reads.risen(key)

    # -- inside -----------------------------------------------------------------------

    def done(
        self, number: int, call: Callable[[PartitionMoves], Awaitable[_T]]
    ) -> _T:
        """Do something between two rounds, from another thread; return what it says.

        Args:
            number: Of the partition.
            call: Does it, in the worker's loop.

        Raises:
            UnavailableError: the partition is not this worker's, or the round
                under way takes too long (code `busy`).
        """
        future: Future[_T] = asyncio.run_coroutine_threadsafe(
            self._between(number, call), self._loop
        )
        try:
            return future.result(WAIT_S)
        except TimeoutError:
            future.cancel()
            raise UnavailableError(
                "the worker is in the middle of a long round",
                hint="ask again in a moment",
                code="busy",
            ) from None

    async def _between(
        self, number: int, call: Callable[[PartitionMoves], Awaitable[_T]]
    ) -> _T:
        async def checked() -> _T:
            partition = self._parts.partition(number)
            self._parts.check_fresh(partition)
            with partition.condemning():
                return await call(self._moves_of(number))

        result: _T = await self._checkpointer.between(checked)
        return result

    def _moves_of(self, number: int) -> PartitionMoves:
        partition = self._parts.partition(number)
        known = self._moves.get(number)
        if known is None or known.partition is not partition:
            known = PartitionMoves(partition, self._checkpointer.rounds, self._now_ms)
            self._moves[number] = known
        return known


def _images_of(
    plans: Sequence[Plan],
) -> Callable[[PartitionMoves], Awaitable[list[SessionImage | None]]]:
    return lambda moves: moves.images(plans)


def _warmed(
    fetched: Sequence[Fetched],
) -> Callable[[PartitionMoves], Awaitable[list[bytes]]]:
    return lambda moves: moves.warm(fetched)
