"""Bring a free-form JSON value into its one canonical form, as bytes."""

import json
import re
from functools import lru_cache
from typing import Any, Final, NoReturn

import msgspec
from msgspec import Raw

from turnstate.schemas.errors import InvalidInputError
from turnstate.schemas.limits import JSON_DEPTH_MAX
from turnstate.schemas.wire.scan import explain, is_too_deep

CACHED_BYTES_MAX: Final = 512
"""Longer values are seldom met twice."""

CACHED_VALUES_MAX: Final = 8192
"""Dialogue slots repeat: a town, a time, a yes. At most some 8 MB."""

_CACHED_DEPTH_MAX: Final = JSON_DEPTH_MAX // 2
"""A cached value's own depth, and what may stand around it: never too deep."""

_SIMPLE: Final = re.compile(
    rb'"[^"\\\x00-\x1f\x80-\xff]*"|-?[1-9][0-9]*|0|true|false|null'
)
"""Values that are canonical as they stand."""

_WIDE_STRING: Final = re.compile(rb'"[^"\\\x00-\x1f]*"')
"""Strings that are canonical if they are UTF-8."""

_encoder: Final = msgspec.json.Encoder()


class _NotCanonicalError(Exception):
    """Say that the value must be looked at by the scan, which names the fault."""


def canonical_json(raw: bytes, *, field: str, depth: int) -> bytes:
    """Return the canonical form of a JSON value: equal values, equal bytes.

    White space is out, escapes are decoded to UTF-8 (but for quotes,
    backslashes and control characters), integers keep every digit, other
    numbers are the shortest text of their double, keys keep their order.
    Idempotent (tests/property/test_wire_laws.py).

    Args:
        raw: The value's bytes as they came.
        field: Its path in the turn, for the error.
        depth: Levels around it; a value of a top-level field stands in 1.

    Raises:
        InvalidInputError: see `scan`.

    Example:
        >>> canonical_json(b'{ "a": 1e2, "n": 12345678901234567890123 }',
        ...     field="metadata", depth=1)
        b'{"a":100.0,"n":12345678901234567890123}'
    """
    try:
        if len(raw) <= CACHED_BYTES_MAX and depth <= _CACHED_DEPTH_MAX:
            return _canonical_short(raw)
        return _canonical(raw, depth)
    except _NotCanonicalError:
        pass
    explain(raw, field=field, depth=depth)
    return _canonical_deep(raw, field)


@lru_cache(maxsize=CACHED_VALUES_MAX)
def _canonical_short(raw: bytes) -> bytes:
    if _SIMPLE.fullmatch(raw):
        return raw
    if raw.count(b"{") + raw.count(b"[") > _CACHED_DEPTH_MAX:
        raise _NotCanonicalError
    return _canonical(raw, 0)


def _canonical(raw: bytes, depth: int) -> bytes:
    """Return the canonical form where nothing needs explaining."""
    try:
        if _WIDE_STRING.fullmatch(raw):
            raw.decode()
            return raw
        if is_too_deep(raw, depth):
            raise _NotCanonicalError
        return _encoder.encode(_load(raw.decode()))
    except ValueError as error:  # not UTF-8, not JSON, half of a pair
        raise _NotCanonicalError from error


def _canonical_deep(raw: bytes, field: str) -> bytes:
    """Return the canonical form of what the scan has let through."""
    try:
        return _encoder.encode(_load(raw.decode()))
    except (ValueError, _NotCanonicalError) as error:
        raise InvalidInputError(
            f"{field} is no JSON value", field=field, hint="send one whole JSON value"
        ) from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise _NotCanonicalError
    return result


def _integer(token: str) -> int | Raw:
    """Keep the digits of a number that Python would rather not convert."""
    return int(token) if len(token) <= 18 else Raw(token.encode())


def _float(token: str) -> Raw:
    value = float(token)
    if value - value != 0.0:
        raise _NotCanonicalError
    return Raw(repr(value).encode())


def _constant(name: str) -> NoReturn:
    raise _NotCanonicalError(name)


_load: Final = json.JSONDecoder(
    object_pairs_hook=_object,
    parse_int=_integer,
    parse_float=_float,
    parse_constant=_constant,
).decode
