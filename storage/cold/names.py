"""How packs are named: by the epoch of who wrote them, their time, and chance."""

from typing import Final

from turnstate.schemas.errors import CorruptDataError

PACKS: Final = "packs/"

CHANCE_BYTES: Final = 10
"""Of a ULID: 80 bits, so that two writers never choose one name."""

_ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Crockford's base 32: no letter that looks like a digit, in ASCII order."""

_VALUES: Final = {letter: value for value, letter in enumerate(_ALPHABET)}
_EPOCH_DIGITS: Final = 20
_TIME_LETTERS: Final = 10
_LETTERS: Final = 26


def pack_name(epoch: int, time_ms: int, chance: bytes) -> str:
    """Return the name of a pack: epoch, then a ULID; sorted by both.

    Args:
        epoch: The fencing token under which it is written.
        time_ms: Epoch milliseconds, 48 bits.
        chance: Ten random bytes.

    Example:
        >>> pack_name(3, 1_700_000_000_000, bytes(10))
        'packs/00000000000000000003-01HF7YAT000000000000000000'
    """
    assert len(chance) == CHANCE_BYTES
    number = time_ms << 8 * CHANCE_BYTES | int.from_bytes(chance)
    letters = [_ALPHABET[number >> 5 * at & 31] for at in reversed(range(_LETTERS))]
    return f"{PACKS}{epoch:0{_EPOCH_DIGITS}d}-{''.join(letters)}"


def pack_time_ms(name: str) -> int:
    """Return the time in the name of a pack, epoch milliseconds.

    Raises:
        CorruptDataError: it is not the name of a pack.

    Example:
        >>> pack_time_ms(pack_name(3, 1_700_000_000_000, bytes(10)))
        1700000000000
    """
    epoch, dash, ulid = name.removeprefix(PACKS).partition("-")
    if (
        not name.startswith(PACKS)
        or not dash
        or not (len(epoch) == _EPOCH_DIGITS and epoch.isascii() and epoch.isdigit())
        or len(ulid) != _LETTERS
        or not all(letter in _VALUES for letter in ulid)
    ):
        raise CorruptDataError(f"{name!r} is not the name of a pack")
    time_ms = 0
    for letter in ulid[:_TIME_LETTERS]:
        time_ms = time_ms << 5 | _VALUES[letter]
    return time_ms
