"""Read and write turns as protobuf: the same turns, checked as strictly as JSON."""

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any, Final, cast

import msgspec
from google.protobuf.message import DecodeError
from msgspec import UNSET, Raw

from turnstate.schemas.draft import Draft, draft_from_turn
from turnstate.schemas.errors import InvalidInputError
from turnstate.schemas.turn import OPERATIONS, SeenWire, Slots, Stamp, Tags, Turn
from turnstate.schemas.wire.canonical import canonical_json
from turnstate.schemas.wire.json import RAW_BYTES_MAX
from turnstate.schemas.wire.proto import turnstate_pb2 as pb
from turnstate.schemas.wire.protobuf_walk import TURN, checked
from turnstate.schemas.wire.scan import too_large
from turnstate.schemas.wire.turn_bytes import draft_from_bytes

__all__ = [
    "UNKNOWN_FIELDS",
    "draft_from_bytes",
    "draft_from_protobuf",
    "turn_from_protobuf",
    "turn_to_protobuf",
]

UNKNOWN_FIELDS: Final = "protobuf_fields"
"""Where a turn keeps numbers that this version does not know: as a field of its
`extra`, base64 in a JSON string. They are written back as the fields they were."""

_NEEDED: Final = ("tenant", "session", "role")
_OPERATION_NAMES: Final = {
    number: name.removeprefix("OPERATION_").lower()
    for name, number in pb.Operation.items()
}

def turn_from_protobuf(raw: bytes) -> Turn:
    """Read one turn from a message `turnstate.v1.Turn`.

    Raises:
        InvalidInputError: the field at fault is named where there is one, as
            JSON names it; malformed bytes have the code `not_protobuf`.

    Example:
        >>> turn = Turn("t", "s", "user", content=None)
        >>> turn_from_protobuf(turn_to_protobuf(turn)) == turn
        True
    """
    turn = _read(raw)
    # JSON doors are handed JSON by their reader; here any bytes may stand for it.
    changes: dict[str, Any] = {}
    for name, value in (("metadata", turn.metadata), ("tool_calls", turn.tool_calls)):
        if value is not None:
            changes[name] = _json(value, name, depth=1)
    if isinstance(turn.content, list):
        changes["content"] = [
            _json(part, f"content[{index}]", depth=2)
            for index, part in enumerate(turn.content)
        ]
    if turn.slots is not None and turn.slots.set is not None:
        values = {
            name: _json(value, f"slots.set.{name}", depth=3)
            for name, value in turn.slots.set.items()
        }
        changes["slots"] = Slots(values, turn.slots.delete)
    if turn.extra is not None:
        changes["extra"] = {
            name: canonical_json(value, field=name, depth=1)
            for name, value in turn.extra.items()
        }
    return turn.with_(**changes) if changes else turn


def draft_from_protobuf(raw: bytes, *, recorded: bool = False) -> Draft:
    """Read one turn and check all of it, as `draft_from_json` does.

    Raises:
        InvalidInputError: the field at fault is named where there is one.
    """
    return draft_from_turn(_read(raw), recorded=recorded)


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


# -- reading ------------------------------------------------------------------


def _read(raw: bytes) -> Turn:
    """Read a turn; what its JSON bytes hold is not looked at.

    A message that the library gives back byte for byte holds no field twice,
    none of a wrong type and none unknown; any other is walked.
    """
    if len(raw) > RAW_BYTES_MAX:
        raise too_large(len(raw))
    message = pb.Turn()
    try:
        message.ParseFromString(raw)
    except DecodeError as error:
        checked(raw, TURN)
        raise InvalidInputError(
            "the record is no protobuf",
            hint="send one message turnstate.v1.Turn",
            code="not_protobuf",
        ) from error
    message.DiscardUnknownFields()
    unknown = b""
    if message.SerializeToString(deterministic=True) != raw:
        unknown = checked(raw, TURN)
    fields: dict[str, Any] = {}
    for field, value in message.ListFields():
        name = field.name
        reader = _READERS.get(name)
        if reader is None:
            fields[name] = value
        else:
            fields[reader[0]] = reader[1](value)
    for name in _NEEDED:
        if name not in fields:
            raise InvalidInputError(f"{name} is missing", field=name, hint="add it")
    if unknown:
        extra = fields.setdefault("extra", {})
        if UNKNOWN_FIELDS in extra:
            raise InvalidInputError(
                f"{UNKNOWN_FIELDS} is given twice",
                field=UNKNOWN_FIELDS,
                hint="leave one: the name stands for fields of a newer version",
                code="doubled_key",
            )
        extra[UNKNOWN_FIELDS] = b'"' + b64encode(unknown) + b'"'
    return Turn(**fields)


