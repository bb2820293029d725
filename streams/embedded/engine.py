"""The embedded engine: one thread that owns a store and commits in groups."""

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, NamedTuple

import structlog

from turnstate.agents.dead_letters import encode_dead_letter
from turnstate.agents.ports import Clock, Record
from turnstate.agents.session.agent import Folded, SessionAgent, run
from turnstate.agents.session.step import Answer
from turnstate.schemas.dialogue.phases import DialogueGraph
from turnstate.schemas.errors import CorruptDataError, UnavailableError
from turnstate.schemas.operation import Op
from turnstate.storage.hot.memory import MemoryTier
from turnstate.storage.stored_head import StoredHead
from turnstate.storage.tier import SessionChange
from turnstate.storage.warm.rocksdb import WarmStore
from turnstate.storage.warm.tables import DEAD
from turnstate.streams.embedded.log import EmbeddedLog, life_of_record, lives_after
from turnstate.streams.embedded.preloading import Preloading
from turnstate.streams.embedded.sealer import Sealer
from turnstate.streams.embedded.submissions import (
    Submission,
    Task,
    kept_in_log,
    records_of,
    settled_letters,
)
from turnstate.streams.embedded.waking import AwaitedError, Waking
from turnstate.streams.settings import Settings

_log = structlog.get_logger(__name__)

_IDLE_S = 0.5
"""How long the engine waits for turns before it looks after idle sessions."""


class Published(NamedTuple):
    """What subscribers are told once a batch is durable.

    Attributes:
        change: The session's change.
        ops: Its operations, in version order.
    """

    change: SessionChange
    ops: list[Op]


_NUDGE: Final = object()
"""Put into the inbox so that the owner looks at what was fetched."""


