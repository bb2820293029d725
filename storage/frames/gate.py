"""The entropy gate: write a change against what was before, or in full."""

from math import log2
from typing import Final

NOVELTY_MAX: Final = 0.87
"""Above this a change shares nothing with what was before, and a dictionary
only costs time: dialogue in any language measures 0.4 to 0.75, bytes that
are packed or encrypted already 0.9 and more (docs/bench.md)."""

SMALL_BYTES: Final = 512
"""A shorter change is always written against what was before: measuring it
takes longer than a wrong choice costs."""

SAMPLE_BYTES: Final = 128
"""Bytes looked at, spread evenly: the estimate takes 8 µs at any length."""

_WEIGHT: Final = [0.0] + [n * log2(n) for n in range(1, 2 * SAMPLE_BYTES + 1)]


def byte_entropy(data: bytes) -> float:
    """Return the entropy of a sample of bytes, 0.0 to 1.0 of eight bits.

    A sample of n bytes cannot show more than log2(n) bits; that is made up
    for, so that random bytes measure near 1.0 at any length.

    Example:
        >>> byte_entropy(b"a" * 1000), byte_entropy(bytes(range(128)))
        (0.0, 1.0)
    """
    sample = data[:: max(1, len(data) // SAMPLE_BYTES)]
    size = len(sample)
    if size < 2:
        return 0.0
    bits = log2(size) - (
        sum([_WEIGHT[sample.count(value)] for value in set(sample)]) / size
    )
    return bits / min(8.0, log2(size))


def novelty(data: bytes, base: bytes) -> float:
    """Return how much of some bytes is news against a base, 0.0 to 1.0.

    What both begin and end with is no news; of the rest the byte entropy
    counts, in proportion to its length.

    Example:
        >>> novelty(b"x" * 300 + b"new", b"x" * 300) < 0.02
        True
    """
    if not data:
        return 0.0
    start = _common(data, base)
    rest, other = data[start:], base[start:]
    end = _common(rest[::-1], other[::-1])
    rest = rest[: len(rest) - end]
    return byte_entropy(rest) * len(rest) / len(data)


def is_delta(data: bytes, base: bytes) -> bool:
    """Say whether to write a change against its base rather than in full.

    The choice changes bytes only, never what they decode to; a reader sees it
    in the frame.

    Args:
        data: What is to be written.
        base: What the reader has: the last records, or the state before.
    """
    if len(data) <= SMALL_BYTES:
        return bool(base)
    return bool(base) and novelty(data, base) <= NOVELTY_MAX


def _common(first: bytes, second: bytes) -> int:
    low, high = 0, min(len(first), len(second))
    if first[:high] == second[:high]:
        return high
    if first[:1] != second[:1]:
        return 0
    while low + 1 < high:
        middle = (low + high) // 2
        if first[:middle] == second[:middle]:
            low = middle
        else:
            high = middle
    return low
