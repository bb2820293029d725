"""Fold fetched chunks and make them durable, in the order that loses nothing."""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from turnstate.schemas.errors import TurnstateError, UnavailableError
from turnstate.streams.kafka.partition import Partition
from turnstate.streams.kafka.rounds import Rounds
from turnstate.streams.kafka.transport import Chunk

INBOX_CHUNKS_MAX: Final = 64
"""Chunks that wait before fetching is held back."""

ROUND_TURNS_MAX: Final = 16_384
"""Records of one round over all partitions; more wait for the next."""

ROUND_BYTES_MAX: Final = 8 << 20
"""Likewise bytes: the turns of one session become one frame, which has to fit
into one message with all else that its change writes."""

LANES: Final = 2
"""Rounds at once, of different partitions: one folds while another is delivered."""

ROUND_INTERVAL_S: Final = 0.008
"""Rounds of a partition begin about no closer than this: a round costs some
milliseconds whatever is in it, so with few turns it waits for company."""

_IDLE_S: Final = 0.5
"""Without chunks for so long, a partition may seal sessions that went idle."""

TASKS_A_ROUND: Final = 8
"""Tasks of others between two rounds; each takes some milliseconds."""


class _Task(NamedTuple):
    call: Callable[[], Awaitable[Any]]
    done: "asyncio.Future[Any]"


