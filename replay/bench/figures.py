"""What a bench returns: figures with their spread, and a digest of the result."""

from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from statistics import median
from typing import Any, Literal

Size = Literal["small", "large"]
"""`small` takes a second or two and runs with the tests."""

Progress = Callable[[int, int | None], None] | None
"""Told how much is done, and of how much; None where nobody watches."""

Report = dict[str, Any]
"""At least unit, median, min, max, runs and digest."""

Bench = Callable[[Size, Progress], Report]


def figure(values: Sequence[float], unit: str) -> Report:
    """Return what is told of repeated runs.

    Example:
        >>> figure([3.0, 1.0, 2.0], "ms")
        {'unit': 'ms', 'median': 2.0, 'min': 1.0, 'max': 3.0, 'runs': 3}
    """
    return {
        "unit": unit,
        "median": rounded(median(values)),
        "min": rounded(min(values)),
        "max": rounded(max(values)),
        "runs": len(values),
    }


def rounded(value: float) -> float:
    """Return four digits: no figure here is better than that.

    Example:
        >>> rounded(54321.9), rounded(0.123456)
        (54320.0, 0.1235)
    """
    return float(f"{value:.4g}")


def digest_of(parts: Iterable[tuple[bytes, bytes]]) -> str:
    """Return one name for named results, in whatever order they come.

    Example:
        >>> digest_of([(b"a", b"1"), (b"b", b"2")]) == digest_of(
        ...     [(b"b", b"2"), (b"a", b"1")]
        ... )
        True
    """
    hashed = blake2b(digest_size=16)
    for name, part in sorted(parts):
        for each in (name, part):
            hashed.update(len(each).to_bytes(4, "big") + each)
    return hashed.hexdigest()


def tell(progress: Progress, done: int, total: int | None = None) -> None:
    """Move the bar, if there is one."""
    if progress is not None:
        progress(done, total)
