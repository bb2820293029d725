"""Read and write turns as protobuf: the same turns, checked as strictly as JSON."""

from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Any, Final

from google.protobuf.message import DecodeError
from msgspec import Raw

from turnstate.schemas.draft import Draft, draft_from_turn
from turnstate.schemas.errors import InvalidInputError
from turnstate.schemas.turn import SeenWire, Slots, Stamp, Tags, Turn
from turnstate.schemas.wire.canonical import canonical_json
from turnstate.schemas.wire.json import RAW_BYTES_MAX
from turnstate.schemas.wire.proto import turnstate_pb2 as pb
from turnstate.schemas.wire.protobuf_walk import TURN, checked
from turnstate.schemas.wire.protobuf_writer import (
    UNKNOWN_FIELDS,
    turn_to_protobuf,
    unknown_op,
)
from turnstate.schemas.wire.scan import too_large
from turnstate.schemas.wire.turn_bytes import draft_from_bytes

__all__ = [
    "UNKNOWN_FIELDS",
    "draft_from_bytes",
    "draft_from_protobuf",
    "turn_from_protobuf",
    "turn_to_protobuf",
]

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
        raise unknown_op(str(number))
    return _OPERATION_NAMES[number] if number else None


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
