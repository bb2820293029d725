"""A bloom filter over session keys: says for certain that a pack lacks a key.

Why not a library: the bits are part of a stored format that another program
must be able to read by schemas/FORMAT.md alone. `rbloom` derives its places
from an inner generator, counts in machine words, and still wants a hash of
ours; `pybloomfiltermmap3` stores memory maps.
"""

from collections.abc import Collection, Iterator
from hashlib import blake2b
from typing import Final

BITS_PER_KEY: Final = 10
HASHES: Final = 7
"""With ten bits a key, seven places give the least false positives: 0.8 %."""

_PERSON: Final = b"turnstate.bloom"
_HALF: Final = (1 << 64) - 1


class Bloom:
    """Hold which keys a pack may have; equal key sets give equal bytes.

    Args:
        bits: The filter, lowest bit of a byte first; empty = no keys at all.

    Example:
        >>> found = Bloom.of([b"a", b"b"])
        >>> found.may_hold(b"a"), Bloom(b"").may_hold(b"a")
        (True, False)
    """

    __slots__ = ("bits",)

    def __init__(self, bits: bytes) -> None:
        self.bits = bits

    @classmethod
    def of(cls, keys: Collection[bytes]) -> "Bloom":
        """Return the filter of some keys, ten bits for each."""
        if not keys:
            return cls(b"")
        bits = bytearray((len(keys) * BITS_PER_KEY + 7) // 8)
        for key in keys:
            for place in _places(key, len(bits) * 8):
                bits[place >> 3] |= 1 << (place & 7)
        return cls(bytes(bits))

    def may_hold(self, key: bytes) -> bool:
        """Say whether a key may be there; False is certain."""
        bits = self.bits
        if not bits:
            return False
        return all(
            bits[place >> 3] >> (place & 7) & 1 for place in _places(key, len(bits) * 8)
        )


def _places(key: bytes, count: int) -> Iterator[int]:
    """Yield the bits of a key: two halves of one hash, added up."""
    whole = int.from_bytes(blake2b(key, digest_size=16, person=_PERSON).digest())
    place, step = whole >> 64, whole & _HALF | 1
    for _ in range(HASHES):
        yield place % count
        place += step
