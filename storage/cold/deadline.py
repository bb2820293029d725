"""One time limit over all that a single read fetches from the cold tier."""

import time
from contextvars import ContextVar
from typing import Final

from turnstate.schemas.errors import UnavailableError

WAIT_S: Final = 5.0
"""How long is waited for the cold tier where no setting says so."""


class OneRead:
    """Everything that is fetched inside, in this thread, shares one time limit.

    It begins with the first fetch: a read that finds all in upper tiers has
    none. Inside of another one it is a part of that.

    Example:
        >>> left_s(3.0) is None
        True
        >>> with OneRead():
        ...     0 < left_s(3.0) <= 3.0
        True
    """

    __slots__ = ("_is_inner", "ends_at")

    def __init__(self) -> None:
        self.ends_at: float | None = None
        self._is_inner = False

    def __enter__(self) -> None:
        if _reading.get() is None:
            _reading.set(self)
        else:
            self._is_inner = True

    def __exit__(self, *_: object) -> None:
        if not self._is_inner:
            _reading.set(None)


_reading: ContextVar[OneRead | None] = ContextVar("turnstate_cold_read", default=None)


def left_s(wait_s: float) -> float | None:
    """Return how long the read under way may still wait; None = as long as it takes.

    Args:
        wait_s: How long it may wait in all, in seconds.
    """
    read = _reading.get()
    if read is None:
        return None
    now = time.monotonic()
    if read.ends_at is None:
        read.ends_at = now + wait_s
    return max(0.0, read.ends_at - now)


def too_slow(wait_s: float) -> UnavailableError:
    """Return what is said of a cold tier that has not answered in time."""
    return UnavailableError(
        f"the cold tier did not answer within {wait_s:g} s",
        hint="nothing is lost, and it is being fetched: try again in a moment; if it"
        " stays, look at the bucket (turnstate tiers status), or raise cold_wait_s",
        code="cold_away",
    )
