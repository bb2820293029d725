"""Write turns as protobuf, whatever they were read from."""

from base64 import b64decode, b64encode
from collections.abc import Callable
from math import isfinite
from typing import Any, Final, cast

import msgspec
from msgspec import UNSET, Raw

from turnstate.schemas.errors import InvalidInputError
from turnstate.schemas.turn import OPERATIONS, SeenWire, Slots, Stamp, Tags, Turn
from turnstate.schemas.wire.proto import turnstate_pb2 as pb
from turnstate.schemas.wire.protobuf_walk import TURN, checked

UNKNOWN_FIELDS: Final = "protobuf_fields"
"""Where a turn keeps numbers that this version does not know: as a field of its
`extra`, base64 in a JSON string. They are written back as the fields they were."""


def turn_to_protobuf(turn: Turn) -> bytes:
    r"""Write a turn; equal turns have equal bytes in one version of the library.

    Raises:
        InvalidInputError: a value is of no type that a turn may have, or beyond
            what the message can hold.

    Example:
        >>> turn_to_protobuf(Turn("t", "s", "user"))
        b'\x12\x01t\x1a\x01s*\x04user'
    """
    message = pb.Turn()
    unknown = b""
    for name in Turn.__struct_fields__:
        value: Any = getattr(turn, name)
        if value is UNSET or (value is None and name not in ("content", "parent")):
            continue
        try:
            if name == "extra":
                unknown = _write_extra(message, turn.extra or {})
            elif name in _WRITERS:
                _WRITERS[name](message, value)
            else:
                setattr(message, name, value)
        except UnicodeEncodeError as error:
            raise InvalidInputError(
                f"{name} holds half of a surrogate pair",
                field=name,
                hint="send whole characters",
                code="lone_surrogate",
            ) from error
        except (TypeError, ValueError, AttributeError) as error:
            raise InvalidInputError(
                f"{name} cannot be written as protobuf: {error}",
                field=name,
                hint="see the fields of a turn",
            ) from error
    return message.SerializeToString(deterministic=True) + unknown


def unknown_op(shown: str) -> InvalidInputError:
    """Return how an operation of no known name is refused."""
    return InvalidInputError(
        f"op {shown} is unknown",
        field="op",
        hint=f"send one of {', '.join(OPERATIONS)}",
        code="unknown_op",
    )


def _write_content(message: pb.Turn, content: object) -> None:
    if content is None:
        message.content_null.SetInParent()
    elif isinstance(content, list):
        message.content_parts.SetInParent()
        parts = cast("list[Raw]", content)
        message.content_parts.part.extend(map(bytes, parts))
    else:
        message.content_text = _text(content)


def _write_parent(message: pb.Turn, parent: object) -> None:
    if parent is None:
        message.parent_null.SetInParent()
        return
    message.parent_ids.SetInParent()
    names = cast("list[str]", parent) if isinstance(parent, list) else [_text(parent)]
    message.parent_ids.id.extend(names)


def _write_slots(message: pb.Turn, slots: Slots) -> None:
    message.slots.SetInParent()
    for name, value in (slots.set or {}).items():
        message.slots.set[name] = bytes(value)
    message.slots.delete.extend(slots.delete or ())


def _write_tags(message: pb.Turn, tags: Tags) -> None:
    message.tags.SetInParent()
    message.tags.add.extend(tags.add or ())
    message.tags.remove.extend(tags.remove or ())


def _write_usage(message: pb.Turn, usage: dict[str, int]) -> None:
    for name, amount in usage.items():
        message.usage[name] = amount


def _write_time(message: pb.Turn, time: int | str) -> None:
    if isinstance(time, str):
        message.time_text = time
    else:
        message.time_ms = time


def _write_to(message: pb.Turn, to: str | SeenWire) -> None:
    if isinstance(to, str):
        message.to_session = to
    else:
        message.to_clock.SetInParent()
        _write_spans(message.to_clock.spans, to)


def _write_spans(spans: Any, vector: SeenWire) -> None:
    for replica, bounds in vector.items():
        if isinstance(bounds, int):
            spans[replica].up_to = bounds
        else:
            spans[replica].intervals.SetInParent()
            spans[replica].intervals.bounds.extend(bounds)


def _write_stamp(message: pb.Turn, stamp: Stamp) -> None:
    written = message.stamp
    written.dot.replica, written.dot.counter = stamp.dot
    written.lamport = stamp.lamport
    _write_spans(written.seen, stamp.seen)
    if stamp.incarnation != 1:
        written.incarnation = stamp.incarnation


def _write_operation(message: pb.Turn, op: str) -> None:
    if op not in OPERATIONS:
        shown = repr(op)
        raise unknown_op(shown if len(shown) <= 80 else shown[:80] + "…")
    number = pb.Operation.Value(f"OPERATION_{op.upper()}")
    message.op = cast("pb.Operation", number)


def _write_confidence(message: pb.Turn, confidence: float) -> None:
    if not isfinite(confidence):
        raise InvalidInputError(
            "confidence is no finite number",
            field="confidence",
            hint="leave it out",
            code="number",
        )
    message.confidence = confidence


def _write_metadata(message: pb.Turn, metadata: Raw) -> None:
    message.metadata = bytes(metadata)


def _write_tool_calls(message: pb.Turn, tool_calls: Raw) -> None:
    message.tool_calls = bytes(tool_calls)


def _write_extra(message: pb.Turn, extra: dict[str, bytes]) -> bytes:
    """Put named fields into their map; return the unknown ones as they came."""
    unknown = b""
    for name, value in extra.items():
        if name == UNKNOWN_FIELDS:
            unknown = _unknown_fields(value)
            if unknown:
                continue
        message.extra[name] = value
    return unknown


def _unknown_fields(value: bytes) -> bytes:
    """Return the fields that base64 stands for, if this version reads it so.

    Anybody may send a field of that name as JSON; it becomes protobuf fields
    only if it is exactly what a reader of those would make of them.
    """
    try:
        text = msgspec.json.decode(value, type=str)
        fields = b64decode(text, validate=True)
        is_ours = b64encode(fields) == text.encode() and checked(fields, TURN) == fields
    except (ValueError, InvalidInputError):
        return b""
    return fields if is_ours else b""


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("neither text nor a list")
    return value


_WRITERS: Final[dict[str, Callable[[pb.Turn, Any], None]]] = {
    "content": _write_content,
    "parent": _write_parent,
    "slots": _write_slots,
    "tags": _write_tags,
    "usage": _write_usage,
    "time": _write_time,
    "to": _write_to,
    "stamp": _write_stamp,
    "op": _write_operation,
    "confidence": _write_confidence,
    "metadata": _write_metadata,
    "tool_calls": _write_tool_calls,
}
"""How fields are written that are not set as they are."""
