"""The only clocks: the real one, and one that is turned by hand."""

import time


class SystemClock:
    """Tell the machine's time; a step back shows as the same time again."""

    def __init__(self) -> None:
        self._last_ms = 0

    def now_ms(self) -> int:
        """Return epoch milliseconds that never go back."""
        self._last_ms = max(self._last_ms, time.time_ns() // 1_000_000)
        return self._last_ms


class VirtualClock:
    """Tell the time that a replay or a test has set.

    Example:
        >>> clock = VirtualClock(1_000)
        >>> clock.advance(500)
        >>> clock.now_ms()
        1500
    """

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        """Return the time that was set."""
        return self._now_ms

    def advance(self, by_ms: int) -> None:
        """Let time pass."""
        self._now_ms += by_ms
