"""Walk a protobuf message field by field, and name the first thing wrong with it."""

from typing import Final, NamedTuple, NoReturn

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

from turnstate.schemas.errors import InvalidInputError
from turnstate.schemas.wire.proto import turnstate_pb2
from turnstate.schemas.wire.scan import dotted

VARINT, FIXED64, LENGTH, FIXED32 = _WIRE_TYPES = (0, 1, 2, 5)
"""Wire types; groups (3 and 4) are in no message of ours."""

_FIXED_BYTES: Final = {FIXED64: 8, FIXED32: 4}
_NUMBER_MAX: Final = (1 << 29) - 1
_VARINT_BYTES_MAX: Final = 10

_TEXT, _BYTES, _MESSAGE, _MAP, _SCALAR = range(5)
"""What is to be looked at within a field."""

_STEPS: Final[dict[str, str | int]] = {
    "Turn.extra": "",
    "Parts.part": "",
    "References.id": "",
    "Dot.replica": 0,
    "Dot.counter": 1,
    "Clock.spans": "",
    "Spans.up_to": "",
    "Spans.intervals": "",
    "Intervals.bounds": "",
}
"""How a field is called in a path, where JSON has a list or nothing in its place."""

Step = str | int
Shape = dict[int, "_Field"]
"""The fields of a message by number."""


class _Field(NamedTuple):
    """What a field may be.

    Attributes:
        step: Its name in a path: that of JSON; of a choice, the choice's.
        wire: Its wire type.
        kind: What is looked at within it.
        repeated: Whether it may come more than once.
        slot: Its number; of a choice, one for all that can be chosen.
        inner: The fields of the message that it holds; of a map, its entry's.
    """

    step: Step
    wire: int
    kind: int
    repeated: bool
    slot: int
    inner: Shape


def checked(raw: bytes, shape: Shape) -> bytes:
    r"""Refuse a message that readers may take in two ways; return what is unknown.

    Readers of protobuf let much through: of a field given twice the last one
    counts, one of a wrong wire type is put aside with the unknown ones, of a
    choice the last one is chosen. JSON doors refuse all of these, so this does.

    Args:
        raw: The message.
        shape: Its fields: `TURN` or `FRAME`.

    Returns:
        The fields with numbers that are not known, one after another as they
        came: a newer producer's. Inside a field everything must be known.

    Raises:
        InvalidInputError: with the dotted path of the field and the code
            `not_protobuf` (malformed, cut), `invalid` (wrong type),
            `doubled_key`, `unknown_field`, `not_utf8` or `lone_surrogate`.

    Example:
        >>> checked(bytes([0x12, 1, 116, 0xF2, 3, 1, 33]), TURN)
        b'\xf2\x03\x01!'
        >>> checked(bytes([0x12, 9, 116]), TURN)
        Traceback (most recent call last):
        ...
        turnstate.schemas.errors.InvalidInputError: tenant ends too soon (send all)
    """
    walk = _Walk(raw)
    walk.message(0, len(raw), shape, top=True)
    return b"".join(walk.unknown)


