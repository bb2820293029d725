"""Read and write turns as JSON, refusing what could be read in two ways."""

import json
import re
from math import isfinite
from typing import Any, Final, NoReturn, cast

import msgspec
from msgspec import Raw

from turnstate.schemas.draft import Draft, draft_from_turn
from turnstate.schemas.errors import InvalidInputError
from turnstate.schemas.limits import DEAD_LETTER_BYTES_MAX
from turnstate.schemas.turn import WIRE_FIELDS, Slots, Stamp, Tags, Turn
from turnstate.schemas.wire.canonical import canonical_json
from turnstate.schemas.wire.scan import explain, is_too_deep, too_large

RAW_BYTES_MAX: Final = DEAD_LETTER_BYTES_MAX
"""A longer input is refused unread; its record could only be too large."""

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_INNER_FIELDS: Final = {
    "slots": frozenset(Slots.__struct_fields__),
    "tags": frozenset(Tags.__struct_fields__),
    "stamp": frozenset(Stamp.__struct_fields__),
}
_MISSING: Final = re.compile(r"missing required field `([^`]*)`")
_PLACE: Final = re.compile(r" - at `\$\.?([^`]*)`$")

_decoder: Final = msgspec.json.Decoder(Turn)
_fields_decoder: Final = msgspec.json.Decoder(dict[str, Raw])
_encoder: Final = msgspec.json.Encoder()


def turn_from_json(raw: bytes) -> Turn:
    """Read one turn from its JSON bytes.

    An input that our own encoder would give back byte for byte has no doubled
    keys and no unknown fields at any typed level, so it is taken at once. Any
    other is looked at with a second parser. Free-form values stay the bytes
    that came; `draft_from_turn` looks into them.

    Raises:
        InvalidInputError: the field at fault is named where there is one.

    Example:
        >>> turn_from_json(b'{"tenant":"t","session":"s","role":"user","mood":1}').extra
        {'mood': b'1'}
    """
    if len(raw) > RAW_BYTES_MAX:
        raise too_large(len(raw))
    try:
        turn = _decoder.decode(raw)
    except (ValueError, RecursionError):
        return _turn_looked_at(raw, None)
    if turn.extra is None and _encoder.encode(turn) == raw and not is_too_deep(raw):
        return turn
    return _turn_looked_at(raw, turn)


def draft_from_json(raw: bytes, *, recorded: bool = False) -> Draft:
    """Read one turn and check all of it: the way in behind every door.

    Args:
        raw: One JSON object.
        recorded: See `draft_from_turn`.

    Raises:
        InvalidInputError: the field at fault is named where there is one.
    """
    return draft_from_turn(turn_from_json(raw), recorded=recorded)


def turn_to_json(turn: Turn) -> bytes:
    """Write a turn; fields of other versions (`extra`) are written back.

    Raises:
        InvalidInputError: a number or text in it cannot be written as JSON.

    Example:
        >>> turn_to_json(Turn(tenant="t", session="s", role="user", extra={"a": b"1"}))
        b'{"tenant":"t","session":"s","role":"user","a":1}'
    """
    if turn.confidence is not None and not isfinite(turn.confidence):
        raise InvalidInputError(
            "confidence is no finite number",
            field="confidence",
            hint="leave it out",
            code="number",
        )
    try:
        if turn.extra is None:
            return _encoder.encode(turn)
        known = _encoder.encode(turn.with_(extra=None))
        more = {name: Raw(value) for name, value in turn.extra.items()}
        written = _encoder.encode(more)
    except UnicodeEncodeError as error:
        raise InvalidInputError(
            "the turn holds half of a surrogate pair",
            hint="send whole characters",
            code="lone_surrogate",
        ) from error
    return known[:-1] + b"," + written[1:] if more else known


def _turn_looked_at(raw: bytes, turn: Turn | None) -> Turn:
    """Read a turn that is not written as we would, or say what is wrong."""
    if raw.startswith(_BYTE_ORDER_MARK):
        raw = raw[len(_BYTE_ORDER_MARK) :]
        turn = None
    if is_too_deep(raw):
        explain(raw)
    try:
        value: Any = _load(raw.decode())
    except (ValueError, RecursionError):
        explain(raw)
        raise InvalidInputError(
            "the record is no JSON", hint="send one JSON object", code="not_json"
        ) from None
    if not isinstance(value, dict):
        raise InvalidInputError(
            "the record is no JSON object", hint="send one JSON object", code="not_json"
        )
    names = cast("dict[str, Any]", value)
    _refuse_unknown_inside(names)
    unknown = names.keys() - WIRE_FIELDS
    if "extra" in unknown or turn is None:
        turn = _decoded(raw, without_extra="extra" in unknown)
    if unknown:
        fields = _fields_decoder.decode(raw)
        turn = turn.with_(
            extra={
                name: canonical_json(bytes(fields[name]), field=name, depth=1)
                for name in fields
                if name in unknown
            }
        )
    return turn


def _decoded(raw: bytes, *, without_extra: bool) -> Turn:
    """Decode, with a reason if that fails.

    `extra` is the name of a field of `Turn` that is none of the wire: a field
    of that name is as unknown as any, and kept from the decoder.
    """
    try:
        if without_extra:
            fields = _fields_decoder.decode(raw)
            del fields["extra"]
            raw = _encoder.encode(fields)
        return _decoder.decode(raw)
    except (ValueError, RecursionError) as error:
        explain(raw)
        raise _explained(error) from error


def _explained(error: Exception) -> InvalidInputError:
    """Turn what the decoder says into the field's dotted path and a sentence.

    Example:
        >>> _explained(ValueError("Expected `int`, got `str` - at `$.time`")).field
        'time'
    """
    said = str(error)
    place = _PLACE.search(said)
    path = place.group(1).split("[...]")[0] if place else ""
    missing = _MISSING.search(said)
    if missing:
        path = f"{path}.{missing.group(1)}" if path else missing.group(1)
        return InvalidInputError(f"{path} is missing", field=path, hint="add it")
    what = said[: place.start()] if place else said
    return InvalidInputError(
        f"{path or 'the record'} is of the wrong type: {what[:1].lower()}{what[1:]}",
        field=path or None,
        hint="see the fields of a turn",
    )


def _refuse_unknown_inside(value: dict[str, Any]) -> None:
    """Refuse names that the decoder would drop in silence.

    Unknown fields of the turn are kept; inside `slots`, `tags` and `stamp`
    there is no place to keep them, and a slip such as `sett` would lose data.
    """
    for field, known in _INNER_FIELDS.items():
        inner = value.get(field)
        if isinstance(inner, dict):
            for name in cast("dict[str, Any]", inner):
                if name not in known:
                    raise InvalidInputError(
                        f"{field}.{name} is unknown",
                        field=f"{field}.{name}",
                        hint=f"{field} has {', '.join(sorted(known))}",
                        code="unknown_field",
                    )


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key is given twice")
    return result


def _float(token: str) -> float:
    value = float(token)
    if not isfinite(value):
        raise ValueError("a number is beyond a double")
    return value


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


_load: Final = json.JSONDecoder(
    object_pairs_hook=_object,
    # Tokens stay text: their value is not looked at here, and Python refuses
    # to convert more than 4300 digits.
    parse_int=str,
    parse_float=_float,
    parse_constant=_constant,
).decode
