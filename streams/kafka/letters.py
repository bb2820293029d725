"""A dead letter as a record of its topic: the original bytes, and why, in headers."""

from hashlib import blake2b
from typing import Any, Final

from turnstate.agents.ports import Record
from turnstate.schemas.errors import TurnstateError
from turnstate.schemas.limits import DEAD_LETTER_HEAD_BYTES
from turnstate.schemas.wire.packed import CONTENT_TYPE as PACK_TYPE
from turnstate.streams.kafka.topics import MESSAGE_BYTES_MAX

HEADERS_BYTES: Final = 128 << 10
"""Room for the headers and the key of a letter in its message, and for what LZ4
adds to bytes that it cannot shorten."""

KEPT_HEADERS: Final = ("content-type", "request-id", "traceparent")
"""What came with the original and goes along, so that a redrive is like it."""


def letter_row(
    fetched: Any, record: Record, error: TurnstateError, now_ms: int
) -> tuple[bytes | None, bytes, list[tuple[str, bytes]]]:
    """Return key, value and headers of the letter for one refused turn.

    Args:
        fetched: The Kafka record that it came in.
        record: The turn: all of that record, or one of a pack.
        error: Why it was refused.
        now_ms: When.
    """
    raw = record.raw
    whole = len(raw) <= MESSAGE_BYTES_MAX - HEADERS_BYTES
    told: dict[str, str | int | None] = {
        "reason": error.code,
        "field": error.field,
        "message": str(error)[:2000],
        "topic": fetched.topic,
        "partition": record.position.partition,
        "offset": record.position.offset,
        "index": record.position.index,
        "timestamp": fetched.timestamp,
        "attempt": record.attempt,
        "raw-bytes": len(raw),
        "refused-ms": now_ms,
    }
    headers = [
        # What was refused may have been half of a surrogate pair.
        (name, str(value).encode(errors="backslashreplace"))
        for name, value in told.items()
        if value is not None
    ]
    if not whole:
        headers.append(("raw-hash", blake2b(raw, digest_size=32).hexdigest().encode()))
    headers += [
        (name, value)
        for name, value in fetched.headers or ()
        if name in KEPT_HEADERS and value is not None and value != PACK_TYPE.encode()
    ]
    return fetched.key, raw if whole else raw[:DEAD_LETTER_HEAD_BYTES], headers
