"""What `publish --profile cluster` does: produce, wait until folded, count."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Final, Protocol, Self

from turnstate.agents.session.step import Answer
from turnstate.schemas.admission import Verdict
from turnstate.schemas.draft import Draft
from turnstate.schemas.errors import InvalidInputError
from turnstate.schemas.ids import SessionName
from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.fold_watch import STALL_S, FoldWatch, Progress
from turnstate.streams.kafka.producer import TurnProducer
from turnstate.streams.kafka.sync_producer import LoopThread
from turnstate.streams.kafka.topic_reader import topic_reader

Reason = tuple[str, str | None, str]
"""Why a reader refused a line: message, field, code."""

_TAKEN: Final = Answer(Verdict.ACCEPTED, 0)


class Counted(Protocol):
    """Counters of a publish; see `streams.cli.publishing.Counts`."""

    accepted: int
    duplicates: int
    conflicts: int
    refused: int
    sessions: set[tuple[str, str]]


class ClusterDoor:
    """Take batches of lines as a store does, and settle the counts at the end.

    What is no turn by itself is refused at once: its letter goes straight to
    the dead letters. A file may hold the stamps of a replica, as embedded.

    Args:
        settings: Where the brokers are, and the names.
        wait: Whether to wait until what was published is folded.
        progress: Told how much of it is.
        stall_s: How long nothing may move.
    """

    def __init__(
        self,
        settings: ClusterSettings,
        *,
        wait: bool = True,
        progress: Progress | None = None,
        stall_s: float = STALL_S,
    ) -> None:
        self._settings = settings
        self._wait = wait
        self._progress = progress
        self._stall_s = stall_s
        self._watch: FoldWatch | None = None
        self._producer = TurnProducer(
            settings, replica=True, acknowledged=self._acknowledged
        )
        self._opened = AsyncExitStack()
        self._thread = LoopThread("turnstate-publish")
        self._last: Future[None] | None = None

    def __enter__(self) -> Self:
        try:
            self._thread.run(self._open())
        except BaseException:
            self._thread.run(self._opened.aclose())
            self._thread.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self._thread.run(self._opened.aclose())
        finally:
            self._thread.close()

    def submit(
        self, lines: Sequence[bytes], refused: Mapping[int, Reason]
    ) -> "Future[list[Answer]]":
        """Check a batch and hand over what is a turn, in order.

        Answers say what is known by now: taken, or no turn.

        Raises:
            TurnstateError: an earlier batch was not taken.
        """
        answers: list[Answer] = []
        turns: list[tuple[bytes, Draft]] = []
        letters: list[tuple[bytes, InvalidInputError]] = []
        for index, line in enumerate(lines):
            try:
                if index in refused:
                    message, field, code = refused[index]
                    raise InvalidInputError(message, field=field, code=code)
                turns.append(self._producer.checked(line))
            except InvalidInputError as error:
                letters.append((line, error))
                answers.append(Answer(Verdict.REFUSED, 0, None, error))
            else:
                answers.append(_TAKEN)
        if self._watch is not None:
            for _, draft in turns:
                self._watch.expect(draft)
        # One batch at a time: two at once might pass each other while held back.
        if self._last is not None:
            self._last.result()
        self._last = self._thread.submit(self._send(turns, letters))
        answered: Future[list[Answer]] = Future()
        answered.set_result(answers)
        return answered

    def settle(self, counts: Counted) -> None:
        """Wait for every acknowledgement, and for the fold where that is asked.

        Raises:
            UnavailableError: a turn was not acknowledged, or no worker moves.
        """
        if self._last is not None:
            self._last.result()
        self._thread.run(self._producer.flush())
        watch = self._watch
        if watch is None:
            return
        self._thread.run(watch.wait(progress=self._progress, stall_s=self._stall_s))
        counts.accepted = watch.accepted
        counts.duplicates = watch.duplicates
        counts.conflicts = watch.conflicts
        counts.refused += watch.refused
        counts.sessions = {SessionName.from_key(key) for key in watch.sessions}

    async def _open(self) -> None:
        await self._opened.enter_async_context(self._producer)
        if self._wait:
            reader = await self._opened.enter_async_context(
                topic_reader(self._settings)
            )
            watch = FoldWatch(self._settings, reader)
            await watch.begin()
            self._watch = watch

    async def _send(
        self,
        turns: Sequence[tuple[bytes, Draft]],
        letters: Sequence[tuple[bytes, InvalidInputError]],
    ) -> None:
        await self._producer.publish_checked(turns)
        for line, error in letters:
            await self._producer.refuse(line, error)

    def _acknowledged(self, topic: str, partition: int, offset: int) -> None:
        if self._watch is not None:
            self._watch.acknowledged(topic, partition, offset)


