"""The headers that go with a turn: what it is, who asked, in which trace."""

import re
from typing import Final, NamedTuple

from turnstate.schemas.errors import InvalidInputError
from turnstate.schemas.wire.turn_bytes import PROTOBUF_TYPE, is_protobuf
from turnstate.streams.kafka.receipts import Headers

JSON_TYPE: Final = "application/json"

_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


class Unsent(NamedTuple):
    """What a letter tells of a record, where there never was one."""

    topic: str
    timestamp: int
    key: bytes | None
    headers: Headers


def turn_headers(
    content_type: str, request_id: str, traceparent: str | None = None
) -> Headers:
    """Return the headers of a record with one turn or a pack of them."""
    return [
        ("content-type", content_type.encode()),
        ("request-id", request_id.encode()),
        *trace_headers(traceparent),
    ]


def trace_headers(traceparent: str | None) -> Headers:
    """Return the header of a trace, if there is one."""
    return [] if traceparent is None else [("traceparent", traceparent.encode())]


def content_type_of(turn: bytes) -> str:
    """Return how a turn by itself is labelled.

    Example:
        >>> content_type_of(b'{"tenant":"t"}')
        'application/json'
    """
    return PROTOBUF_TYPE if is_protobuf(turn) else JSON_TYPE


def check_traceparent(traceparent: str | None) -> None:
    """Make sure that a trace context is one.

    Raises:
        InvalidInputError: it is none.

    Example:
        >>> check_traceparent("00-x")
        Traceback (most recent call last):
        ...
        turnstate.schemas.errors.InvalidInputError: '00-x' is no traceparent \
(see W3C Trace Context)
    """
    if traceparent is not None and not _TRACEPARENT.fullmatch(traceparent):
        raise InvalidInputError(
            f"{traceparent!r} is no traceparent",
            field="traceparent",
            hint="see W3C Trace Context",
        )