def _json(value: Raw, field: str, *, depth: int) -> Raw:
    return Raw(canonical_json(bytes(value), field=field, depth=depth))


def _raw_map(values: Mapping[str, bytes]) -> dict[str, Raw]:
    """Return JSON values by name, sorted: the message has no order of its own."""
    return {name: Raw(values[name]) for name in sorted(values)}


def _read_parts(parts: pb.Parts) -> list[Raw]:
    return [Raw(part) for part in parts.part]


def _read_references(references: pb.References) -> str | list[str]:
    """Return one id as such: both forms mean the same."""
    ids = list(references.id)
    return ids[0] if len(ids) == 1 else ids


def _read_slots(slots: pb.Slots) -> Slots:
    return Slots(_raw_map(slots.set) or None, list(slots.delete) or None)


def _read_tags(tags: pb.Tags) -> Tags:
    return Tags(list(tags.add) or None, list(tags.remove) or None)


def _read_spans(spans: Mapping[str, pb.Spans]) -> SeenWire:
    return {
        replica: found.up_to
        if (found := spans[replica]).HasField("up_to")
        else list(found.intervals.bounds)
        for replica in sorted(spans)
    }


def _read_stamp(stamp: pb.Stamp) -> Stamp:
    for name in ("dot", "lamport"):
        if not stamp.HasField(name):
            raise _missing(f"stamp.{name}")
    dot = stamp.dot
    for place, name in enumerate(("replica", "counter")):
        if not dot.HasField(name):
            raise _missing(f"stamp.dot[{place}]")
    incarnation = stamp.incarnation if stamp.HasField("incarnation") else 1
    seen = _read_spans(stamp.seen)
    return Stamp((dot.replica, dot.counter), stamp.lamport, seen, incarnation)


def _missing(field: str) -> InvalidInputError:
    return InvalidInputError(f"{field} is missing", field=field, hint="add it")


def _read_operation(number: int) -> str | None:
    """Return the name of an operation; unspecified = none, as in a turn of text."""
    if number not in _OPERATION_NAMES:
        raise _unknown_op(str(number))
    return _OPERATION_NAMES[number] if number else None


def _unknown_op(shown: str) -> InvalidInputError:
    return InvalidInputError(
        f"op {shown} is unknown",
        field="op",
        hint=f"send one of {', '.join(OPERATIONS)}",
        code="unknown_op",
    )


def _nothing(_: object) -> None:
    """Read an explicit null."""


_READERS: Final[dict[str, tuple[str, Callable[[Any], Any]]]] = {
    "content_text": ("content", str),
    "content_parts": ("content", _read_parts),
    "content_null": ("content", _nothing),
    "parent_ids": ("parent", _read_references),
    "parent_null": ("parent", _nothing),
    "time_text": ("time", str),
    "time_ms": ("time", int),
    "to_session": ("to", str),
    "to_clock": ("to", lambda clock: _read_spans(clock.spans)),
    "slots": ("slots", _read_slots),
    "tags": ("tags", _read_tags),
    "stamp": ("stamp", _read_stamp),
    "op": ("op", _read_operation),
    "metadata": ("metadata", Raw),
    "tool_calls": ("tool_calls", Raw),
    "usage": ("usage", lambda usage: {name: usage[name] for name in sorted(usage)}),
    "extra": ("extra", lambda extra: {name: extra[name] for name in sorted(extra)}),
}
"""Fields that are not what a `Turn` has: the field there, and how it is made."""


# -- writing ------------------------------------------------------------------


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
        raise _unknown_op(shown if len(shown) <= 80 else shown[:80] + "…")
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
