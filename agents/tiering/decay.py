"""How far the time to live of a session has run down, at three decay points (B3)."""

from typing import Final

FIRST_POINT: Final = 0.60
"""Part of the TTL that is left: it has begun to cool."""

SECOND_POINT: Final = 0.30
"""Half as much: it is likely to run out."""

THIRD_POINT: Final = 0.15
"""Half as much again: hot and warm are written together before hot lets go."""

RUN_OUT: Final = 4
"""What `point_passed` says of a TTL of which nothing is left."""


def decay_points_ms(
    ttl_ms: int, third_point: float = THIRD_POINT
) -> tuple[int, int, int]:
    """Return after how long without an operation each point is passed.

    Args:
        ttl_ms: The time to live.
        third_point: Part that is left at the third; those before it are twice
            and four times that.

    Example:
        >>> decay_points_ms(100_000)
        (40000, 70000, 85000)
    """
    first, second, third = (
        ttl_ms - min(ttl_ms, int(ttl_ms * third_point * factor)) for factor in (4, 2, 1)
    )
    return first, second, third


def point_passed(
    idle_ms: int, ttl_ms: int | None, third_point: float = THIRD_POINT
) -> int:
    """Return which decay point was passed: 0 to 3, `RUN_OUT` at the end.

    Args:
        idle_ms: Since the last operation.
        ttl_ms: The time to live; without one nothing decays.
        third_point: See `decay_points_ms`.

    Example:
        >>> [point_passed(idle, 100) for idle in (0, 40, 84, 85, 99, 100)]
        [0, 1, 2, 3, 3, 4]
    """
    if ttl_ms is None:
        return 0
    if idle_ms >= ttl_ms:
        return RUN_OUT
    points = decay_points_ms(ttl_ms, third_point)
    return sum(idle_ms >= point for point in points)


def left_ms(idle_ms: int, ttl_ms: int | None) -> int | None:
    """Return what is left of a TTL, 0 where it has run out, None without one."""
    return None if ttl_ms is None else max(0, ttl_ms - idle_ms)
