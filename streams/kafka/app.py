"""The Faust application: agents bound to topics, over a table, made by a factory."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, cast

import faust
import structlog
from faust.serializers.schemas import Schema
from faust.types import TP
from rocksdict import Cache

from turnstate.agents.ports import Clock
from turnstate.agents.registry import SESSION
from turnstate.schemas.dialogue.phases import DialogueGraph
from turnstate.schemas.errors import UnavailableError
from turnstate.storage.cold.deadline import WAIT_S
from turnstate.streams.expiry import Expiry
from turnstate.streams.kafka.checkpoint import Checkpointer
from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.faust_options import DRAIN_S, faust_options
from turnstate.streams.kafka.membership import MembershipLease
from turnstate.streams.kafka.metrics import WorkerMetrics
from turnstate.streams.kafka.partition import Partition, PartitionSizes
from turnstate.streams.kafka.partition_keys import ClusterKeys
from turnstate.streams.kafka.restore import RestoreProgress, restore
from turnstate.streams.kafka.rounds import CONFIRM_S, Rounds
from turnstate.streams.kafka.seeds import STORE, Seeds, drop_gathered
from turnstate.streams.kafka.topics import Topics
from turnstate.streams.kafka.transport import BatchProducer, Chunk, ChunkConsumer
from turnstate.streams.kafka.unlocking import unlock
from turnstate.streams.kafka.worker_tiers import WorkerTiers

_log = structlog.get_logger(__name__)

TABLE: Final = "state"
"""Of Faust; its changelog is `<group>-state-changelog`."""

NOWHERE: Final = "turnstate://127.0.0.1:0"
"""The address of a worker that answers no queries."""

WRITE_BUFFER_BYTES_MIN: Final = 4 << 20
"""Memtables of a partition, however many a worker has."""

_LOST_HINT: Final = "TURNSTATE_LOST_TURNS=accept goes on without them"


class ChunkSchema(Schema[Any, Any]):
    """Hand a chunk on as it is: the fold decodes, and refuses by name."""

    def loads_key(self, app: Any, message: Any, **_: Any) -> Any:
        """Return nothing: each record has a key of its own."""

    def loads_value(self, app: Any, message: Any, **_: Any) -> Any:
        """Return the chunk."""
        return message.value


class WorkerApp(faust.App):
    """A Faust application that knows its partitions and can restore them.

    Made by `create_app`.
    """

    settings: ClusterSettings
    topics_named: Topics
    chunked_topics: frozenset[str]
    fetch_max_wait_ms: int
    partitions: dict[int, Partition]
    membership: MembershipLease
    restoring: RestoreProgress | None
    metrics: WorkerMetrics
    checkpointer: Checkpointer
    tiers: WorkerTiers
    expiry: Expiry
    seeds: Seeds
    keys: ClusterKeys | None
    folder: Path
    closing: set[int]
    new_partition: Callable[[int, int], Partition]
    told: Callable[[RestoreProgress], None]

    def assigned_numbers(self) -> set[int]:
        """Return the partitions of the changelog that this worker is active for."""
        changelog = self.topics_named.changelog
        return {
            tp.partition
            for tp in self.assignor.assigned_actives()
            if tp.topic == changelog
        }

    def is_current(self, generation: int) -> bool:
        """Say whether a generation of the group is the one of now."""
        return bool(generation == self.consumer_generation_id)

    def chunk_done(self, chunk: Chunk) -> None:
        """Let a chunk's offset be committed, unless its partition moved since."""
        if self.is_current(chunk.generation):
            ledger = cast("ChunkConsumer", self.consumer).ledger
            ledger.done(chunk.partition, chunk.last_offset)

    def next_offset(self, number: int) -> int | None:
        """Return from where a partition's state goes on, None where it is not here."""
        partition = self.partitions.get(number)
        return None if partition is None else partition.next_offset

    def partition_of(self, number: int) -> Partition | None:
        """Return an assigned partition."""
        return self.partitions.get(number)

    async def restore_partitions(self, generation: int) -> None:
        """Open what was assigned, close what went, and restore all of it.

        A partition that stays is restored, too: this worker may have been
        thought dead for a while, and another may have written it meanwhile.

        Raises:
            UnavailableError: turns were deleted before they were folded.
        """
        numbers = self.assigned_numbers()
        for number in set(self.partitions) - numbers:
            gone = self.partitions.pop(number)
            self.closing.add(number)
            await self.tiers.let_go(gone)
            gone.close()
            self.closing.discard(number)
        for number in sorted(numbers - set(self.partitions)):
            self.partitions[number] = self.new_partition(number, len(numbers))
        mine = dict(self.partitions)
        for partition in mine.values():
            partition.is_fresh = False
        known = 0

        def told(progress: RestoreProgress) -> None:
            nonlocal known
            self.metrics.restore(
                progress.done, progress.total, progress.done - known
            )
            known = progress.done
            self.restoring = progress
            self.told(progress)

        changed = await restore(
            self.settings,
            self.topics_named.changelog,
            mine,
            told,
            is_current=lambda: self.is_current(generation),
            seed=self.seeds.seed,
        )
        if not await self._claim(generation, mine):
            return
        # What came up to our claims was written by owners before us.
        changed |= await restore(
            self.settings,
            self.topics_named.changelog,
            mine,
            lambda _: None,
            is_current=lambda: self.is_current(generation),
        )
        if not self.is_current(generation):
            return
        for partition in mine.values():
            partition.note_folded()  # the log may have been trimmed up to that
        await self.check_nothing_was_deleted()
        if not await unlock(mine, self.keys, self.checkpointer.rounds):
            return
        for number, partition in mine.items():
            if not partition.restored(changed=number in changed):
                _log.warning("partition.owned_by_a_later_one", partition=number)
        await asyncio.to_thread(self.seeds.drop_others, set(mine))
        if self.restoring is not None:
            # Compacted records never come: then done is less than there were.
            total = self.restoring.total
            self.told(self.restoring._replace(done=total, files=None))
            self.restoring = None
        self.metrics.restore(1, 1, 0)

    async def _claim(self, generation: int, mine: Mapping[int, Partition]) -> bool:
        """Say in each changelog that it has a new owner; False = it has not.

        An owner of a later generation that was read is either one of a group
        that began anew, or proof that this worker was replaced: the next
        heartbeat tells.
        """
        read = [each.applied.epoch.generation for each in mine.values()]
        while max(read, default=0) > generation and not self.membership.holds:
            if not self.is_current(generation):
                return False
            await asyncio.sleep(CONFIRM_S)
        if not self.is_current(generation):
            return False
        sender = _Sender(self)
        await asyncio.gather(
            *(
                sender.send_rows(
                    self.topics_named.changelog,
                    number,
                    [(*partition.claim(generation), [])],
                )
                for number, partition in mine.items()
            )
        )
        return True

    def read_again(self, chunk: Chunk) -> None:
        """Have a chunk's partition read from where its state goes on."""
        cast("ChunkConsumer", self.consumer).read_again(chunk.partition)

    async def check_nothing_was_deleted(self) -> None:
        """Compare the beginning of the log with what is folded and committed.

        A committed offset below the low-water mark would go on from wherever
        the log begins now, and nobody would know what was left out.

        Raises:
            UnavailableError: there is such a hole.
        """
        mine = dict(self.partitions)
        tps = {number: TP(self.topics_named.turns, number) for number in mine}
        begins = await self.consumer.earliest_offsets(*tps.values())
        for number, partition in mine.items():
            begin = begins.get(tps[number]) or 0
            folded = partition.folded[0] + 1 if partition.folded else 0
            partition.log_begin = begin
            if begin > folded:
                lost = f"turns {folded} to {begin - 1} of partition {number}"
                if self.settings.lost_turns == "accept":
                    _log.error("turns.lost", lost=lost, first=begin)
                    continue
                raise UnavailableError(
                    f"{lost} were deleted from the log before they were folded",
                    hint=_LOST_HINT,
                    code="turns_deleted",
                )

    async def close_partitions(self) -> None:
        """Let all stores go, and hang up at the tiers above and below."""
        self.seeds.close()
        await self.tiers.close(self.partitions)
        for partition in self.partitions.values():
            partition.close()
        self.partitions.clear()
        if self.keys is not None:
            await asyncio.to_thread(self.keys.close)


