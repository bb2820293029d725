"""Write protobuf by hand, wrong as it may be, and turns of JSON as protobuf."""

import json
import struct
from collections.abc import Callable, Iterator
from typing import Final

VARINT, FIXED64, LENGTH = 0, 1, 2

TEXTS: Final = {
    "tenant": 2,
    "session": 3,
    "role": 5,
    "turn_id": 8,
    "name": 19,
    "intent": 21,
    "action": 22,
    "tool_call_id": 23,
    "user": 26,
    "branch": 27,
    "continues": 28,
    "stage": 29,
    "request_id": 30,
    "target": 33,
}
NUMBERS: Final = {"if_version": 31, "incarnation": 36}
JSON_VALUES: Final = {"metadata": 10, "tool_calls": 15}
OPERATIONS: Final = ("edit", "redact", "rollback", "fork", "end", "erase")
UNKNOWN: Final = 15
"""A number that no message inside a turn has."""

_FAR: Final = 1 << 62

_decoder: Final = json.JSONDecoder(strict=False)


def varint(value: int) -> bytes:
    """Return a number in groups of seven bits, negative ones as two's complement."""
    value &= (1 << 64) - 1
    written = bytearray()
    while value > 127:
        written.append(value & 127 | 128)
        value >>= 7
    return bytes([*written, value])


def number(at: int, value: int) -> bytes:
    """Return a field of wire type 0."""
    return varint(at << 3) + varint(value)


def signed(at: int, value: int) -> bytes:
    """Return a field of type sint64."""
    return number(at, value << 1 if value >= 0 else (-value << 1) - 1)


def held(at: int, value: bytes) -> bytes:
    """Return a field of wire type 2: text, bytes, a message."""
    return varint(at << 3 | LENGTH) + varint(len(value)) + value


def double(at: int, value: float) -> bytes:
    """Return a field of wire type 1."""
    return varint(at << 3 | FIXED64) + struct.pack("<d", value)


def fields_of(raw: bytes) -> list[bytes]:
    """Return the fields of a well-formed message, one by one."""
    found: list[bytes] = []
    at = 0
    while at < len(raw):
        start = at
        tag, at = _number_at(raw, at)
        value, behind = (8, at) if tag & 7 == FIXED64 else _number_at(raw, at)
        at = behind if tag & 7 == VARINT else behind + value
        found.append(raw[start:at])
    return found


