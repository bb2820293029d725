"""The ids and names of the tool calls that canonical JSON bytes hold."""

from typing import Final

import msgspec
from msgspec import Struct


class _Function(Struct):
    name: str | None = None
    arguments: str | None = None


class _Call(Struct):
    id: str | None = None
    function: _Function | None = None


_decoder: Final = msgspec.json.Decoder(list[_Call])


def calls_of(tool_calls: bytes) -> list[tuple[str, str]]:
    """Return (call id, function name) of each call that has an id.

    Bytes of another shape hold no call that a result could answer.

    Example:
        >>> calls_of(b'[{"id":"c1","function":{"name":"f","arguments":"{}"}}]')
        [('c1', 'f')]
    """
    try:
        calls = _decoder.decode(tool_calls)
    except msgspec.DecodeError:
        return []
    return [
        (call.id, (call.function.name if call.function else None) or "")
        for call in calls
        if call.id
    ]


def calls_without_arguments(tool_calls: bytes) -> bytes:
    """Return as much of the calls as the fold needs: ids and names."""
    return msgspec.json.encode(
        [
            {"id": call_id, "function": {"name": name}}
            for call_id, name in calls_of(tool_calls)
        ]
    )


def argument_bytes_of(tool_calls: bytes) -> int:
    """Return the UTF-8 bytes of all arguments, as the producer sent them."""
    try:
        calls = _decoder.decode(tool_calls)
    except msgspec.DecodeError:
        return 0
    return sum(
        len(call.function.arguments.encode())
        for call in calls
        if call.function is not None and call.function.arguments is not None
    )