def create_app(
    settings: ClusterSettings,
    *,
    data: Path,
    instance: str,
    log_id: bytes,
    changelog_id: bytes,
    log_name: str,
    seal_after_s: int,
    graph: DialogueGraph,
    clock: Clock,
    metrics: WorkerMetrics,
    told: Callable[[RestoreProgress], None],
    url: str = NOWHERE,
    ttl_s: int = 0,
    keys: ClusterKeys | None = None,
    cold_wait_s: float = WAIT_S,
) -> WorkerApp:
    """Return an application for one worker; nothing has been started.

    Args:
        settings: Of the cluster.
        data: The folder of this worker.
        instance: Its name, for static membership: it must run once.
        log_id: The topic id of turns.
        changelog_id: The topic id of the changelog.
        log_name: The name under which the log stamps.
        seal_after_s: A session idle for so long is sealed.
        graph: The dialogue graph.
        clock: For arrival times.
        metrics: Counted into.
        told: Is told of a restore's progress.
        url: Where this worker answers queries; others learn it from the group.
        ttl_s: How long after its last turn a session is served; 0 = for ever.
        keys: What wraps the partitions' data keys; None = nothing is encrypted.
        cold_wait_s: How long a read waits for the cold tier in all.
    """
    topics = Topics.of(settings)
    app = WorkerApp(**faust_options(settings, data=data, instance=instance, url=url))
    app.settings, app.topics_named, app.metrics = settings, topics, metrics
    app.chunked_topics = frozenset({topics.named(SESSION.reads)})
    app.fetch_max_wait_ms = settings.fetch_max_wait_ms
    app.partitions = {}
    app.folder, app.closing = data, set()
    app.membership = MembershipLease(settings.session_timeout_ms / 1000)
    app.restoring = None
    app.told, app.keys = told, keys
    app.expiry = Expiry(ttl_s, clock.now_ms)
    app.tiers = WorkerTiers(
        settings, changelog_id, metrics, clock, app.expiry.ttl_ms, cold_wait_s
    )
    app.seeds = Seeds(data, settings, changelog_id, metrics.backups, clock)
    cache = Cache(settings.block_cache_bytes)

    def new_partition(number: int, count: int) -> Partition:
        buffer = settings.write_buffer_bytes // max(count, 1)
        sizes = PartitionSizes(
            hot_bytes=settings.hot_bytes // max(count, 1),
            write_buffer_bytes=max(buffer, WRITE_BUFFER_BYTES_MIN),
            seal_after_s=seal_after_s,
        )
        made = Partition(
            data / str(number) / STORE,
            number,
            partitions=settings.partitions,
            changelog_id=changelog_id,
            sizes=sizes,
            log_name=log_name,
            graph=graph,
            clock=clock,
            cache=cache,
            log_id=log_id,
            below=app.tiers.below,
        )
        app.tiers.take(made)
        if made.applied.offset >= 0:
            drop_gathered(made)
        return made

    app.new_partition = new_partition
    app.Table(
        TABLE,
        partitions=settings.partitions,
        key_type=bytes,
        value_type=bytes,
        help="Heads of all sessions; written by checkpoints.",
    )
    _bind(app, topics, log_id)
    return app


