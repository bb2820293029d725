"""Packed messages: several turns of one partition as the value of one record."""

from collections.abc import Sequence
from typing import Final

import msgspec

from turnstate.schemas.errors import InvalidInputError
from turnstate.schemas.limits import PACK_BYTES_MAX, PACK_TURNS_MAX

MARK: Final = b"\xc1"
"""The one byte that MessagePack never uses; it starts no JSON and no protobuf
of ours either (field 24, wire type 1, which no message has first)."""

VERSION: Final = b"\x01"

CONTENT_TYPE: Final = "application/x-turnstate-pack"

_START: Final = MARK + VERSION

_ITEM_HEADER_BYTES_MAX: Final = 5
"""Of MessagePack: type and length before each turn."""

_PACK_HEADER_BYTES_MAX: Final = 7
"""Mark, version, type and length of the array."""

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(list[bytes]).decode


def pack_turns(turns: Sequence[bytes]) -> bytes:
    """Return the value of a record that holds some turns.

    Args:
        turns: Each as JSON or protobuf, in order; `unpack_turns` gives them back.

    Raises:
        InvalidInputError: there are none or too many, one is empty or a pack
            itself, or they are too long together.

    Example:
        >>> unpack_turns(pack_turns([b"{}", b"[]"]))
        [b'{}', b'[]']
    """
    _check(turns)
    packed = _START + _encode(turns)
    _check_length(len(packed), len(turns))
    return packed


def unpack_turns(packed: bytes) -> list[bytes]:
    """Invert `pack_turns`. The turns may still be anything.

    Raises:
        InvalidInputError: these bytes are no pack (code `pack`).
    """
    if not is_packed(packed):
        raise _wrong("does not start as one")
    if packed[1:2] != VERSION:
        raise _wrong(f"has the version {packed[1:2].hex() or 'none'}")
    try:
        turns = _decode(packed[2:])
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise _wrong(f"cannot be read: {error}") from error
    _check(turns)
    _check_length(len(packed), len(turns))
    return turns


def is_packed(value: bytes) -> bool:
    """Say whether a value claims to be a pack.

    Example:
        >>> is_packed(pack_turns([b"{}"])), is_packed(b"{}")
        (True, False)
    """
    return value[:1] == MARK


def packed_bytes_max(turns: Sequence[bytes]) -> int:
    """Return how long a pack of some turns may become at most."""
    each = sum(map(len, turns)) + _ITEM_HEADER_BYTES_MAX * len(turns)
    return each + _PACK_HEADER_BYTES_MAX


def _check(turns: Sequence[bytes]) -> None:
    if not turns:
        raise _wrong("holds no turn")
    if len(turns) > PACK_TURNS_MAX:
        raise _wrong(f"holds {len(turns)} turns, not at most {PACK_TURNS_MAX}")
    for index, turn in enumerate(turns):
        if not turn:
            raise _wrong(f"holds an empty turn at {index}")
        if turn[:1] == MARK:
            raise _wrong(f"holds another pack at {index}")


def _check_length(length: int, turns: int) -> None:
    if length > PACK_BYTES_MAX and turns > 1:
        raise _wrong(f"has {length} bytes, not at most {PACK_BYTES_MAX}")


def _wrong(what: str) -> InvalidInputError:
    return InvalidInputError(
        f"the packed message {what}",
        hint="send one turn a message, or see schemas/FORMAT.md",
        code="pack",
    )
