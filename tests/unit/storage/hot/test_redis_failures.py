"""Every failure of Redis says what to do; after some of them it is left alone."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest
from redis import exceptions as failures

from turnstate.schemas.errors import UnavailableError
from turnstate.storage.hot.redis_failures import FULL, Guard, unavailable


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (failures.ConnectionError("Error 111"), "cannot be reached: Error 111"),
        (ConnectionRefusedError("no"), "cannot be reached: no"),
        (failures.TimeoutError("Timeout reading"), "too slowly"),
        (TimeoutError(), "too slowly: TimeoutError"),
        (failures.BusyLoadingError("LOADING"), "is loading its data"),
        (failures.ReadOnlyError("READONLY"), "is a replica"),
        (
            failures.ResponseError("Error running script: -READONLY You can't"),
            "is a replica",
        ),
        (failures.ConnectionError("The previous master is now a slave"), "failover"),
        (failures.MasterDownError("MASTERDOWN"), "lost its master"),
        (failures.ClusterDownError("CLUSTERDOWN"), "Cluster is down"),
        (failures.ClusterError("TTL exhausted."), "from node to node"),
        (failures.MovedError("1 h:1"), "moved a slot"),
        (failures.SlotNotCoveredError("slot 1"), "no node for a slot"),
        (failures.RedisClusterException("no nodes"), "Cluster cannot be reached"),
        (failures.AuthenticationError("WRONGPASS"), "refused the password"),
        (failures.NoPermissionError("NOPERM"), "refused a command"),
        (failures.ResponseError("MISCONF errors writing"), "takes no writes"),
        (failures.ResponseError("WRONGTYPE an operation"), "answered: WRONGTYPE"),
    ],
)
def test_a_failure_says_what_it_means_and_what_to_do(
    error: Exception, message: str
) -> None:
    found = unavailable(error)

    assert message in found.message
    assert found.hint
    assert found.code == "unavailable"


@pytest.mark.parametrize(
    "error",
    [
        failures.OutOfMemoryError("command not allowed when used memory > 'maxmemory'"),
        failures.ResponseError("@user_script:12: -OOM command not allowed when used"),
    ],
)
def test_a_full_redis_has_a_code_of_its_own(error: Exception) -> None:
    found = unavailable(error)

    assert (found.code, found.message) == (FULL, "Redis is full (maxmemory)")


def guard(*, longest_s: float = 5, rest_s: float = 30, calls_max: int = 4) -> Guard:
    return Guard(
        calls_max=calls_max, longest_s=longest_s, failures_max=3, rest_s=rest_s
    )


def failing(error: Exception) -> Callable[[], Awaitable[int]]:
    async def call() -> int:
        raise error

    return call


async def one() -> int:
    return 1


async def failed(tried: Guard, error: Exception, times: int) -> None:
    for _ in range(times):
        with pytest.raises(UnavailableError):
            await tried.run(failing(error))


def test_after_some_failures_nothing_is_sent_for_a_while() -> None:
    async def scene() -> None:
        tried = guard()
        await failed(tried, failures.ConnectionError("gone"), 3)
        assert tried.rests
        with pytest.raises(UnavailableError, match=r"left alone for \d+ s more.*gone"):
            await tried.run(one)

    asyncio.run(scene())


def test_an_answer_between_begins_the_count_anew() -> None:
    async def scene() -> None:
        tried = guard()
        for _ in range(3):
            await failed(tried, failures.ConnectionError("gone"), 2)
            assert await tried.run(one) == 1
        assert not tried.rests

    asyncio.run(scene())


def test_after_the_rest_one_failure_is_enough() -> None:
    async def scene() -> None:
        tried = guard(rest_s=0.05)
        await failed(tried, failures.ConnectionError("gone"), 3)
        await asyncio.sleep(0.06)
        await failed(tried, failures.ConnectionError("still"), 1)
        assert tried.rests
        await asyncio.sleep(0.06)
        assert await tried.run(one) == 1
        await failed(tried, failures.ConnectionError("again"), 2)
        assert not tried.rests

    asyncio.run(scene())


def test_a_full_redis_is_not_left_alone() -> None:
    async def scene() -> None:
        tried = guard()
        await failed(tried, failures.OutOfMemoryError("not allowed"), 9)
        assert not tried.rests

    asyncio.run(scene())


def test_a_call_that_was_given_up_says_nothing_of_redis() -> None:
    async def scene() -> None:
        tried = guard()
        await failed(tried, failures.ConnectionError("gone"), 2)
        given_up = asyncio.ensure_future(tried.run(lambda: asyncio.sleep(60)))
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.gather(given_up, return_exceptions=True)
        await failed(tried, failures.ConnectionError("gone"), 1)
        assert tried.rests

    asyncio.run(scene())


def test_a_call_ends_in_time_waiting_included() -> None:
    async def scene() -> None:
        tried = guard(longest_s=0.1, calls_max=1)
        began = time.monotonic()
        slow = [tried.run(lambda: asyncio.sleep(60)) for _ in range(2)]
        ended = await asyncio.gather(*slow, return_exceptions=True)
        assert [type(each) for each in ended] == [UnavailableError] * 2
        assert time.monotonic() - began < 5

    asyncio.run(scene())


def test_no_more_calls_run_at_once_than_may() -> None:
    running = most = 0

    async def call() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1

    async def scene() -> None:
        tried = guard(calls_max=4)
        await asyncio.gather(*[tried.run(call) for _ in range(40)])

    asyncio.run(scene())
    assert most == 4


def test_an_error_of_our_own_is_not_taken_for_one_of_redis() -> None:
    async def scene() -> None:
        tried = guard()
        for _ in range(9):
            with pytest.raises(ZeroDivisionError):
                await tried.run(failing(ZeroDivisionError()))
        assert not tried.rests

    asyncio.run(scene())