def _bind(app: WorkerApp, topics: Topics, log_id: bytes) -> None:
    """Bind the session agent to its topic, and the checkpointer behind it."""
    turns = app.topic(topics.named(SESSION.reads), schema=ChunkSchema())

    @app.agent(turns, name=SESSION.name, concurrency=1)
    async def session(stream: Any) -> None:
        async for event in stream.events():
            await app.checkpointer.put(event.value)

    app.checkpointer = Checkpointer(
        Rounds(
            sender=_Sender(app),
            topics=topics,
            log=log_id,
            partition_of=app.partition_of,
            is_current=app.is_current,
            owns=lambda: app.membership.holds,
            done=app.chunk_done,
            read_again=app.read_again,
            metrics=app.metrics,
            confirmed_since=app.membership.confirmed_since,
        )
    )

    @app.on_partitions_revoked.connect
    async def settle(*_: Any, **__: Any) -> None:
        if not await app.checkpointer.drain(DRAIN_S):
            _log.warning("rebalance.round_given_up", seconds=DRAIN_S)
        await app.checkpointer.clear()
        await app.consumer.commit()

    async def checkpoints() -> None:
        try:
            await app.checkpointer.run(lambda: app.partitions)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            await app.crash(error)
            raise

    async def hot() -> None:
        await app.tiers.look_after_hot(
            lambda: app.partitions, lambda: app.membership.holds
        )

    app.task(checkpoints)
    app.task(hot)


class _Sender:
    """Deliver rows with the application's producer, which is there once it runs."""

    def __init__(self, app: WorkerApp) -> None:
        self._app = app

    async def send_rows(self, topic: str, partition: int, rows: Any) -> int | None:
        if not rows:
            return None
        return await cast("BatchProducer", self._app.producer).send_rows(
            topic, partition, rows
        )
