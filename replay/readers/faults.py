"""Say why a line cannot be read, and refuse what could be read in two ways."""

import json
import re
from typing import Any, Final

from turnstate.schemas.errors import InvalidInputError
from turnstate.schemas.limits import JSON_DEPTH_MAX
from turnstate.schemas.wire.scan import scan

_AT: Final = re.compile(r" - at `\$\.?(?P<path>[^`]*)`$")
_MISSING: Final = re.compile(r"^Object missing required field `(?P<name>[^`]*)`")


def no_object() -> InvalidInputError:
    """Return the refusal of a line that is something else than an object."""
    return InvalidInputError(
        "the line is no JSON object", hint="send JSON objects", code="not_json"
    )


def refused(line: bytes, fault: Exception, *, prefix: str = "") -> InvalidInputError:
    """Return the refusal that a decoder's error means, with the field named.

    Args:
        line: The bytes that did not decode.
        fault: What the decoder raised.
        prefix: The path of the part that was decoded, where it was a part.

    Example:
        >>> import msgspec
        >>> try:
        ...     msgspec.json.decode(b'{"a": 1}', type=dict[str, str])
        ... except msgspec.DecodeError as fault:
        ...     str(refused(b'{"a": 1}', fault, prefix="slots"))
        'slots: expected `str`, got `int`'
    """
    if isinstance(fault, InvalidInputError):
        return fault
    try:
        scan(line, field=prefix)
    except InvalidInputError as named:
        return named
    said = str(fault)
    path = ""
    if place := _AT.search(said):
        # The decoder does not name the key of a mapping: leave it at the mapping.
        path = place["path"].partition("[...]")[0].rstrip(".")
        said = said[: place.start()]
    if missing := _MISSING.match(said):
        path = f"{path}.{missing['name']}" if path else missing["name"]
        said = "missing"
    field = ".".join(part for part in (prefix, path) if part)
    if not field and place is None:
        return no_object()
    if not field:
        return InvalidInputError(f"the line is of another shape: {said}")
    return InvalidInputError(f"{field}: {said[:1].lower()}{said[1:]}", field=field)


def refuse_ambiguous(line: bytes) -> None:
    """Refuse a line in which a key stands twice, at whatever level.

    The typed decoders take the last of two and say nothing. Only lines that
    our own encoder would have written otherwise need this look.

    Raises:
        InvalidInputError: the doubled key, or what else is wrong, by its path.

    Example:
        >>> refuse_ambiguous(b'{"a": {"b": 1, "b": 2}}')
        Traceback (most recent call last):
        ...
        turnstate.schemas.errors.InvalidInputError: a.b is given twice (leave one)
    """
    if line.count(b"{") + line.count(b"[") > JSON_DEPTH_MAX:
        # Perhaps nested beyond what the quick parser survives. Most lines of
        # many brackets are only long, and scanning them is merely slower.
        scan(line)
        return
    try:
        _load(line.decode())
    except ValueError:
        scan(line)


def _unambiguous(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key is given twice")
    return result


_load: Final = json.JSONDecoder(
    object_pairs_hook=_unambiguous,
    parse_int=str,  # Python refuses to convert more than 4300 digits
).decode