class _Walk:
    """One pass over the bytes; `path` says where it stands."""

    __slots__ = ("path", "raw", "unknown")

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.path: list[Step] = []
        self.unknown: list[bytes] = []

    def message(self, at: int, end: int, shape: Shape, *, top: bool = False) -> None:
        """Walk the fields between two places."""
        raw = self.raw
        path = self.path
        given: set[int] = set()
        keys: dict[int, set[bytes]] = {}
        counts: dict[int, int] = {}
        while at < end:
            start = at
            tag = raw[at]
            at += 1
            if tag > 127:
                tag, at = self._varint(start, end)
            field = shape.get(tag >> 3)
            if field is None or tag & 7 not in _WIRE_TYPES:
                at = self._unknown(start, tag, at, end, top=top)
                continue
            step, wire, kind, repeated, slot, inner = field
            path.append(step)
            self._check_type(tag & 7, wire, kind, repeated=repeated)
            if repeated:
                count = counts[slot] = counts.get(slot, -1) + 1
                if kind != _MAP:
                    path.append(count)
            elif slot in given:
                self._refuse("is given twice", "doubled_key", "leave one")
            else:
                given.add(slot)
            stop, at = self._span(tag & 7, at, end)
            if kind == _TEXT:
                self._text(at, stop)
            elif kind == _MESSAGE:
                self.message(at, stop, inner)
            elif kind == _MAP:
                self._entry(at, stop, inner, keys.setdefault(slot, set()))
            elif kind == _SCALAR and wire == VARINT and tag & 7 == LENGTH:
                while at < stop:
                    at = self._varint(at, stop)[1]
            at = stop
            if repeated and kind != _MAP:
                path.pop()
            path.pop()

    def _entry(self, at: int, end: int, shape: Shape, keys: set[bytes]) -> None:
        """Walk one entry of a map; its key may stand behind its value."""
        found: dict[int, tuple[int, int]] = {}
        while at < end:
            tag, at = self._varint(at, end)
            number = tag >> 3
            if number not in shape:
                self._refuse(f"has an unknown field {number}", "unknown_field", _CLOSED)
            if number in found:
                self._refuse("has an entry given twice", "doubled_key", "leave one")
            self._check_type(tag & 7, shape[number].wire, _TEXT, repeated=False)
            stop, at = self._span(tag & 7, at, end)
            found[number] = at, stop
            at = stop
        start, stop = found.get(1, (end, end))
        key = self.raw[start:stop]
        self._text(start, stop)
        self.path.append(key.decode())
        if key in keys:
            self._refuse("is given twice", "doubled_key", "leave one")
        keys.add(key)
        if shape[2].kind == _MESSAGE:
            self.message(*found.get(2, (end, end)), shape[2].inner)
        self.path.pop()

    def _span(self, wire: int, at: int, end: int) -> tuple[int, int]:
        """Return (where a value ends, where it begins)."""
        if wire == VARINT:
            stop = self._varint(at, end)[1]
        elif wire == LENGTH:
            length, at = self._varint(at, end)
            stop = at + length
        else:
            stop = at + _FIXED_BYTES[wire]
        if stop > end:
            self._refuse("ends too soon", "not_protobuf", "send all")
        return stop, at

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        """Read a number; return it and the place behind it."""
        raw = self.raw
        value = shift = 0
        while True:
            if at >= end:
                self._refuse("ends too soon", "not_protobuf", "send all")
            byte = raw[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if value >> 64 or (byte > 127 and shift == 7 * _VARINT_BYTES_MAX):
                self._refuse("has a number beyond 64 bits", "not_protobuf", _HINT)
            if byte < 128:
                return value, at

    def _unknown(self, start: int, tag: int, at: int, end: int, *, top: bool) -> int:
        """Put a field of a newer producer aside; return the place behind it."""
        number, wire = tag >> 3, tag & 7
        if not 0 < number <= _NUMBER_MAX or wire not in _WIRE_TYPES:
            self._refuse(f"is no protobuf at byte {start}", "not_protobuf", _HINT)
        self.path.append(f"#{number}")
        if not top:
            self._refuse("is unknown", "unknown_field", _CLOSED)
        stop, _ = self._span(wire, at, end)
        self.path.pop()
        self.unknown.append(self.raw[start:stop])
        return stop

    def _check_type(self, wire: int, right: int, kind: int, *, repeated: bool) -> None:
        if wire == right:
            return
        if repeated and kind == _SCALAR and wire == LENGTH:
            return  # Numbers may come one by one, or packed.
        self._refuse(
            f"is of the wrong type: wire type {right} is expected, got {wire}",
            None,
            "see the fields of a turn",
        )

    def _text(self, at: int, stop: int) -> None:
        try:
            self.raw[at:stop].decode()
        except UnicodeDecodeError as error:
            half = self.raw[at + error.start : stop][:2]
            if len(half) == 2 and half[0] == 0xED and half[1] >= 0xA0:
                self._refuse(
                    "holds half of a surrogate pair",
                    "lone_surrogate",
                    "send whole characters",
                )
            self._refuse("holds bytes that are not UTF-8", "not_utf8", "send UTF-8")

    def _refuse(self, what: str, code: str | None, hint: str) -> NoReturn:
        place = dotted("", self.path)
        raise InvalidInputError(
            f"{place or 'the record'} {what}", field=place or None, hint=hint, code=code
        ) from None


_HINT: Final = "send one message turnstate.v1.Turn"
_CLOSED: Final = "new fields stand in the turn itself; upgrade, then redrive"

_Types = FieldDescriptorProto


def _shapes(file: FileDescriptorProto) -> dict[str, Shape]:
    """Return the shape of every message, by its name within the package."""
    shapes: dict[str, Shape] = {}
    entries: set[str] = set()
    found: list[tuple[str, DescriptorProto]] = []
    for message in file.message_type:
        found.append((message.name, message))
        for entry in message.nested_type:
            assert entry.options.map_entry, "only maps nest messages"
            name = f"{message.name}.{entry.name}"
            found.append((name, entry))
            entries.add(name)
    for name, _ in found:
        shapes[name] = {}
    for name, message in found:
        for field in message.field:
            inner = field.type_name.removeprefix(f".{file.package}.")
            shapes[name][field.number] = _field_of(
                name, message, field, shapes.get(inner, {}), is_map=inner in entries
            )
    return shapes


def _field_of(
    owner: str,
    message: DescriptorProto,
    field: FieldDescriptorProto,
    inner: Shape,
    *,
    is_map: bool,
) -> _Field:
    wire, kind = VARINT, _SCALAR
    if field.type == _Types.TYPE_DOUBLE:
        wire = FIXED64
    elif field.type in (
        _Types.TYPE_STRING,
        _Types.TYPE_BYTES,
        _Types.TYPE_MESSAGE,
    ):
        wire = LENGTH
        kind = {_Types.TYPE_STRING: _TEXT, _Types.TYPE_BYTES: _BYTES}.get(
            field.type, _MAP if is_map else _MESSAGE
        )
    step: Step = field.name
    slot = field.number
    if field.HasField("oneof_index") and not field.proto3_optional:
        step = message.oneof_decl[field.oneof_index].name
        slot = -1 - field.oneof_index
    return _Field(
        _STEPS.get(f"{owner}.{field.name}", step),
        wire,
        kind,
        field.label == _Types.LABEL_REPEATED,
        slot,
        inner,
    )


_ALL: Final = _shapes(
    FileDescriptorProto.FromString(turnstate_pb2.DESCRIPTOR.serialized_pb)
)
TURN: Final = _ALL["Turn"]
"""The fields of a turn."""

FRAME: Final = _ALL["Frame"]
"""The fields of a frame's envelope."""
