"""Operate on dead letters: list, show, send again, discard."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from turnstate.agents.dead_letters import DeadLetter, decode_dead_letter
from turnstate.schemas.admission import Verdict
from turnstate.schemas.errors import InvalidInputError, NotFoundError, TurnstateError
from turnstate.storage.warm.tables import DEAD
from turnstate.streams.documents import Document

if TYPE_CHECKING:
    from turnstate.streams.embedded.store import EmbeddedStore

_KEY_BYTES: Final = 8


def dead_letters(store: "EmbeddedStore") -> Document:
    """Return what was refused, oldest first, without the bytes."""
    rows: list[Document] = []
    for at, row in store.warm.rows(DEAD):
        number = str(int.from_bytes(at, "big"))
        try:
            rows.append(letter_document(number, decode_dead_letter(row)))
        except TurnstateError as error:
            rows.append({"id": number, "reason": error.code, "message": str(error)})
    return {"dead_letters": rows}


def letter_document(number: str, letter: DeadLetter) -> Document:
    """Return a letter's row."""
    return {
        "id": number,
        "reason": letter.reason,
        "field": letter.field,
        "topic": letter.topic,
        "partition": letter.partition,
        "offset": letter.offset,
        "time": letter.time_ms,
        "message": letter.message,
        "bytes": letter.raw_bytes,
        "attempt": letter.attempt,
        "trace": letter.trace,
    }


def dead_letter(store: "EmbeddedStore", number: str) -> DeadLetter:
    """Return one letter with its original bytes.

    Raises:
        NotFoundError: there is none of that number.
        CorruptDataError: it cannot be read.
    """
    row = store.warm.get(DEAD, _key_of(number))
    if row is None:
        raise NotFoundError(
            f"there is no dead letter {number}",
            field="id",
            hint="turnstate dead-letters list",
        )
    return decode_dead_letter(row)


def redrive(store: "EmbeddedStore", numbers: Sequence[str] | None = None) -> Document:
    """Send letters again as they came; None = all that there are.

    A letter goes in the same batch that folds it, or that refuses it again
    with a new letter: a crash between repeats nothing and loses nothing.

    Raises:
        NotFoundError: a named letter is not there; then none is sent.
        InvalidInputError: a named letter holds the beginning of a record only.
    """
    engine = store.engine
    with engine.redriving:
        found = _chosen(store, numbers)
        if numbers is not None:
            for number, letter in found:
                _check_whole(number, letter)
        sent = [
            engine.submit(
                [letter.raw],
                attempts=letter.attempt + 1,
                trusted=letter.trusted,
                settles=[_key_of(number)],
            )
            for number, letter in found
            if letter.raw_hash is None
        ]
        answers = [future.result()[0] for future in sent]
    counts = Counter(answer.verdict for answer in answers)
    return {
        "redriven": len(sent),
        "accepted": counts[Verdict.ACCEPTED],
        "duplicates": counts[Verdict.DUPLICATE] + counts[Verdict.REDELIVERED],
        "dropped": counts[Verdict.DROPPED],
        "refused": counts[Verdict.REFUSED],
        "cut": [number for number, letter in found if letter.raw_hash is not None],
    }


def discard(store: "EmbeddedStore", numbers: Sequence[str]) -> Document:
    """Remove letters for good.

    Raises:
        NotFoundError: one is not there; then none is removed.
    """
    engine, warm = store.engine, store.warm

    def remove() -> int:
        keys = {_key_of(number): number for number in numbers}
        for key, number in keys.items():
            if warm.get(DEAD, key) is None:
                raise NotFoundError(f"there is no dead letter {number}", field="id")
        batch = warm.batch()
        for key in keys:
            batch.delete(DEAD, key)
        warm.write(batch, sync=True)
        return len(keys)

    with engine.redriving:
        return {"discarded": engine.call(remove).result()}


def _chosen(
    store: "EmbeddedStore", numbers: Sequence[str] | None
) -> list[tuple[str, DeadLetter]]:
    if numbers is None:
        return [
            (str(int.from_bytes(at, "big")), decode_dead_letter(row))
            for at, row in store.warm.rows(DEAD)
        ]
    return [(number, dead_letter(store, number)) for number in dict.fromkeys(numbers)]


def _check_whole(number: str, letter: DeadLetter) -> None:
    if letter.raw_hash is not None:
        raise InvalidInputError(
            f"dead letter {number} holds {len(letter.raw)} of {letter.raw_bytes} bytes",
            field="id",
            hint="send the record again from where it came, larger parts by reference",
            code="letter_cut",
        )


def _key_of(number: str) -> bytes:
    if not number.isascii() or not number.isdigit() or len(number) > 18:
        raise NotFoundError(f"there is no dead letter {number!r}", field="id")
    return int(number).to_bytes(_KEY_BYTES, "big")
