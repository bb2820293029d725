"""What a record of the topic of turns brings: turns, or why it brings none."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from turnstate.agents.ports import Record
from turnstate.schemas.errors import InvalidInputError
from turnstate.schemas.position import Position
from turnstate.schemas.wire.packed import CONTENT_TYPE as PACK_TYPE
from turnstate.schemas.wire.packed import MARK, unpack_turns

CONTENT_TYPE: Final = "content-type"

TRACEPARENT: Final = "traceparent"
ATTEMPT: Final = "attempt"

_ATTEMPT_DIGITS_MAX: Final = 4
_HEADER_BYTES_MAX: Final = 1024
"""A header that says more is not one of ours."""


def headers_of(record: Any) -> dict[str, str]:
    """Return the headers that can be read as text, the last of each name.

    Headers are hints: one that is missing, doubled or no text is no reason to
    refuse the turn.
    """
    found: dict[str, str] = {}
    for name, value in record.headers or ():
        if value is not None and len(value) <= _HEADER_BYTES_MAX:
            try:
                found[name] = value.decode()
            except UnicodeDecodeError:
                continue
    return found


def turns_of(log: bytes, fetched: Iterable[Any]) -> Iterator[Record]:
    """Yield a record for each turn of fetched Kafka records, packed ones too.

    Args:
        log: The 16 bytes of the topic's id.
        fetched: Records of one partition, in order.
    """
    for each in fetched:
        at = Position(log, each.partition, each.offset)
        if each.value is None:
            yield Record(b"", at, refusal=_tombstone(), key=each.key)
            continue
        told = headers_of(each) if each.headers else {}
        content_type = told.get(CONTENT_TYPE)
        attempt = _attempt(told)
        if content_type == PACK_TYPE or each.value[:1] == MARK:
            yield from _unpacked(each.value, at, attempt)
            continue
        yield Record(
            each.value, at, attempt, key=each.key, content_type=content_type
        )


def _unpacked(value: bytes, at: Position, attempt: int) -> Iterator[Record]:
    """Yield the turns of a pack; one that cannot be read is one refusal."""
    try:
        turns = unpack_turns(value)
    except InvalidInputError as error:
        yield Record(value, at, attempt, refusal=error)
        return
    for index, turn in enumerate(turns):
        place = Position(at.log, at.partition, at.offset, index)
        yield Record(turn, place, attempt)


def _attempt(told: Mapping[str, str]) -> int:
    text = told.get(ATTEMPT, "")
    if text.isascii() and text.isdigit() and len(text) <= _ATTEMPT_DIGITS_MAX:
        return int(text)
    return 0


def _tombstone() -> InvalidInputError:
    return InvalidInputError(
        "a record without a value is no turn",
        field="value",
        hint="to erase a session publish a turn with op erase",
        code="tombstone",
    )