class Engine:
    """Fold what is submitted, in order, durable before it is answered.

    All writing happens in one thread, so turns of one session are handled one
    at a time; readers look at immutable heads and never wait for it. Whatever
    waits in the inbox when a commit ends becomes the next group. Turns of cold
    sessions wait beside it until their session has come (`Waking`).

    Args:
        store: The store, owned by this process.
        settings: Sizes of groups and tiers.
        graph: The dialogue graph.
        clock: For arrival times.
    """

    def __init__(
        self,
        store: WarmStore,
        settings: Settings,
        graph: DialogueGraph,
        clock: Clock,
    ) -> None:
        self.store = store
        self.settings = settings
        self.graph = graph
        self.clock = clock
        self.log = EmbeddedLog(store)
        self.hot = MemoryTier(settings.hot_bytes, frames_kept=0, clock=clock.now_ms)
        self._inbox: queue.Queue[Any] = queue.Queue()
        self.waking = Waking(
            store,
            nudge=lambda: self._inbox.put(_NUDGE),
            refused=self._answered,
            wait_s=settings.cold_wait_s,
        )
        self.agent = SessionAgent(
            store=store,
            hot=self.hot,
            graph=graph,
            log_name=settings.log_name,
            clock=clock,
            colder=self.waking,
            stamps_as=self.log.names.current,
        )
        self.preloading = Preloading(store, self.hot, on=settings.preload == "on")
        self.commits = 0
        self.listeners: list[Callable[[list[Published]], None]] = []
        self.redriving = threading.Lock()
        self.backing_up = threading.Lock()
        self._dead_next = int.from_bytes(store.last_key(DEAD) or b"\0", "big") + 1
        self._held_back: Task | None = None
        self._room = threading.Condition()
        self._door = threading.Lock()
        self._closed = False
        self._turns_inside = 0
        self._waiting: list[Submission] = []
        self.sealer = Sealer(
            store=store,
            hot=self.hot,
            tails=self.agent.tails,
            graph=graph,
            clock=clock,
            idle_ms=1000 * settings.seal_after_s,
            head=self.head_here,
        )
        self._failure: BaseException | None = None
        self._thread = threading.Thread(
            target=self._main, name="turnstate-engine", daemon=True
        )
        self._thread.start()

    # -- doors -------------------------------------------------------------

    def submit(
        self,
        records: Sequence[bytes],
        *,
        attempts: int = 0,
        trusted: bool = False,
        refused: Mapping[int, Sequence[str | None]] | None = None,
        settles: Sequence[bytes] = (),
    ) -> "Future[list[Answer]]":
        """Hand over records; the future holds their answers once durable.

        Blocks while the inbox is full: that is how publishers are held back.

        Args:
            records: JSON turns; recorded operations only from our own doors.
            attempts: How often they were redriven.
            trusted: Recorded operations are let in, with whatever stamp.
            refused: Place → (message, field, code) of what a reader has refused.
            settles: Keys of dead letters that go in the batch of these records,
                which are of one session; kept where those have to be sent again.

        Raises:
            UnavailableError: the engine has stopped.
        """
        done: Future[list[Answer]] = Future()
        count, most = len(records), self.settings.inbox_turns_max
        with self._room:
            # More than fits at all goes in alone.
            while self._turns_inside and self._turns_inside + count > most:
                self._room.wait(1.0)
                self._check_running()
            self._turns_inside += count
        self._check_running()
        self._put(
            Submission(records, attempts, trusted, refused or {}, settles, done)
        )
        return done

    def call(self, task: Callable[[], Any]) -> "Future[Any]":
        """Run a task in the owner's thread, between two groups."""
        self._check_running()
        done: Future[Any] = Future()
        self._put(Task(task, done))
        return done

    def _put(self, item: "Submission | Task") -> None:
        with self._door:
            # Behind a closed door nobody looks into the inbox any more.
            if self._closed:
                raise self._stopped()
            self._inbox.put(item)

    def head(self, key: bytes) -> StoredHead | None:
        """Return the newest durable head of a session, hot or warm."""
        held = self.hot.peek(key)
        return held if held is not None else self.store.heads([key])[0]

    def head_here(self, key: bytes) -> StoredHead | None:
        """Return a head that is in memory or in the store; None where it is cold."""
        held = self.hot.peek(key)
        found = held if held is not None else self.store.located([key])[0]
        return found if isinstance(found, StoredHead) else None

    def close(self) -> None:
        """Commit what waits, stop the thread, close the store. Twice is once.

        Damage that RocksDB met behind the scenes is a warning here: it is
        closed all the same, what was acknowledged is on the disk, and a
        report that names the damage must reach its reader.
        """
        if self._thread.is_alive():
            self._inbox.put(None)
            self._thread.join()
        self.preloading.close()
        try:
            self.store.close()
        except CorruptDataError as error:
            _log.warning("store.damaged", hint="turnstate verify", why=str(error))

    def _check_running(self) -> None:
        if self._failure is not None or not self._thread.is_alive():
            raise self._stopped()

    def _stopped(self) -> UnavailableError:
        return UnavailableError(
            f"the engine has stopped: {self._failure}",
            hint="open the store again; what was acknowledged is there",
        )

    # -- the owner's thread --------------------------------------------------

    def _main(self) -> None:
        try:
            asyncio.run(run(self.agent, self._batches(), self._commit))
        except BaseException as error:  # noqa: BLE001 - whatever it was, say it
            self._failure = error
            _log.error("engine.stopped", error=repr(error))
        self._refuse_rest()

    def _refuse_rest(self) -> None:
        reason = UnavailableError("the engine has stopped", hint="open the store again")
        with self._door:
            self._closed = True
        rest: list[Any] = [
            *self._waiting,
            *self.waking.drained(),
            self._held_back,
        ]
        while True:
            try:
                rest.append(self._inbox.get_nowait())
            except queue.Empty:
                break
        for item in rest:
            if isinstance(item, Submission | Task) and not item.done.done():
                item.done.set_exception(reason)

    async def _batches(self) -> AsyncIterator[Sequence[Record]]:
        """Yield one group after another; between them, look after the store."""
        stop = False
        while not stop:
            stop = self._gather()
            if self._waiting:
                yield self._records()
            if not stop:
                self.sealer.seal_urgent()
                while self._inbox.empty() and self.sealer.seal_due():
                    pass
                if self._inbox.empty():
                    self.sealer.seal_idle()
        self.waking.end()
        while self.waking:
            self._wake()
            if self._waiting:
                yield self._records()
            else:
                self.waking.pause()

    def _gather(self) -> bool:
        """Collect submissions for one group; True when asked to stop."""
        size = 0
        if self._held_back is not None:
            self._run_task(self._held_back)
            self._held_back = None
        turns = self._wake()
        while turns < self.settings.batch_turns_max:
            try:
                item = (
                    self._inbox.get_nowait()
                    if self._waiting
                    else self._inbox.get(timeout=self.waking.due_s(_IDLE_S))
                )
            except queue.Empty:
                return False
            if item is None:
                return True
            if item is _NUDGE:
                if not self._waiting:
                    turns = self._wake()
                continue
            if isinstance(item, Task):
                if self._waiting:
                    # A task sees everything that was submitted before it, but
                    # for what waits for a cold session.
                    self._held_back = item
                    return False
                self._run_task(item)
                turns = self._wake()
                continue
            self._waiting.append(item)
            turns += len(item.records)
            size += sum(map(len, item.records))
            if size >= self.settings.batch_bytes_max:
                return False
        return False

    def _wake(self) -> int:
        """Begin a group with what waited for sessions that have come.

        Nothing else may be in it: what came later goes behind. Returns how
        many turns there are.
        """
        self.waking.take(self._waiting, self.settings.batch_turns_max)
        return sum(len(each.records) for each in self._waiting)

    def _run_task(self, task: Task) -> None:
        task.run()
        if self.waking:
            self.waking.look_again()

    def _records(self) -> list[Record]:
        log = self.log
        return records_of(self._waiting, log.identity, log.partition, log.end)

    async def _commit(self, records: Sequence[Record], folded: Folded) -> None:
        """Write turns, frames, index, heads and position in one batch, then tell."""
        if self.waking.lacked and all(map(_is_awaited, folded.answers)):
            self._tell(folded)
            return
        batch = self.store.batch()
        life_of = lives_after(folded.changes, self.hot, self.store)
        self.log.stage(batch, kept_in_log(records, folded.answers), life_of)
        for change in folded.changes:
            batch.stage(change)
        number = self._dead_next
        for letter in folded.dead:
            at, row = number.to_bytes(8, "big"), encode_dead_letter(letter)
            batch.put_letter(at, row, partial(life_of_record, letter.raw, life_of))
            number += 1
        for letter_key in settled_letters(self._waiting, folded.answers):
            batch.delete(DEAD, letter_key)
        self.store.write(batch, sync=self.settings.fsync == "batch")
        self._dead_next = number
        self.log.appended(len(records))
        self.commits += 1
        self.preloading.folded(folded.changes)
        self.agent.committed(folded)
        self.sealer.note(folded.changes)
        self._tell(folded)

    def _tell(self, folded: Folded) -> None:
        if self.listeners:
            news = [
                Published(change, ops)
                for change, ops in zip(folded.changes, folded.ops, strict=True)
            ]
            for listener in tuple(self.listeners):
                listener(news)
        at = parked = 0
        for submission in self._waiting:
            answers = folded.answers[at : at + len(submission.records)]
            at += len(answers)
            if self.waking.lacked and any(map(_is_awaited, answers)):
                parked += self.waking.park(submission, answers)
            else:
                submission.done.set_result(answers)
        # What is parked still fills the inbox: so publishers are held back.
        self._answered(at - parked)
        self._waiting.clear()

    def _answered(self, turns: int) -> None:
        with self._room:
            self._turns_inside -= turns
            self._room.notify_all()

    def seal(self, keys: Sequence[bytes]) -> int:
        """Seal sessions; only in the owner's thread. Return how many changed."""
        return self.sealer.seal(keys)


def _is_awaited(answer: Answer) -> bool:
    return isinstance(answer.error, AwaitedError)
