"""What is handed to the engine, and what of it the log keeps."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, NamedTuple

from turnstate.agents.ports import Record
from turnstate.agents.session.recorded import FIRST_BYTE
from turnstate.agents.session.step import Answer
from turnstate.schemas.admission import Verdict
from turnstate.schemas.errors import InvalidInputError, UnavailableError
from turnstate.schemas.limits import DEAD_LETTER_BYTES_MAX
from turnstate.schemas.position import Position


class Submission(NamedTuple):
    """Records that were handed over together.

    Attributes:
        records: They.
        attempts: How often they were redriven.
        trusted: Recorded operations are let in, with whatever stamp.
        refused: Place → (message, field, code) of what a reader has refused.
        settles: Keys of dead letters that go with the batch of these records.
        done: Holds an answer for each record, once all are durable or refused.
    """

    records: Sequence[bytes]
    attempts: int
    trusted: bool
    refused: Mapping[int, Sequence[str | None]]
    settles: Sequence[bytes]
    done: "Future[list[Answer]]"


class Task(NamedTuple):
    """Something to be done in the owner's thread.

    Attributes:
        call: Does it.
        done: Holds what it returned, or raised.
    """

    call: Callable[[], Any]
    done: "Future[Any]"

    def run(self) -> None:
        """Do it; whatever it raises belongs to who asked."""
        try:
            self.done.set_result(self.call())
        except BaseException as error:  # noqa: BLE001 - it belongs to who asked
            self.done.set_exception(error)


def records_of(
    submissions: Iterable[Submission], identity: bytes, partition: int, offset: int
) -> list[Record]:
    """Return the records of a group, each with its position in the log.

    Args:
        submissions: The group.
        identity: Of the log.
        partition: Of the log.
        offset: Where the log ends.
    """
    records: list[Record] = []
    for submission in submissions:
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


def kept_in_log(records: Sequence[Record], answers: Sequence[Answer]) -> list[bytes]:
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


def settled_letters(
    submissions: Iterable[Submission], answers: Sequence[Answer]
) -> list[bytes]:
    """Return the keys of dead letters that are done with.

    One whose record has to be sent again is kept: it is the only copy.
    """
    keys: list[bytes] = []
    at = 0
    for submission in submissions:
        end = at + len(submission.records)
        if submission.settles and not any(
            isinstance(answer.error, UnavailableError) for answer in answers[at:end]
        ):
            keys += submission.settles
        at = end
    return keys


class Merged:
    """Put the answers of a submission together whose sessions go separate ways.

    Args:
        whole: The submission.
        answers: Those that are known; the others are given by `part`.
        parts: How many parts there are.
    """

    def __init__(
        self, whole: Submission, answers: Sequence[Answer], parts: int
    ) -> None:
        self._whole = whole
        self._answers = list(answers)
        self._left = parts

    def part(self, places: Sequence[int]) -> Submission:
        """Return the records at some places as a submission of its own."""
        done: Future[list[Answer]] = Future()
        done.add_done_callback(partial(self._take, places))
        records = [self._whole.records[at] for at in places]
        return self._whole._replace(records=records, refused={}, done=done)

    def _take(self, places: Sequence[int], part: "Future[list[Answer]]") -> None:
        error = part.exception()
        if error is not None:
            if not self._whole.done.done():
                self._whole.done.set_exception(error)
            return
        for at, answer in zip(places, part.result(), strict=True):
            self._answers[at] = answer
        self._left -= 1
        if not self._left and not self._whole.done.done():
            self._whole.done.set_result(self._answers)


def _too_long(raw: bytes) -> InvalidInputError:
    return InvalidInputError(
        f"the record has {len(raw)} bytes",
        field="record",
        hint="send larger parts by reference",
        code="too_large",
    )
