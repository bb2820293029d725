"""A letter that a worker or a producer writes is read back from its record."""

from typing import Any, NamedTuple

import pytest

from turnstate.agents.ports import Record
from turnstate.schemas.errors import CorruptDataError, InvalidInputError, NotFoundError
from turnstate.schemas.position import Position
from turnstate.streams.kafka.letter_records import (
    DISCARDED,
    REDRIVEN,
    LetterId,
    kept_letter,
    settled_offset,
    settling_headers,
)
from turnstate.streams.kafka.letters import letter_row

TRACE = ("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")


class Fetched(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes
    headers: Any


def letter(raw: bytes = b"nope", **changes: Any) -> Fetched:
    came = Fetched("turns", 3, 17, 5, b"key", raw, [TRACE, ("other", b"x")])
    error = InvalidInputError("bad \ud800", field="slots.x", hint="mend", code="why")
    record = Record(raw, Position(b"log", 3, 17, 2), attempt=4)
    key, value, headers = letter_row(came, record, error, 99)
    told = {**dict(headers), **changes}
    kept = [(name, told[name]) for name in told if told[name] is not None]
    return Fetched("dead-letters", 3, 40, 6, key, value, kept)


def test_a_letter_comes_back() -> None:
    kept = kept_letter(letter(message=b"bad"))
    found = kept.letter
    assert (kept.id.name(), kept.index, kept.key) == ("3-40", 2, b"key")
    assert kept.refused == ("turns", 3, 17, 2)
    assert list(kept.headers) == [TRACE]
    assert (found.reason, found.field, found.raw, found.raw_bytes) == (
        "why",
        "slots.x",
        b"nope",
        4,
    )
    assert (found.time_ms, found.attempt, found.raw_hash) == (99, 4, None)


def test_a_cut_letter_says_so() -> None:
    kept = kept_letter(letter(bytes(17 << 20)))
    assert kept.letter.raw_hash is not None
    assert len(kept.letter.raw) < kept.letter.raw_bytes == 17 << 20


@pytest.mark.parametrize(
    "changes",
    [
        {"reason": None},
        {"offset": None},
        {"offset": b"x"},
        {"attempt": b""},
        {"message": b"\xff"},
        {"raw-hash": b"zz"},
    ],
)
def test_a_record_that_is_no_letter_is_named(changes: dict[str, Any]) -> None:
    with pytest.raises(CorruptDataError):
        kept_letter(letter(**changes))


def test_what_never_came_to_a_topic_has_no_place() -> None:
    kept = kept_letter(letter(offset=b"-1", partition=b"-1"))
    assert kept.refused is None


def test_a_settling_record_names_its_letter() -> None:
    for how in (REDRIVEN, DISCARDED):
        assert settled_offset(settling_headers(LetterId(3, 40), how)) == 40
    assert settled_offset([]) is None
    assert settled_offset([("settles", b"-3")]) is None
    assert settled_offset([("settles", b"9" * 30)]) is None


@pytest.mark.parametrize(
    "name", ["", "3", "3-", "a-b", "3-4-5", "\u0663-\u0664", "3-" + "9" * 30]
)
def test_a_name_that_no_letter_has_is_not_found(name: str) -> None:
    with pytest.raises(NotFoundError):
        LetterId.read(name)
