"""What a worker does to erase sessions: find them, clean every place of its own."""

import asyncio
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Any, Final

import msgspec
import structlog

from turnstate.agents.ports import Clock
from turnstate.schemas.errors import TurnstateError, UnavailableError
from turnstate.storage.backup.checkpoint import checkpoint_folder
from turnstate.storage.stored_head import StoredHead
from turnstate.storage.warm.erase_marks import encode_mark, marks, unpurged
from turnstate.storage.warm.purging import purge
from turnstate.storage.warm.tables import HEADS
from turnstate.streams.documents import Document
from turnstate.streams.kafka import partition_erasing as owner
from turnstate.streams.kafka.erase_queries import (
    EraseBuryQuery,
    EraseFoldersQuery,
    EraseHotQuery,
    EraseKeysQuery,
    EraseMarkQuery,
    ErasePlanQuery,
    ErasePurgeQuery,
    EraseRewriteQuery,
    EraseScanQuery,
)
from turnstate.streams.kafka.erase_rows import found_page, rows_of
from turnstate.streams.kafka.fresh import FreshPartitions
from turnstate.streams.kafka.key_destroying import destroy_keys
from turnstate.streams.kafka.partition import Partition
from turnstate.streams.kafka.read_gate import GateShutError
from turnstate.streams.kafka.session_rewrite import Rewritten, rewritten
from turnstate.streams.kafka.tier_queries import KeysQuery
from turnstate.streams.kafka.worker_moves import WorkerMoves
from turnstate.streams.steady import steadily

_log = structlog.get_logger(__name__)

ANSWER_S: Final = 5.0
"""What takes longer goes on behind the scenes, and is asked for again."""

REWRITES_MAX: Final = 8
"""How often a session is made anew in which turns come meanwhile."""

AGAIN_S: Final = 60.0
"""After that a store is purged again of which somebody held files."""

GONE: Final = "gone-"
"""What a folder is called that is being removed."""

_PURGING: Final = (b"purging", b"")


