"""Fetches run so many at a time, wait bounded, and keep nobody from ending."""

import subprocess
import sys
import threading

import pytest

from turnstate.schemas.errors import UnavailableError
from turnstate.storage.cold.fetchers import Fetchers

WAIT_S = 5.0


def test_so_many_run_at_once_and_the_others_wait() -> None:
    fetchers = Fetchers(2, "test", waiting_max=3)
    go_on = threading.Event()
    running, ended = threading.Semaphore(0), threading.Semaphore(0)

    def fetch() -> None:
        running.release()
        go_on.wait(WAIT_S)
        ended.release()

    for _ in range(2):
        fetchers.start(fetch)
        assert running.acquire(timeout=WAIT_S)
    for _ in range(3):
        fetchers.start(fetch)
    assert not running.acquire(timeout=0.05), "there are two threads"
    with pytest.raises(UnavailableError, match="3 fetches wait") as told:
        fetchers.start(fetch)
    assert told.value.code == "cold_away"
    go_on.set()
    for _ in range(5):
        assert ended.acquire(timeout=WAIT_S)
    fetchers.close()


def test_closed_begins_nothing_more_and_waits_for_nobody() -> None:
    fetchers = Fetchers(1, "test")
    go_on, entered, second = threading.Event(), threading.Event(), threading.Event()

    def hang() -> None:
        entered.set()
        go_on.wait(WAIT_S)

    fetchers.start(hang)
    assert entered.wait(WAIT_S)
    fetchers.start(second.set)
    fetchers.close()
    fetchers.close()
    with pytest.raises(UnavailableError) as told:
        fetchers.start(second.set)
    assert told.value.code == "closed"
    go_on.set()
    for thread in threading.enumerate():
        if thread.name == "test":
            thread.join(WAIT_S)
            assert not thread.is_alive()
    assert not second.is_set()


def test_a_fetch_that_hangs_keeps_no_process_from_ending() -> None:
    code = (
        "import threading\n"
        "from turnstate.storage.cold.fetchers import Fetchers\n"
        "entered = threading.Event()\n"
        "def hang():\n"
        "    entered.set()\n"
        "    threading.Event().wait()\n"
        "Fetchers(1, 'hangs').start(hang)\n"
        "assert entered.wait(10)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], timeout=30, check=False)
    assert done.returncode == 0
