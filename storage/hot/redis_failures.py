"""What a failure of Redis means to a caller, and when it is left alone for a while."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from turnstate.schemas.errors import UnavailableError

try:
    from circuitbreaker import CircuitBreaker
    from redis import exceptions as failures
except ImportError as error:
    raise UnavailableError(
        f"{error.name} is not installed", hint="pip install 'turnstate[redis]'"
    ) from error

Answer = TypeVar("Answer")

FULL: Final = "hot_full"
"""Code of the error where Redis has no memory left; it still answers reads."""

FAILURES: Final = (
    failures.RedisError,
    failures.RedisClusterException,  # not a RedisError
    OSError,
    TimeoutError,
)
"""Everything that a client raises for what is not the caller's fault."""

_SEEN: Final = (
    # kind of error, word in it, what it means, what to do
    (failures.AuthenticationError, "", "refused the password", "look at its URL"),
    (failures.AuthorizationError, "", "refused the user", "look at its ACL"),
    (failures.NoPermissionError, "", "refused a command", "look at its ACL"),
    (failures.BusyLoadingError, "", "is loading its data", "wait"),
    (failures.ResponseError, "READONLY", "is a replica", "let the URL name the master"),
    (failures.ReadOnlyError, "", "is a replica", "let the URL name the master"),
    (
        failures.ConnectionError,
        "now a slave",
        "is a replica since a failover",
        "wait for the Sentinels",
    ),
    (failures.MasterDownError, "", "has lost its master", "wait for the failover"),
    (failures.ClusterDownError, "", "Cluster is down", "see CLUSTER INFO"),
    (
        failures.ClusterError,
        "",
        "Cluster sends from node to node",
        "see CLUSTER NODES: a slot is on the move, or two nodes disagree",
    ),
    (failures.MovedError, "", "Cluster has moved a slot", "wait for the resharding"),
    (failures.TryAgainError, "", "Cluster moves a slot", "wait for the resharding"),
    (
        failures.SlotNotCoveredError,
        "",
        "Cluster has no node for a slot",
        "see CLUSTER INFO",
    ),
    (failures.TimeoutError, "", "answers too slowly", "see its SLOWLOG and load"),
    (TimeoutError, "", "answers too slowly", "see its SLOWLOG and load"),
    (failures.ConnectionError, "", "cannot be reached", "see that it runs"),
    (failures.RedisClusterException, "", "Cluster cannot be reached", "see its nodes"),
    (OSError, "", "cannot be reached", "see that it runs"),
)

_FULL_WORDS: Final = "OOM command not allowed"
"""What Redis 6 says from within a script; later ones have an error of its own."""

_UNSAVED_WORDS: Final = "MISCONF"


def unavailable(error: BaseException) -> UnavailableError:
    """Return what a failure means: hot is away, why, and what to do.

    Example:
        >>> str(unavailable(failures.ConnectionError("refused")))
        'Redis cannot be reached: refused (see that it runs; reads go to warm)'
    """
    said = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, failures.OutOfMemoryError) or _FULL_WORDS in said:
        return UnavailableError(
            "Redis is full (maxmemory)",
            hint="raise maxmemory, lower ttl_s or frames_kept, or set"
            " maxmemory-policy volatile-lru; reads go to warm",
            code=FULL,
        )
    if _UNSAVED_WORDS in said:
        return UnavailableError(
            f"Redis takes no writes: {said}",
            hint="look at its disk, or turn its persistence off: it is a cache",
        )
    for kind, word, meaning, hint in _SEEN:
        if isinstance(error, kind) and word in said:
            return UnavailableError(
                f"Redis {meaning}: {said}", hint=f"{hint}; reads go to warm"
            )
    return UnavailableError(
        f"Redis answered: {said}", hint="look at its version and at these keys"
    )


async def heeding(call: Callable[[], Awaitable[Answer]]) -> Answer:
    """Make a call, and be cancelled where the call swallowed that.

    redis-py sends by `asyncio.wait_for`, which before Python 3.12 forgets that
    it was cancelled where what it waits for has just ended: a loop of calls
    then went on for ever.

    Raises:
        CancelledError: the task was cancelled meanwhile.
    """
    task = asyncio.current_task()
    assert task is not None, "runs in a task"
    before = task.cancelling()
    try:
        answer = await call()
    except FAILURES as error:
        if task.cancelling() > before:
            raise asyncio.CancelledError from error
        raise
    if task.cancelling() > before:
        raise asyncio.CancelledError
    return answer


class Guard:
    """Bound how many calls run, how long each takes, and how often Redis is asked.

    After some failures one after another nothing is sent for a while, so that
    a Redis that is away costs a turn nothing; then calls are let through
    again, and the first that fails closes the door for as long again. A full
    Redis does not count: it refuses at once, and reads still work.

    Args:
        calls_max: Calls at once; the others wait, within their time.
        longest_s: Of one call, waiting and retries in it.
        failures_max: Failures one after another until Redis is left alone.
        rest_s: For how long.
    """

    def __init__(
        self, *, calls_max: int, longest_s: float, failures_max: int, rest_s: float
    ) -> None:
        self._gate = asyncio.Semaphore(calls_max)
        self._longest_s = longest_s
        self._breaker: Any = CircuitBreaker(
            failure_threshold=failures_max,
            recovery_timeout=rest_s,
            expected_exception=_counts,
            name="redis",
        )

    @property
    def rests(self) -> bool:
        """Say whether Redis is left alone now."""
        return bool(self._breaker.opened)

    async def run(self, call: Callable[[], Awaitable[Answer]]) -> Answer:
        """Make a call, or refuse at once.

        Raises:
            UnavailableError: it failed, was too slow, or was not made.
        """
        if self._breaker.opened:
            raise UnavailableError(
                f"Redis is left alone for {self._breaker.open_remaining} s more,"
                f" since {self._breaker.failure_count} calls failed, the last one:"
                f" {self._breaker.last_failure}",
                hint="see that it runs; reads go to warm",
            )
        try:
            answer = await self._bounded(call)
        except UnavailableError:
            with self._breaker:
                raise
        # A call that was cancelled comes by here and says nothing of Redis.
        self._breaker.reset()
        return answer

    async def _bounded(self, call: Callable[[], Awaitable[Answer]]) -> Answer:
        try:
            async with asyncio.timeout(self._longest_s), self._gate:
                return await call()
        except FAILURES as error:
            raise unavailable(error) from error


def _counts(_kind: type[BaseException], error: BaseException) -> bool:
    return isinstance(error, UnavailableError) and error.code != FULL
