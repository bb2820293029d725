"""The embedded engine: one thread that owns a store and commits in groups."""

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, NamedTuple

import structlog

from turnstate.agents.dead_letters import encode_dead_letter
from turnstate.agents.ports import Clock, Record
from turnstate.agents.session.agent import Folded, SessionAgent, run
from turnstate.agents.session.recorded import FIRST_BYTE
from turnstate.agents.session.step import Answer
from turnstate.schemas.admission import Verdict
from turnstate.schemas.dialogue.phases import DialogueGraph
from turnstate.schemas.errors import (
    CorruptDataError,
    InvalidInputError,
    UnavailableError,
)
from turnstate.schemas.limits import DEAD_LETTER_BYTES_MAX
from turnstate.schemas.operation import Op
from turnstate.schemas.position import Position
from turnstate.storage.hot.memory import MemoryTier
from turnstate.storage.stored_head import StoredHead
from turnstate.storage.tier import SessionChange
from turnstate.storage.warm.rocksdb import WarmStore
from turnstate.storage.warm.tables import DEAD
from turnstate.streams.embedded.log import EmbeddedLog, life_of_record, lives_after
from turnstate.streams.embedded.preloading import Preloading
from turnstate.streams.embedded.sealer import Sealer
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


class _Submission(NamedTuple):
    records: Sequence[bytes]
    attempts: int
    trusted: bool
    refused: Mapping[int, Sequence[str | None]]
    settles: Sequence[bytes]
    done: "Future[list[Answer]]"


class _Task(NamedTuple):
    call: Callable[[], Any]
    done: "Future[Any]"


