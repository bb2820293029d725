"""Many who want one thing cause one call, and share what comes of it."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from turnstate.schemas.errors import UnavailableError
from turnstate.storage.single_flight import SingleFlight

THREADS = 1000


def test_a_thousand_threads_cause_one_call() -> None:
    flight: SingleFlight[str, bytes] = SingleFlight()
    calls: list[int] = []
    found: list[bytes] = []
    begun = threading.Barrier(THREADS + 1)

    def fetch() -> bytes:
        calls.append(threading.get_ident())
        time.sleep(0.3)
        return b"once"

    def ask() -> None:
        begun.wait()
        found.append(flight.fetched("key", fetch))

    threads = [threading.Thread(target=ask) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    begun.wait()
    for thread in threads:
        thread.join()

    assert len(calls) == 1
    assert found == [b"once"] * THREADS


def test_a_failure_is_everybodys_who_waited_and_the_next_one_tries_anew() -> None:
    flight: SingleFlight[str, int] = SingleFlight()
    entered, go = threading.Event(), threading.Event()

    def fail() -> int:
        entered.set()
        go.wait(5)
        raise UnavailableError("away")

    def never() -> int:
        raise AssertionError("it waits for the first")

    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(flight.fetched, "key", fail)
        assert entered.wait(5)
        others = [pool.submit(flight.fetched, "key", never) for _ in range(2)]
        time.sleep(0.05)
        go.set()
        for each in (first, *others):
            with pytest.raises(UnavailableError, match="away"):
                each.result(5)

    assert flight.fetched("key", lambda: 2) == 2


def test_other_keys_do_not_wait() -> None:
    flight: SingleFlight[str, int] = SingleFlight()
    entered, go = threading.Event(), threading.Event()

    def slow() -> int:
        entered.set()
        return int(go.wait(5))

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(flight.fetched, "slow", slow)
        assert entered.wait(5)
        assert flight.fetched("quick", lambda: 7) == 7
        assert not waiting.done()
        go.set()
        assert waiting.result(5) == 1


def test_what_came_is_not_kept() -> None:
    flight: SingleFlight[str, int] = SingleFlight()
    assert flight.fetched("key", lambda: 1) == 1
    assert flight.fetched("key", lambda: 2) == 2


def test_what_is_begun_goes_on_though_nobody_waits() -> None:
    flight: SingleFlight[str, int] = SingleFlight()
    started: list[Callable[[], object]] = []
    first = flight.begun("key", lambda: 1, started.append)
    assert flight.begun("key", lambda: 2, started.append) is first
    assert not first.done()
    (fly,) = started
    fly()
    assert first.result(0) == 1
    assert flight.fetched("key", lambda: 3) == 3


def test_what_cannot_be_started_fails_for_all() -> None:
    flight: SingleFlight[str, int] = SingleFlight()

    def refuse(_: Callable[[], object]) -> None:
        raise UnavailableError("too many")

    with pytest.raises(UnavailableError, match="too many"):
        flight.begun("key", lambda: 1, refuse)
    assert flight.fetched("key", lambda: 2) == 2


def test_what_is_abandoned_may_land_all_the_same() -> None:
    flight: SingleFlight[str, int] = SingleFlight()
    started: list[Callable[[], object]] = []
    first = flight.begun("key", lambda: 1, started.append)
    flight.abandon(UnavailableError("closed"))
    with pytest.raises(UnavailableError, match="closed"):
        first.result(0)
    second = flight.begun("key", lambda: 2, started.append)
    for fly in started:
        fly()
    assert second.result(0) == 2