class WorkerErasing:
    """Clean what a worker has of sessions, asked from any thread.

    What takes long is done in a thread of its own, one thing after another.
    A store that has heard from its changelog of an erase is purged once it is
    restored, though nobody asks.

    Args:
        parts: The worker's partitions.
        moves: Does things between two rounds.
        loop: Of the worker.
        clock: For the times in new segments.
        folder: Where the stores are, a folder a partition.
        in_use: Says which partitions are open, or being closed; on the loop.
    """

    def __init__(
        self,
        parts: FreshPartitions,
        moves: WorkerMoves,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        folder: Path,
        in_use: Callable[[], set[int]],
    ) -> None:
        self._parts = parts
        self._moves = moves
        self._loop = loop
        self._clock = clock
        self._folder = folder
        self._in_use = in_use
        self._lock = threading.Lock()
        self._running: dict[object, Future[Any]] = {}
        self._thread = ThreadPoolExecutor(1, "erasing")
        self._looked: dict[int, object] = {}
        self._later: dict[int, float] = {}

    def close(self) -> None:
        """Begin nothing new."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    # -- what is asked ------------------------------------------------------------

    def plan(self, query: ErasePlanQuery) -> Document:
        """Return a page of the sessions that an erase is about; see `found_page`."""
        return found_page(self._parts, query)

    def mark(self, query: EraseMarkQuery) -> Document:
        """Note, durably, how far the erase of some sessions has come."""
        self._moves.done(query.partition, lambda moves: owner.note(moves, query.marks))
        return {"marked": len(query.marks)}

    def rewrite(self, query: EraseRewriteQuery) -> Document:
        """Take out of a session what is redacted, and what a user said.

        Returns:
            `done`, and then the `stubs` that stand there; not done: ask again.

        Raises:
            UnavailableError: turns come faster than it is written anew, or it is
                longer than one record may hold (code `too_long_to_rewrite`).
            CorruptDataError: it cannot be read: repair it first.
        """
        name = ("rewrite", query.partition, query.key, query.user)
        done, stubs = self._polled(name, lambda: self._rewrite(query))
        return {"done": done, "stubs": stubs}

    def hot(self, query: EraseHotQuery) -> Document:
        """End lives in Redis, and forget sessions there that go on.

        Raises:
            UnavailableError: Redis is away (code `hot_away`).
        """
        found = self._moves.done(
            query.partition,
            lambda moves: owner.clear_hot(moves, dict(query.lives), query.rewritten),
        )
        return {"found": found}

    def bury(self, query: EraseBuryQuery) -> Document:
        """Bury records of the changelog; return how many, the others are needed."""
        buried = self._moves.done(
            query.partition, lambda moves: owner.bury(moves, query.records)
        )
        return {"buried": buried}

    def keys(self, query: EraseKeysQuery) -> Document:
        """Destroy the data keys of ended lives; see `destroy_keys`.

        Returns:
            `done`, and then how many were `destroyed`; not done: ask again.
        """
        name = ("keys", query.partition, query.job, tuple(query.lives))
        done, gone = self._polled(name, lambda: [self._destroy_keys(query)])
        return {"done": done, "destroyed": sum(gone)}

    def purge(self, query: ErasePurgeQuery) -> Document:
        """Rewrite the files that held what an erase took out.

        Returns:
            `done`, and then the files that are `left`; not done: ask again.
        """
        name = ("purge", query.partition, query.job)
        done, left = self._polled(name, lambda: self._purge(query.partition, query.job))
        return {"done": done, "left": left}

    def scan(self, query: EraseScanQuery) -> Document:
        """Count the rows of sessions, and those that have to be gone."""
        with self._parts.fresh(query.partition) as fresh:
            rows, found = rows_of(fresh, query)
        return {"rows": rows, "found": found}

    def folders(self, query: EraseFoldersQuery) -> Document:
        """Remove stores of partitions that are others' now: nobody cleans them.

        They were kept as a start for the partition's return, and no more.

        Raises:
            UnavailableError: the worker's loop is busy for long.
        """
        aside = self._put_aside(query.partitions)
        future = asyncio.run_coroutine_threadsafe(aside, self._loop)
        try:
            removed = future.result(ANSWER_S)
        except TimeoutError:
            future.cancel()
            raise UnavailableError(
                "the worker is in the middle of a long round",
                hint="ask again in a moment",
                code="busy",
            ) from None
        for path in self._folder.glob(f"{GONE}*"):
            shutil.rmtree(path, ignore_errors=True)
        return {"removed": removed}

    # -- what nobody asks for -------------------------------------------------------

    def look(self) -> None:
        """Purge what was restored with erased rows in it; called once a second."""
        for number, partition in list(self._parts.owner.partitions.items()):
            if time.monotonic() < self._later.get(number, 0):
                continue
            if partition.is_fresh and self._looked.get(number) != partition.epoch:
                self._looked[number] = partition.epoch
                self._thread.submit(self._purge_restored, number)

    def _purge_restored(self, number: int) -> None:
        try:
            left = self._purge(number, None)
        except (TurnstateError, GateShutError):
            return  # it is another worker's by now, who does it
        if left:
            _log.warning("erase.files_left", partition=number, files=left)
            self._later[number] = time.monotonic() + AGAIN_S
            self._looked.pop(number, None)

    # -- inside -----------------------------------------------------------------------

    def _polled(self, name: object, call: Callable[[], list[Any]]) -> Any:
        """Begin something, or look how it does: (whether it is done, result)."""
        with self._lock:
            future = self._running.get(name)
            if future is None:
                future = self._running[name] = self._thread.submit(call)
        try:
            result = future.result(ANSWER_S)
        except TimeoutError:
            if not future.done():
                return False, []
            raise
        finally:
            if future.done():
                with self._lock:
                    self._running.pop(name, None)
        return True, result

    def _rewrite(self, query: EraseRewriteQuery) -> list[bytes]:
        number, key = query.partition, query.key
        for _ in range(REWRITES_MAX):
            self._moves.warm(KeysQuery(partition=number, keys=[key]))
            with self._parts.fresh(number) as fresh:
                row = fresh.partition.store.stored(HEADS, key)
                made = _made(fresh.partition, key, query.user, self._clock)
            if row is None or made is None:
                return []
            image = made.image
            if image is None:
                return made.stubs
            swap = partial(owner.swap, row=row, image=image)
            if self._moves.done(number, swap):
                return made.stubs
        raise UnavailableError(
            "a session is spoken in faster than it is written anew",
            hint="erase again when it is calmer",
        )

    def _destroy_keys(self, query: EraseKeysQuery) -> int:
        partition = self._parts.partition(query.partition)
        return destroy_keys(partition, self._moves, dict(query.lives))

    def _purge(self, number: int, job: bytes | None) -> list[str]:
        """Purge a store, for one erase or for whatever it was not purged for yet."""
        partition = self._parts.partition(number)
        with partition.gate.reading():
            self._parts.check_fresh(partition)
            store = partition.store
            rows: Mapping[bytes, bytes]
            if job is None:
                rows = unpurged(store)
            else:
                rows = {
                    key: encode_mark(msgspec.structs.replace(mark, is_done=True))
                    for key, _, mark in marks(store)
                    if mark.job == job
                }
            if not rows:
                return []
            left = purge(
                store, list(rows), _PURGING, goes_on=lambda: partition.is_fresh
            )
            if checkpoint_folder(store.path).exists():
                left.append("a backup of the partition is being made")
        if not left:
            self._moves.done(number, lambda moves: owner.purged(moves, rows))
        return left

    async def _put_aside(self, numbers: list[int]) -> int:
        """Rename folders, in one step of the loop: nobody opens one meanwhile."""
        used = self._in_use()
        removed = 0
        for number in numbers:
            path = self._folder / str(number)
            if number not in used and path.is_dir():
                path.rename(self._folder / f"{GONE}{number}-{token_hex(4)}")
                removed += 1
        return removed


def _made(
    partition: Partition, key: bytes, user: str | None, clock: Clock
) -> Rewritten | None:
    """Return a session anew; None where there is nothing of it."""

    def read(stored: StoredHead | None) -> Rewritten | None:
        if stored is None or stored.is_tombstone:
            return None
        return rewritten(
            partition.store,
            key,
            stored,
            user,
            graph=partition.graph,
            log_name=partition.log_name,
            clock=clock,
        )

    return steadily(partition, key, read)
