"""Fold fetched chunks and make them durable, in the order that loses nothing."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

import structlog

from turnstate.agents.ports import Record
from turnstate.agents.session.agent import Folded
from turnstate.storage.warm.changelog import ChangelogBatch, RowRecord
from turnstate.streams.kafka.letters import letter_row
from turnstate.streams.kafka.metrics import WorkerMetrics
from turnstate.streams.kafka.partition import Partition
from turnstate.streams.kafka.records import TRACEPARENT, headers_of, turns_of
from turnstate.streams.kafka.topics import Topics
from turnstate.streams.kafka.transport import Chunk

_log = structlog.get_logger(__name__)

INBOX_CHUNKS_MAX: Final = 64
"""Chunks that wait before fetching is held back."""

ROUND_TURNS_MAX: Final = 16_384
"""Records of one round over all partitions; more wait for the next."""

ROUND_BYTES_MAX: Final = 8 << 20
"""Likewise bytes: the turns of one session become one frame, which has to fit
into one message with all else that its change writes."""

ROUND_INTERVAL_S: Final = 0.008
"""Rounds begin no closer than this: a round costs about 2 ms of processor
whatever is in it, so with few turns it waits for company."""

CONFIRM_S: Final = 0.02

_IDLE_S: Final = 0.5
"""Without chunks for so long, a partition may seal sessions that went idle."""

Row = tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]
"""Key, value and headers of a record to send."""


class Sender(Protocol):
    """Who delivers rows: all of them, in order, or it raises."""

    async def send_rows(
        self, topic: str, partition: int, rows: Sequence[Row]
    ) -> int | None:
        """Return the offset of the last row, once it is on all replicas."""
        ...


class _Staged(NamedTuple):
    partition: Partition
    chunks: list[Chunk]
    records: list[Record]
    folded: Folded
    batch: ChangelogBatch
    deltas: list[Row]
    letters: list[Row]


class Checkpointer:
    """Take chunks from the session agent and carry each through a checkpoint.

    A round takes whatever waits: fold in memory; frames and dead letters out,
    verified; changelog out, verified; one RocksDB batch a partition, with the
    log position; then the chunk is done, and its offset may be committed. A
    crash anywhere repeats the round, and repeating is harmless: the fold is
    the same, and a head knows the position that it has folded. Since frames
    go before the changelog, no state is ever restored whose frames are not
    on `deltas`.

    Args:
        sender: Delivers to topics.
        topics: Their names.
        log: The 16 bytes of the topic id of turns.
        partition_of: Gives an assigned partition, None where it is gone.
        is_current: Says whether a generation of the group is the one of now.
        owns: Says whether the group certainly counts this worker as a member.
        done: Told of each chunk that is durable.
        read_again: Told of a chunk before which something is missing.
        metrics: Counted into.
    """

    def __init__(
        self,
        *,
        sender: Sender,
        topics: Topics,
        log: bytes,
        partition_of: Callable[[int], Partition | None],
        is_current: Callable[[int], bool],
        owns: Callable[[], bool],
        done: Callable[[Chunk], None],
        read_again: Callable[[Chunk], None],
        metrics: WorkerMetrics,
    ) -> None:
        self._sender = sender
        self._topics = topics
        self._log_id = log
        self._partition_of = partition_of
        self._is_current = is_current
        self._owns = owns
        self._done = done
        self._read_again = read_again
        self._metrics = metrics
        self._waiting: deque[Chunk] = deque()
        self._changed = asyncio.Condition()
        self._busy = False
        self._closed = False
        self._draining = False
        self._began = 0.0

    async def put(self, chunk: Chunk) -> None:
        """Hand over a chunk; waits while too many do already."""
        async with self._changed:
            await self._changed.wait_for(
                lambda: len(self._waiting) < INBOX_CHUNKS_MAX or self._closed
            )
            self._waiting.append(chunk)
            self._changed.notify_all()

    async def drain(self, timeout_s: float) -> bool:
        """Wait until all that was handed over is done; False if time runs out."""
        self._draining = True
        try:
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait_for(
                    lambda: not self._waiting and not self._busy
                )
        except TimeoutError:
            return False
        finally:
            self._draining = False
        return True

    async def clear(self) -> None:
        """Forget what waits: its partitions are not ours any more."""
        async with self._changed:
            self._waiting.clear()
            self._changed.notify_all()

    async def close(self) -> None:
        """End the loop once the round under way is done."""
        async with self._changed:
            self._closed = True
            self._changed.notify_all()

    async def run(self, assigned: Callable[[], Mapping[int, Partition]]) -> None:
        """Go round until closed; seal where nothing waits.

        Raises:
            KafkaError: a record could not be delivered: the worker must end.
        """
        while True:
            chunks = await self._next()
            if chunks is None:
                return
            try:
                if chunks:
                    await self._round(chunks)
                await self._seal(assigned(), urgent=bool(chunks))
            finally:
                async with self._changed:
                    self._busy = False
                    self._changed.notify_all()

    async def _next(self) -> list[Chunk] | None:
        """Return what waits, [] where nothing came for a while, None at the end."""
        wait_s = self._began + ROUND_INTERVAL_S - time.monotonic()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        async with self._changed:
            try:
                async with asyncio.timeout(_IDLE_S):
                    await self._changed.wait_for(lambda: self._waiting or self._closed)
            except TimeoutError:
                # Sealing is work, too: a rebalance waits for it.
                self._busy = True
                return []
            if self._closed and not self._waiting:
                return None
            chunks: list[Chunk] = []
            turns = size = 0
            while (
                self._waiting and turns < ROUND_TURNS_MAX and size < ROUND_BYTES_MAX
            ):
                chunk = self._waiting.popleft()
                turns += len(chunk.records)
                size += chunk.bytes
                chunks.append(chunk)
            self._busy = True
            self._began = time.monotonic()
            self._changed.notify_all()
            return chunks

    # -- a round -----------------------------------------------------------------

    async def _round(self, chunks: Sequence[Chunk]) -> None:
        began = time.perf_counter()
        staged: list[_Staged] = []
        for partition, mine in self._by_partition(chunks):
            with partition.condemning():
                staged.append(self._staged(partition, mine))
            # Heartbeats, queries and fetches have their turn in between.
            await asyncio.sleep(0)
        folded_at = time.perf_counter()
        generations = {chunk.generation for each in staged for chunk in each.chunks}
        if not await self._still_owned(generations):
            return
        await asyncio.gather(*(self._send_out(each) for each in staged))
        offsets = await asyncio.gather(*(self._send_changelog(each) for each in staged))
        # What a later owner's claim came before is void: it must not stay here.
        if not await self._still_owned(generations):
            return
        for each, offset in zip(staged, offsets, strict=True):
            self._finish(each, offset)
        ended = time.perf_counter()
        self._metrics.round(
            turns=sum(len(each.records) for each in staged),
            fold_s=folded_at - began,
            checkpoint_s=ended - folded_at,
        )

    async def _still_owned(self, generations: Iterable[int]) -> bool:
        """Wait until the group has confirmed this worker, or replaced it.

        One that was stopped for longer than the session time-out wakes up in
        the middle of a round, and others own its partitions by then. Who waits
        for the round to end would wait for ever: then nobody is the owner.
        """
        while not self._owns():  # another thread hears of it
            if self._draining or not all(map(self._is_current, generations)):
                return False
            await asyncio.sleep(CONFIRM_S)
        return all(map(self._is_current, generations))

    def _by_partition(
        self, chunks: Sequence[Chunk]
    ) -> Iterator[tuple[Partition, list[Chunk]]]:
        found: dict[int, list[Chunk]] = {}
        for chunk in chunks:
            if not self._is_current(chunk.generation):
                # Of before a rebalance: it will be fetched again, by its owner.
                continue
            found.setdefault(chunk.partition.partition, []).append(chunk)
        for number, mine in found.items():
            partition = self._partition_of(number)
            if partition is None or not partition.is_fresh:
                continue
            fresh = self._without_a_hole(partition, mine)
            if fresh:
                yield partition, fresh

    def _without_a_hole(
        self, partition: Partition, chunks: Sequence[Chunk]
    ) -> list[Chunk]:
        """Return the chunks that follow from what is folded, without a hole.

        Faust lets partitions flow before it has sought, and a fetch of before
        a rebalance may end after it. What is folded is never folded again, so
        turns that are passed over here would be lost.
        """
        fresh: list[Chunk] = []
        wanted = partition.next_offset
        for chunk in chunks:
            if partition.is_folded(chunk.last_offset):
                self._done(chunk)
            elif chunk.begin <= wanted:
                fresh.append(chunk)
                wanted = max(wanted, chunk.last_offset + 1)
            else:
                _log.warning(
                    "turns.read_again",
                    partition=partition.number,
                    missing=f"{wanted} to {chunk.begin - 1}",
                )
                self._read_again(chunk)
                break
        return fresh

    def _staged(self, partition: Partition, chunks: list[Chunk]) -> _Staged:
        fetched = [record for chunk in chunks for record in chunk.records]
        records = list(turns_of(self._log_id, fetched))
        folded = partition.agent.fold(records)
        batch = partition.staged(folded)
        last = records[-1].position
        batch.mark(last.offset, last.index, last.log)
        traces = {
            each.offset: told
            for each in fetched
            if each.headers and (told := headers_of(each).get(TRACEPARENT))
        }
        deltas: list[Row] = []
        for change in folded.changes:
            if change.frame is not None:
                at = change.after.position
                trace = traces.get(at.offset) if at is not None else None
                headers = [(TRACEPARENT, trace.encode())] if trace else []
                deltas.append((change.key, change.frame, headers))
        now_ms = partition.clock.now_ms()
        by_offset = {each.offset: each for each in fetched} if folded.dead else {}
        letters: list[Row] = []
        for record, answer in zip(records, folded.answers, strict=True):
            if answer.error is not None:
                whole = by_offset[record.position.offset]
                letters.append(letter_row(whole, record, answer.error, now_ms))
                self._metrics.letter(answer.error.code)
        return _Staged(partition, chunks, records, folded, batch, deltas, letters)

    async def _send_out(self, staged: _Staged) -> None:
        number = staged.partition.number
        await asyncio.gather(
            self._sender.send_rows(self._topics.deltas, number, staged.deltas),
            self._sender.send_rows(self._topics.dead_letters, number, staged.letters),
        )

    async def _send_changelog(self, staged: _Staged) -> int | None:
        return await self._changelog(staged.partition, staged.batch.records)

    async def _changelog(
        self, partition: Partition, records: Sequence[RowRecord]
    ) -> int | None:
        rows: list[Row] = [(row.key, row.value, []) for row in records]
        return await self._sender.send_rows(
            self._topics.changelog, partition.number, rows
        )

    def _finish(self, staged: _Staged, changelog_offset: int | None) -> None:
        partition, last = staged.partition, staged.records[-1].position
        partition.write(staged.batch, changelog_offset)
        partition.committed(staged.folded, last.offset, last.index)
        for chunk in staged.chunks:
            self._done(chunk)

    # -- sealing -----------------------------------------------------------------

    async def _seal(
        self, partitions: Mapping[int, Partition], *, urgent: bool
    ) -> None:
        """Seal a few sessions of each partition; while turns wait the urgent ones."""
        for partition in list(partitions.values()):
            if not partition.is_fresh or (self._waiting and not urgent):
                continue
            seals = partition.due_seals(urgent=urgent)
            if not seals:
                continue
            generation = partition.epoch.generation
            batch = partition.staged_seals(seals)
            offset = await self._changelog(partition, batch.records)
            if not await self._still_owned([generation]):
                return
            partition.write(batch, offset)
            for sealed in seals:
                partition.sealer.done(sealed)
            # Whoever comes later has read the seals, and needs the frames no more.
            await self._changelog(partition, batch.tombstones)