def _number_at(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (raw[at] & 127) << shift
        at += 1
        if raw[at - 1] < 128:
            return value, at
        shift += 7


def as_protobuf(line: bytes) -> bytes:
    """Return a JSON turn as protobuf, with whatever is wrong with it.

    What has no counterpart (a line that is no JSON object) stays as it is; a
    value of a wrong type becomes a field of a wrong wire type.
    """
    try:
        pairs = list(_pairs(line.decode("latin-1")))
    except (ValueError, RecursionError):
        return line
    fields: list[bytes] = [
        _field(_text(name).decode("utf-8", "replace"), value) for name, value in pairs
    ]
    # As all writers do: by number. Equal ones stay in their order.
    fields.sort(key=_tag)
    return b"".join(fields)


def _tag(field: bytes) -> int:
    return _number_at(field, 0)[0] if field else 0


def _pairs(text: str) -> Iterator[tuple[bytes, bytes]]:
    """Yield (key, value) of a JSON object as they are spelled, doubled ones too."""
    at = _behind_space(text, 0)
    if text[at : at + 1] != "{":
        raise ValueError("no object")
    at = _behind_space(text, at + 1)
    sign = text[at : at + 1]
    while sign != "}":
        key, at = _value(text, at)
        if key[:1] != b'"' or text[at : at + 1] != ":":
            raise ValueError("no key")
        value, at = _value(text, at + 1)
        yield key, value
        sign = text[at : at + 1]
        if sign not in (",", "}"):
            raise ValueError("no end")
        at += sign == ","
    if _behind_space(text, at + 1) != len(text):
        raise ValueError("more")


def _items(raw: bytes) -> list[bytes]:
    """Return the items of a JSON array as they are spelled."""
    text = raw.decode("latin-1")
    found: list[bytes] = []
    at = _behind_space(text, 1)
    while text[at] != "]":
        value, at = _value(text, at)
        found.append(value)
        at += text[at] == ","
    return found


def _value(text: str, at: int) -> tuple[bytes, int]:
    at = _behind_space(text, at)
    _, end = _decoder.raw_decode(text, at)
    return text[at:end].encode("latin-1"), _behind_space(text, end)


def _behind_space(text: str, at: int) -> int:
    while text[at : at + 1] in (" ", "\t", "\n", "\r"):
        at += 1
    return at


def _text(raw: bytes) -> bytes:
    """Return what a JSON string stands for; bytes that are not UTF-8 stay."""
    try:
        value: str = _decoder.decode(raw.decode())
    except UnicodeDecodeError:
        return raw[1:-1]
    return value.encode("utf-8", "surrogatepass")


def _kind(raw: bytes) -> str:
    first = raw[:1]
    if raw == b"null":
        return "null"
    if first in b'"[{':
        return {b'"': "text", b"[": "list", b"{": "object"}[first]
    return "integer" if raw.lstrip(b"-").isdigit() else "other"


def _wrong(at: int) -> bytes:
    """Return a field of a wire type that no field of a turn has."""
    return varint(at << 3 | 5) + b"\0\0\0\0"


def _as_text(at: int, raw: bytes) -> bytes:
    return held(at, _text(raw)) if _kind(raw) == "text" else _wrong(at)


def _as_number(at: int, raw: bytes) -> bytes:
    return number(at, int(raw)) if _kind(raw) == "integer" else _wrong(at)


def _as_signed(at: int, raw: bytes) -> bytes:
    if _kind(raw) != "integer":
        return _wrong(at)
    if len(raw) > 18:  # beyond what a field can hold, or near it
        return signed(at, -_FAR if raw[:1] == b"-" else _FAR)
    return signed(at, int(raw))


def _as_texts(at: int, raw: bytes) -> bytes:
    return b"".join(_as_text(at, item) for item in _items(raw))


def _field(name: str, raw: bytes) -> bytes:
    kind = _kind(raw)
    if name in JSON_VALUES:
        return held(JSON_VALUES[name], raw)
    if name in ("content", "parent"):
        return _content(raw) if name == "content" else _parent(raw)
    known = name in TEXTS or name in NUMBERS or name in _OTHERS
    if kind == "null" and known:
        return b""
    if name in TEXTS:
        return _as_text(TEXTS[name], raw)
    if name in NUMBERS:
        return _as_number(NUMBERS[name], raw)
    if name in _OTHERS:
        return _OTHERS[name](raw)
    return held(37, held(1, name.encode("utf-8", "surrogatepass")) + held(2, raw))


def _content(raw: bytes) -> bytes:
    kind = _kind(raw)
    if kind == "null":
        return held(17, b"")
    if kind == "list":
        return held(16, b"".join(held(1, item) for item in _items(raw)))
    return _as_text(7, raw)


def _parent(raw: bytes) -> bytes:
    kind = _kind(raw)
    if kind == "null":
        return held(18, b"")
    if kind not in ("list", "text"):
        return _wrong(11)
    return held(11, _as_texts(1, raw) if kind == "list" else _as_text(1, raw))


def _time(raw: bytes) -> bytes:
    return _as_text(12, raw) if _kind(raw) == "text" else _as_signed(13, raw)


def _confidence(raw: bytes) -> bytes:
    return double(20, float(raw)) if _kind(raw) in ("integer", "other") else _wrong(20)


def _operation(raw: bytes) -> bytes:
    name = _text(raw).decode("utf-8", "replace") if _kind(raw) == "text" else ""
    known = name in OPERATIONS
    return number(32, 1 + OPERATIONS.index(name) if known else 99)


def _within(at: int, raw: bytes, inner: dict[str, Callable[[bytes], bytes]]) -> bytes:
    """Return a message inside; of a name that it does not have, a number."""
    if _kind(raw) != "object":
        return _wrong(at)
    return held(
        at,
        b"".join(
            _inside(inner.get(name, _unknown), value) for name, value in _named(raw)
        ),
    )


def _inside(write: Callable[[bytes], bytes], raw: bytes) -> bytes:
    return b"" if _kind(raw) == "null" and write is not _unknown else write(raw)


def _unknown(_: bytes) -> bytes:
    return number(UNKNOWN, 1)


def _named(raw: bytes) -> list[tuple[str, bytes]]:
    pairs = _pairs(raw.decode("latin-1"))
    return [(_text(name).decode("utf-8", "replace"), value) for name, value in pairs]


def _map(at: int, raw: bytes, value_of: Callable[[bytes], bytes]) -> bytes:
    """Return the entries of a map."""
    return b"".join(
        held(at, held(1, _text(name)) + value_of(value))
        for name, value in _pairs(raw.decode("latin-1"))
    )


def _spans(raw: bytes) -> bytes:
    if _kind(raw) != "list":
        return held(2, _as_number(1, raw))
    bounds = b"".join(_as_number(1, item) for item in _items(raw))
    return held(2, held(2, bounds))


def _dot(raw: bytes) -> bytes:
    replica, counter = _items(raw)
    return held(1, _as_text(1, replica) + _as_number(2, counter))


def _to(raw: bytes) -> bytes:
    if _kind(raw) == "object":
        return held(35, _map(1, raw, _spans))
    return _as_text(34, raw)


_OTHERS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "time": _time,
    "confidence": _confidence,
    "op": _operation,
    "to": _to,
    "usage": lambda raw: _map(25, raw, lambda value: _as_signed(2, value)),
    "slots": lambda raw: _within(
        9,
        raw,
        {
            "set": lambda inner: _map(1, inner, lambda value: held(2, value)),
            "delete": lambda inner: _as_texts(2, inner),
        },
    ),
    "tags": lambda raw: _within(
        24,
        raw,
        {
            "add": lambda inner: _as_texts(1, inner),
            "remove": lambda inner: _as_texts(2, inner),
        },
    ),
    "stamp": lambda raw: _within(
        14,
        raw,
        {
            "dot": _dot,
            "lamport": lambda inner: _as_number(2, inner),
            "seen": lambda inner: _map(3, inner, _spans),
            "incarnation": lambda inner: _as_number(4, inner),
        },
    ),
}
"""Fields with a form of their own."""