class Engine:
    """Fold what is submitted, in order, durable before it is answered.

    All writing happens in one thread, so turns of one session are handled one
    at a time; readers look at immutable heads and never wait for it. Whatever
    waits in the inbox when a commit ends becomes the next group.

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
        self.agent = SessionAgent(
            store=store,
            hot=self.hot,
            graph=graph,
            log_name=settings.log_name,
            clock=clock,
            colder=store,
            stamps_as=self.log.names.current,
        )
        self.preloading = Preloading(store, self.hot, on=settings.preload == "on")
        self.commits = 0
        self.listeners: list[Callable[[list[Published]], None]] = []
        self.redriving = threading.Lock()
        self.backing_up = threading.Lock()
        self._dead_next = int.from_bytes(store.last_key(DEAD) or b"\0", "big") + 1
        self._inbox: queue.Queue[_Submission | _Task | None] = queue.Queue()
        self._held_back: _Task | None = None
        self._room = threading.Condition()
        self._door = threading.Lock()
        self._closed = False
        self._turns_inside = 0
        self._waiting: list[_Submission] = []
        self.sealer = Sealer(
            store=store,
            hot=self.hot,
            tails=self.agent.tails,
            graph=graph,
            clock=clock,
            idle_ms=1000 * settings.seal_after_s,
            head=self.head,
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
            settles: Keys of dead letters that go in the batch of these records.

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
            _Submission(records, attempts, trusted, refused or {}, settles, done)
        )
        return done

    def call(self, task: Callable[[], Any]) -> "Future[Any]":
        """Run a task in the owner's thread, between two groups."""
        self._check_running()
        done: Future[Any] = Future()
        self._put(_Task(task, done))
        return done

    def _put(self, item: "_Submission | _Task") -> None:
        with self._door:
            # Behind a closed door nobody looks into the inbox any more.
            if self._closed:
                raise self._stopped()
            self._inbox.put(item)

    def head(self, key: bytes) -> StoredHead | None:
        """Return the newest durable head of a session, hot or warm."""
        held = self.hot.peek(key)
        return held if held is not None else self.store.heads([key])[0]

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
        rest: list[_Submission | _Task | None] = [*self._waiting, self._held_back]
        while True:
            try:
                rest.append(self._inbox.get_nowait())
            except queue.Empty:
                break
        for item in rest:
            if item is not None and not item.done.done():
                item.done.set_exception(reason)

    async def _batches(self) -> AsyncIterator[Sequence[Record]]:
        """Yield one group after another; between them, look after the store."""
        while True:
            stop = self._gather()
            if self._waiting:
                yield self._records()
            if stop:
                return
            self.sealer.seal_urgent()
            while self._inbox.empty() and self.sealer.seal_due():
                pass
            if self._inbox.empty():
                self.sealer.seal_idle()

    def _gather(self) -> bool:
        """Collect submissions for one group; True when asked to stop."""
        turns = size = 0
        wait = True
        if self._held_back is not None:
            _run_task(self._held_back)
            self._held_back = None
        while turns < self.settings.batch_turns_max:
            try:
                item = (
                    self._inbox.get(timeout=_IDLE_S)
                    if wait
                    else self._inbox.get_nowait()
                )
            except queue.Empty:
                return False
            wait = False
            if item is None:
                return True
            if isinstance(item, _Task):
                if self._waiting:
                    # A task sees everything that was submitted before it.
                    self._held_back = item
                    return False
                _run_task(item)
                wait = True
                continue
            self._waiting.append(item)
            turns += len(item.records)
            size += sum(map(len, item.records))
            if size >= self.settings.batch_bytes_max:
                return False
        return False

    def _records(self) -> list[Record]:
        records: list[Record] = []
        offset = self.log.end
        identity, partition = self.log.identity, self.log.partition
        for submission in self._waiting:
            attempts, trusted = submission.attempts, submission.trusted
            for index, raw in enumerate(submission.records):
                refusal = None
                if len(raw) > DEAD_LETTER_BYTES_MAX:
                    refusal = _too_long(raw)
                elif index in submission.refused:
                    message, field, code = submission.refused[index]
                    refusal = InvalidInputError(message or "", field=field, code=code)
                at = Position(identity, partition, offset)
                records.append(Record(raw, at, attempts, refusal, trusted))
                offset += 1
        return records

    async def _commit(self, records: Sequence[Record], folded: Folded) -> None:
        """Write turns, frames, index, heads and position in one batch, then tell."""
        batch = self.store.batch()
        life_of = lives_after(folded.changes, self.hot, self.store)
        self.log.stage(batch, _kept_in_log(records, folded.answers), life_of)
        for change in folded.changes:
            batch.stage(change)
        number = self._dead_next
        for letter in folded.dead:
            at, row = number.to_bytes(8, "big"), encode_dead_letter(letter)
            batch.put_letter(at, row, partial(life_of_record, letter.raw, life_of))
            number += 1
        for submission in self._waiting:
            for letter_key in submission.settles:
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
        at = 0
        for submission in self._waiting:
            count = len(submission.records)
            submission.done.set_result(folded.answers[at : at + count])
            at += count
        with self._room:
            self._turns_inside -= at
            self._room.notify_all()
        self._waiting.clear()

    def seal(self, keys: Sequence[bytes]) -> int:
        """Seal sessions; only in the owner's thread. Return how many changed."""
        return self.sealer.seal(keys)


def _kept_in_log(records: Sequence[Record], answers: Sequence[Answer]) -> list[bytes]:
    """Return what the log keeps: nothing of what is too long, or of erased lives.

    A late turn of an erased session must not lie in the log either; nor one
    that could not be folded: its sender is told so, and sends it again.
    """
    return [
        b""
        if record.refusal
        or answer.verdict is Verdict.DROPPED
        or isinstance(answer.error, UnavailableError)
        or (record.raw[:1] == FIRST_BYTE and not record.trusted)
        else record.raw
        for record, answer in zip(records, answers, strict=True)
    ]


def _run_task(task: _Task) -> None:
    try:
        task.done.set_result(task.call())
    except BaseException as error:  # noqa: BLE001 - it belongs to who asked
        task.done.set_exception(error)


def _too_long(raw: bytes) -> InvalidInputError:
    return InvalidInputError(
        f"the record has {len(raw)} bytes",
        field="record",
        hint="send larger parts by reference",
        code="too_large",
    )
