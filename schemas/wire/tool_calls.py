"""Check the tool calls of a message, and read what a state needs of them."""

import json
from typing import Any, Final, cast

import msgspec
from msgspec import UNSET, Struct, UnsetType

from turnstate.schemas.errors import InvalidInputError


class Function(Struct, frozen=True, gc=False):
    """What is called: `arguments` is the string that the model wrote, exact."""

    arguments: str
    name: str | None = None


class ToolCall(Struct, frozen=True, gc=False):
    """One call; of another `type` than `function` it has a form of its own."""

    id: str | None = None
    type: str | None = None
    function: Function | UnsetType = UNSET


_decoder: Final = msgspec.json.Decoder(list[ToolCall])


def read_tool_calls(raw: bytes) -> list[ToolCall]:
    """Return the calls of a canonical `tool_calls` array.

    Raises:
        InvalidInputError: it is no list of calls, or `function.arguments` is
            no string: arguments are never parsed, so they need not parse.

    Example:
        >>> read_tool_calls(b'[{"id":"c1","function":{"name":"f","arguments":"{"}}]')
        [ToolCall(id='c1', type=None, function=Function(arguments='{', name='f'))]
    """
    try:
        calls = _decoder.decode(raw)
    except msgspec.DecodeError as error:
        raise _explained(raw, error) from error
    for index, call in enumerate(calls):
        if call.function is UNSET and call.type in (None, "function"):
            raise _refusal(f"[{index}].function", "is missing")
    return calls


def calls_of(raw: bytes) -> list[tuple[str, str]]:
    """Return (call id, function name) of each call that has an id.

    Bytes of another shape, which only a foreign stamp can bring, hold no call
    that a result could answer.

    Example:
        >>> calls_of(b'[{"id":"c1","function":{"name":"f","arguments":"{}"}}]')
        [('c1', 'f')]
    """
    return [
        (call.id, (call.function.name or "") if call.function is not UNSET else "")
        for call in _calls_or_none(raw)
        if call.id
    ]


def calls_without_arguments(raw: bytes) -> bytes:
    """Return as much of the calls as a fold needs: ids and names, no text."""
    return msgspec.json.encode(
        [
            ToolCall(call_id, None, Function("", name or None))
            for call_id, name in calls_of(raw)
        ]
    )


def argument_bytes_of(raw: bytes) -> int:
    """Return the UTF-8 bytes of all arguments, as the producer sent them."""
    return sum(
        len(call.function.arguments.encode())
        for call in _calls_or_none(raw)
        if call.function is not UNSET
    )


def _calls_or_none(raw: bytes) -> list[ToolCall]:
    try:
        return _decoder.decode(raw)
    except msgspec.DecodeError:
        return []


def unparsable_calls(raw: bytes) -> list[int]:
    """Return the places of the calls whose arguments are no JSON.

    Such calls are kept like any other; a reader that wants to run them should
    know before it tries.

    Example:
        >>> unparsable_calls('[{"function":{"arguments":"{“a”:1}"}}]'.encode())
        [0]
    """
    return [
        index
        for index, call in enumerate(read_tool_calls(raw))
        if call.function is not UNSET and not _is_json(call.function.arguments)
    ]


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text.encode(), type=msgspec.Raw)
    except (ValueError, RecursionError):
        return False
    return True


def _refusal(place: str, what: str) -> InvalidInputError:
    field = f"tool_calls{place}"
    return InvalidInputError(
        f"{field} {what}",
        field=field,
        hint="send calls as the OpenAI message has them, arguments as a string",
    )


def _explained(raw: bytes, error: Exception) -> InvalidInputError:
    """Find the call at fault; the decoder's own words come last."""
    if not raw.startswith(b"["):
        return _refusal("", "is no list")
    # As floats, since Python refuses to convert more than 4300 digits.
    calls: list[Any] = json.loads(raw, parse_int=float)
    for index, call in enumerate(calls):
        fault = _fault_of(call)
        if fault is not None:
            return _refusal(f"[{index}]{fault[0]}", fault[1])
    return _refusal("", f"cannot be read: {error}")


def _fault_of(call: Any) -> tuple[str, str] | None:
    """Return the place within a call that is at fault, and what it is."""
    if type(call) is not dict:
        return "", "is no object"
    fields = cast("dict[str, Any]", call)
    for name in ("id", "type"):
        if type(fields.get(name)) not in (str, type(None)):
            return f".{name}", "is no text"
    if "function" not in fields:
        return None
    function = fields["function"]
    if type(function) is not dict:
        return ".function", "is no object"
    inner = cast("dict[str, Any]", function)
    if type(inner.get("name")) not in (str, type(None)):
        return ".function.name", "is no text"
    if type(inner.get("arguments")) is not str:
        return ".function.arguments", "is no text"
    return None