class Checkpointer:
    """Take chunks from the session agent and have a round made of what waits.

    Rounds of different partitions overlap: while one waits for the brokers, the
    next one folds. Behind a round its partitions are sealed and hot is filled for
    readers. What others have asked for is done while no round is under way:
    moves between tiers, one after another.

    Args:
        rounds: Makes rounds, and writes what no turn brought.
    """

    def __init__(self, rounds: Rounds) -> None:
        self.rounds = rounds
        self._waiting: deque[Chunk] = deque()
        self._tasks: deque[_Task] = deque()
        self._changed = asyncio.Condition()
        self._under_way: dict[asyncio.Task[None], set[int]] = {}
        self._error: BaseException | None = None
        self._busy = False
        self._closed = False
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
        self.rounds.draining = True
        try:
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait_for(
                    lambda: not (self._waiting or self._under_way or self._busy)
                )
        except TimeoutError:
            return False
        finally:
            self.rounds.draining = False
        return True

    async def clear(self) -> None:
        """Forget what waits: its partitions are not ours any more."""
        async with self._changed:
            self._waiting.clear()
            self._changed.notify_all()

    async def between(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Do something between two rounds; return what it returns.

        Raises:
            UnavailableError: the worker ends before it comes to it.
        """
        done = asyncio.get_running_loop().create_future()
        async with self._changed:
            if self._closed:
                raise _ending()
            self._tasks.append(_Task(call, done))
            self._changed.notify_all()
        return await done

    async def close(self) -> None:
        """End the loop once the round under way is done."""
        async with self._changed:
            self._closed = True
            while self._tasks:
                task = self._tasks.popleft()
                if not task.done.done():
                    task.done.set_exception(_ending())
            self._changed.notify_all()

    async def run(self, assigned: Callable[[], Mapping[int, Partition]]) -> None:
        """Make rounds until closed; seal where nothing waits.

        Raises:
            KafkaError: a record could not be delivered: the worker must end.
        """
        try:
            while not self._is_over:
                chunks = await self._next(len(assigned()))
                if chunks:
                    self._start(chunks, assigned)
                elif self._busy:
                    await self._alone(assigned())
        finally:
            for each in list(self._under_way):
                each.cancel()
            if self._under_way:
                await asyncio.wait(self._under_way)
        if self._error is not None:
            raise self._error

    @property
    def _is_over(self) -> bool:
        if self._error is not None:
            return True
        return self._closed and not self._waiting and not self._under_way

    async def _next(self, partitions: int) -> list[Chunk]:
        """Return chunks for a round; or [], busy where no round is under way.

        Args:
            partitions: How many there are: a lane takes its share of them.
        """
        wait_s = self._began + ROUND_INTERVAL_S / LANES - time.monotonic()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        async with self._changed:
            is_idle = False
            try:
                async with asyncio.timeout(_IDLE_S):
                    await self._changed.wait_for(self._has_work)
            except TimeoutError:
                is_idle = not self._waiting
            if self._is_over:
                return []
            if self._tasks or is_idle:
                # Sealing is work, too: a rebalance waits for it.
                self._busy = not self._under_way
                return []
            return self._taken(-(-partitions // LANES))

    def _has_work(self) -> bool:
        if self._tasks:
            return not self._under_way
        return self._is_over or (
            len(self._under_way) < LANES and any(map(self._is_free, self._waiting))
        )

    def _is_free(self, chunk: Chunk) -> bool:
        number = chunk.partition.partition
        return all(number not in taken for taken in self._under_way.values())

    def _taken(self, partitions: int) -> list[Chunk]:
        """Take what waits for some partitions that no round carries."""
        chunks: list[Chunk] = []
        left: list[Chunk] = []
        numbers: set[int] = set()
        turns = size = 0
        for chunk in self._waiting:
            number = chunk.partition.partition
            is_full = turns >= ROUND_TURNS_MAX or size >= ROUND_BYTES_MAX
            has_room = number in numbers or len(numbers) < max(partitions, 1)
            if is_full or not has_room or not self._is_free(chunk):
                left.append(chunk)
                continue
            numbers.add(number)
            turns += len(chunk.records)
            size += chunk.bytes
            chunks.append(chunk)
        self._waiting = deque(left)
        self._began = time.monotonic()
        self._changed.notify_all()
        return chunks

    def _start(
        self, chunks: list[Chunk], assigned: Callable[[], Mapping[int, Partition]]
    ) -> None:
        numbers = {chunk.partition.partition for chunk in chunks}
        task = asyncio.ensure_future(self._lane(chunks, numbers, assigned))
        self._under_way[task] = numbers

    async def _lane(
        self,
        chunks: list[Chunk],
        numbers: set[int],
        assigned: Callable[[], Mapping[int, Partition]],
    ) -> None:
        try:
            await self.rounds.run(chunks)
            mine = [each for at, each in assigned().items() if at in numbers]
            await self._seal(mine, urgent=True)
            await self._fill(mine)
        except Exception as error:  # noqa: BLE001 - `run` raises it
            self._error = self._error or error
        finally:
            task = asyncio.current_task()
            assert task is not None, "runs in a task"
            del self._under_way[task]
            async with self._changed:
                self._changed.notify_all()

    async def _alone(self, partitions: Mapping[int, Partition]) -> None:
        """Do what needs that no round is under way."""
        everything = list(partitions.values())
        try:
            if not self._tasks:
                await self._seal(everything, urgent=False)
                await self._fill(everything)
            await self._between()
        finally:
            async with self._changed:
                self._busy = False
                self._changed.notify_all()

    # -- sealing -----------------------------------------------------------------

    async def _seal(self, partitions: Sequence[Partition], *, urgent: bool) -> None:
        """Seal a few sessions of each partition; while turns wait the urgent ones."""
        for partition in partitions:
            if not partition.is_fresh or (self._waiting and not urgent):
                continue
            seals = partition.due_seals(urgent=urgent)
            if not seals:
                continue
            batch = partition.staged_seals(seals)
            done = partial(partition.sealed, seals)
            if not await self.rounds.write(partition, batch, done):
                return

    # -- what others want done -----------------------------------------------------

    async def _fill(self, partitions: Sequence[Partition]) -> None:
        for partition in partitions:
            if partition.redis is not None and partition.is_fresh:
                await partition.redis.fill(partition.store)

    async def _between(self) -> None:
        for _ in range(min(len(self._tasks), TASKS_A_ROUND)):
            call, done = self._tasks.popleft()
            if done.done():
                continue  # whoever asked has gone
            try:
                result = await call()
            except Exception as error:
                if not done.done():
                    done.set_exception(error)
                if not isinstance(error, TurnstateError):
                    raise
            else:
                if not done.done():
                    done.set_result(result)


def _ending() -> UnavailableError:
    return UnavailableError(
        "the worker is ending", hint="ask again in a moment", code="not_here"
    )
