"""Moves of one partition's sessions between tiers, made between two rounds."""

from collections.abc import Callable, Sequence

from turnstate.schemas.errors import UnavailableError
from turnstate.storage.cold.pointer import Pointer
from turnstate.storage.moves.journal import COLD, Plan
from turnstate.storage.moves.owner import Copied, Moves
from turnstate.storage.session_image import SessionImage
from turnstate.storage.stored_head import StoredHead
from turnstate.storage.warm.batch import Batch
from turnstate.storage.warm.changelog import ChangelogBatch
from turnstate.storage.warm.changelog_records import Epoch
from turnstate.streams.kafka.cold_tier import Fetched
from turnstate.streams.kafka.partition import Partition
from turnstate.streams.kafka.rounds import Rounds


class PartitionMoves:
    """Carry out moves as the owner of a partition, each through the changelog.

    Every method is for the worker's loop, between two rounds: nothing else
    changes the store meanwhile. What is said to be made is in the changelog and
    in the store.

    Args:
        partition: Whose sessions they are.
        rounds: Writes what no turn brought.
        now_ms: Tells epoch milliseconds.
    """

    def __init__(
        self, partition: Partition, rounds: Rounds, now_ms: Callable[[], int]
    ) -> None:
        self.partition = partition
        self._rounds = rounds
        self._now_ms = now_ms
        self._made: list[Batch] = []
        self._handed: dict[bytes, Epoch] = {}

    @property
    def _moves(self) -> Moves:
        partition = self.partition
        return Moves(
            partition.store,
            partition.hot,
            write=self._made.append,
            batch=partition.batch,
        )

    async def plan(self, plans: Sequence[Plan]) -> None:
        """Seal what goes to the cold tier, and journal the moves."""
        partition = self.partition
        cooling = [plan.key for plan in plans if plan.target == COLD]
        seals = partition.sealer.planned(keys=cooling) if cooling else []
        if seals:
            batch = partition.staged_seals(seals)
            await self.written(batch, lambda: partition.sealed(seals))
        self._moves.plan(plans)
        self._write_here()

    async def images(self, plans: Sequence[Plan]) -> list[SessionImage | None]:
        """Return what goes to the cold tier, None for what stays after all."""
        found = self._moves.images(plans, self._now_ms())
        for plan, image in zip(plans, found, strict=True):
            if image is not None:
                self._handed[plan.id] = self.partition.epoch
        return found

    async def flip(self, copied: Sequence[Copied]) -> list[bytes]:
        """Point to verified copies and let the rows go; return the ids made.

        A copy counts only where this owner handed it out, in this epoch.
        """
        handed = [
            each
            for each in copied
            if self._handed.pop(each.plan.id, None) == self.partition.epoch
        ]
        made = self._moves.flip(handed, self._now_ms())
        await self.written(self._batch())
        rest = [each.plan for each in copied if each not in handed]
        if rest:
            await self.give_up(rest)
        redis = self.partition.redis
        held = [plan.key for plan in made if redis is not None and redis.has(plan.key)]
        if redis is not None and held:
            await redis.drop(held)
        return [plan.id for plan in made]

    async def warm(self, fetched: Sequence[Fetched]) -> list[bytes]:
        """Bring cold sessions back; return the keys that came."""
        batch, came = self.partition.cold.stage(fetched)
        if came:
            await self.written(batch)
        return came

    async def repoint(
        self, moved: Sequence[tuple[bytes, Pointer, Pointer]]
    ) -> list[bytes]:
        """Point to the copies that a compaction made; return the keys that do."""
        made = self._moves.repoint({key: (old, new) for key, old, new in moved})
        if made:
            await self.written(self._batch())
        return made

    async def release(self, plans: Sequence[Plan]) -> list[bytes]:
        """Let the hot tier forget sessions; return the ids of the moves made."""
        redis = self.partition.redis
        if redis is None:
            return [plan.id for plan in self._moves.release(plans, self._now_ms())]
        made = [plan for plan in plans if redis.has(plan.key) and self._stands(plan)]
        await redis.drop([plan.key for plan in made])
        return [plan.id for plan in made]

    async def fill(self, plans: Sequence[Plan]) -> list[bytes]:
        """Take sessions up into the hot tier; return the ids of the moves made."""
        redis = self.partition.redis
        if redis is None:
            return [plan.id for plan in self._moves.fill(plans)]
        made = [plan for plan in plans if self._stands(plan)]
        for plan in made:
            redis.want(plan.key)
        await redis.fill(self.partition.store)
        return [plan.id for plan in made]

    async def unfinished(self, before_ms: int) -> list[Plan]:
        """Return the moves that were planned before a moment and are not done."""
        return self._moves.unfinished(before_ms)

    async def give_up(self, plans: Sequence[Plan]) -> None:
        """Strike moves out of the journal that are not going to be made."""
        self._moves.give_up(plans)
        self._write_here()

    # -- inside -----------------------------------------------------------------

    def _stands(self, plan: Plan) -> bool:
        (found,) = self.partition.store.located([plan.key])
        return isinstance(found, StoredHead) and (
            (found.head.incarnation, found.head.version)
            == (plan.incarnation, plan.version)
        )

    def _batch(self) -> ChangelogBatch:
        """Return the batch that a move has made."""
        (batch,) = self._made
        self._made.clear()
        assert isinstance(batch, ChangelogBatch), "it was made here"
        return batch

    def _write_here(self) -> None:
        """Write a batch that says something of this store alone."""
        batch = self._batch()
        assert not batch.records, "the journal is no part of the changelog"
        self.partition.write(batch, None)

    async def written(
        self, batch: ChangelogBatch, then: Callable[[], object] = lambda: None
    ) -> None:
        """Make a batch durable, its changelog first.

        Raises:
            UnavailableError: another worker may own the partition by now.
        """
        if not await self._rounds.write(self.partition, batch, then):
            raise UnavailableError(
                f"partition {self.partition.number} may be another worker's by now",
                field="partition",
                hint="ask again in a moment",
                code="not_fresh",
            )
