"""How operations lie in the body of a frame: in version order, records whole."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct

from turnstate.schemas.clocks import Dot
from turnstate.schemas.errors import CorruptDataError


class PositionRange(NamedTuple):
    """The log positions, inclusive, that operations of a frame came from.

    Positions stand beside operations, never in them: two owners fold one
    operation from two places and must agree about its bytes.

    Attributes:
        log: What the identity of the log (a Kafka topic id, an embedded log's id)
            begins with: four bytes tell the logs of one session apart.
        partition: The partition.
        first: (offset, index in a packed message) of the first.
        last: The same of the last.
    """

    log: bytes
    partition: int
    first: tuple[int, int]
    last: tuple[int, int]


class FrameBody(NamedTuple):
    """What the body of a frame of kind `FRAME` holds.

    Attributes:
        records: Canonical records (`Op.record`); the n-th leads to version
            from-version + n.
        positions: Where they came from.
        bases: For an operation that starts from a turn that is no live head,
            that turn's branch state, opaque, by that turn's dot.
    """

    records: list[bytes]
    positions: list[PositionRange]
    bases: dict[Dot, bytes]


class _Stored(Struct, array_like=True, frozen=True, gc=False):
    records: list[bytes]
    positions: list[PositionRange]
    bases: list[tuple[str, int, bytes]]


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Stored).decode

DECODE_ERRORS: Final = (
    msgspec.MsgspecError,
    RecursionError,
    OverflowError,
    ValueError,
    TypeError,
)
"""What MessagePack can answer to bytes that are none."""


def encode_operations(
    records: Sequence[bytes],
    positions: Sequence[PositionRange] = (),
    bases: Mapping[Dot, bytes] | None = None,
) -> bytes:
    """Return the body of a frame, a MessagePack array of three.

    Example:
        >>> decode_operations(encode_operations([b"one", b"two"])).records
        [b'one', b'two']
    """
    return _encode((records, positions, stored_bases(bases)))


def decode_operations(body: bytes) -> FrameBody:
    """Invert `encode_operations`.

    Raises:
        CorruptDataError: these bytes are no frame body.
    """
    try:
        stored = _decode(body)
    except DECODE_ERRORS as error:
        raise CorruptDataError(f"a frame body cannot be read: {error}") from error
    return FrameBody(stored.records, stored.positions, bases_of(stored.bases))


def stored_bases(bases: Mapping[Dot, bytes] | None) -> Any:
    """Return base states as they are stored, dots in order: one set, one form."""
    if not bases:
        return ()
    return [(dot.replica, dot.counter, bases[dot]) for dot in sorted(bases)]


def bases_of(stored: Iterable[tuple[str, int, bytes]]) -> dict[Dot, bytes]:
    """Invert `stored_bases`."""
    return {Dot(replica, counter): state for replica, counter, state in stored}
