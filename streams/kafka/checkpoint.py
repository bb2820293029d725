"""Fold fetched chunks and make them durable, in the order that loses nothing."""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
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

ROUND_INTERVAL_S: Final = 0.008
"""Rounds begin no closer than this: a round costs about 2 ms of processor
whatever is in it, so with few turns it waits for company."""

_IDLE_S: Final = 0.5
"""Without chunks for so long, a partition may seal sessions that went idle."""

TASKS_A_ROUND: Final = 8
"""Tasks of others between two rounds; each takes some milliseconds."""


class _Task(NamedTuple):
    call: Callable[[], Awaitable[Any]]
    done: "asyncio.Future[Any]"


class Checkpointer:
    """Take chunks from the session agent and have a round made of what waits.

    Between two rounds sessions are sealed, hot is filled for readers, and what
    others have asked for is done: moves between tiers, one after another.

    Args:
        rounds: Makes rounds, and writes what no turn brought.
    """

    def __init__(self, rounds: Rounds) -> None:
        self.rounds = rounds
        self._waiting: deque[Chunk] = deque()
        self._tasks: deque[_Task] = deque()
        self._changed = asyncio.Condition()
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
                    lambda: not self._waiting and not self._busy
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
                    await self.rounds.run(chunks)
                await self._seal(assigned(), urgent=bool(chunks))
                await self._between(assigned())
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
                    await self._changed.wait_for(
                        lambda: self._waiting or self._closed or self._tasks
                    )
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
            batch = partition.staged_seals(seals)
            done = partial(partition.sealed, seals)
            if not await self.rounds.write(partition, batch, done):
                return

    # -- what others want done -----------------------------------------------------

    async def _between(self, partitions: Mapping[int, Partition]) -> None:
        for partition in list(partitions.values()):
            if partition.redis is not None and partition.is_fresh:
                await partition.redis.fill(partition.store)
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
