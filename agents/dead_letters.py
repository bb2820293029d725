"""Dead letters: what was refused, why, and the bytes as they came."""

from hashlib import blake2b
from typing import Final

import msgspec
from msgspec import Struct

from turnstate.schemas.errors import CorruptDataError, TurnstateError
from turnstate.schemas.limits import DEAD_LETTER_BYTES_MAX, DEAD_LETTER_HEAD_BYTES
from turnstate.schemas.position import Position


class DeadLetter(Struct, array_like=True, frozen=True, gc=False):
    """A record that could not be folded, kept for an operator.

    Attributes:
        reason: The error's code, as `conflict` or `invalid`.
        field: The field at fault, if one is.
        message: The error in words, with what to do.
        raw: The original bytes; of very long ones the beginning.
        raw_bytes: How many bytes the original had.
        raw_hash: BLAKE2b-256 of the original, where `raw` is only its beginning.
        topic: The log it came by.
        partition: Its partition.
        offset: Its offset there.
        time_ms: When it was refused.
        attempt: How often it was redriven before.
        trace: The W3C traceparent or request id it came with.
        trusted: It came through a door that may bring recorded operations.
    """

    reason: str
    field: str | None
    message: str
    raw: bytes
    raw_bytes: int
    raw_hash: bytes | None
    topic: str
    partition: int
    offset: int
    time_ms: int
    attempt: int = 0
    trace: str | None = None
    trusted: bool = False


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(DeadLetter)


def dead_letter(
    error: TurnstateError,
    raw: bytes,
    position: Position,
    now_ms: int,
    *,
    attempt: int = 0,
    trace: str | None = None,
    trusted: bool = False,
) -> DeadLetter:
    """Return the letter for a refused record; O(bytes kept)."""
    whole = len(raw) <= DEAD_LETTER_BYTES_MAX
    return DeadLetter(
        error.code,
        error.field,
        str(error),
        raw if whole else raw[:DEAD_LETTER_HEAD_BYTES],
        len(raw),
        None if whole else blake2b(raw, digest_size=32).digest(),
        "turns",
        position.partition,
        position.offset,
        now_ms,
        attempt,
        trace,
        trusted,
    )


def encode_dead_letter(letter: DeadLetter) -> bytes:
    """Return the row of a letter."""
    return _encoder.encode(letter)


def decode_dead_letter(row: bytes) -> DeadLetter:
    """Invert `encode_dead_letter`.

    Raises:
        CorruptDataError: the row is no letter.
    """
    try:
        return _decoder.decode(row)
    except (msgspec.MsgspecError, ValueError) as error:
        raise CorruptDataError(f"a dead letter cannot be read: {error}") from error
