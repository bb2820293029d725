"""Say whether a session's time to live is over: then it is not served any more."""

from collections.abc import Callable
from typing import Final


class Expiry:
    """Hold a time to live against the clock, at every read; the same everywhere.

    Args:
        ttl_s: How long after its last turn a session is served; 0 = for ever.
        now_ms: Tells epoch milliseconds.

    Attributes:
        ttl_ms: The same in milliseconds, 0 = for ever.

    Example:
        >>> expiry = Expiry(60, lambda: 100_000)
        >>> expiry.is_over(40_000), expiry.is_over(40_001)
        (True, False)
        >>> NEVER.is_over(0)
        False
    """

    def __init__(self, ttl_s: int, now_ms: Callable[[], int]) -> None:
        self.ttl_ms = 1000 * ttl_s
        self._now_ms = now_ms

    def is_over(self, arrived_ms: int) -> bool:
        """Say whether a session whose last turn came then is served no more."""
        return 0 < self.ttl_ms <= self._now_ms() - arrived_ms


NEVER: Final = Expiry(0, lambda: 0)
"""What holds where there is no time to live."""
