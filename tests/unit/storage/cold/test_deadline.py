"""One read has one limit over all that it fetches; it begins with the first."""

import threading
import time

import pytest

from support.hanging_objects import HangingObjects
from support.packs import Turned, image, memory, packs_in
from turnstate.schemas.errors import UnavailableError
from turnstate.storage.cold.deadline import OneRead, left_s, too_slow
from turnstate.storage.cold.pointer import Pointer
from turnstate.storage.cold.sessions import ColdSessions
from turnstate.storage.warm.cold_rows import ColdHead


def test_it_begins_with_the_first_fetch_and_is_shared() -> None:
    assert left_s(5.0) is None
    with OneRead():
        time.sleep(0.05)
        first = left_s(5.0)
        assert first is not None
        assert first > 4.99
        time.sleep(0.02)
        with OneRead():
            inner = left_s(5.0)
            assert inner is not None
            assert inner <= 4.98
        later = left_s(5.0)
        assert later is not None
        assert later <= inner
    assert left_s(5.0) is None


def test_it_is_never_less_than_nothing_and_ends_with_an_error() -> None:
    with pytest.raises(UnavailableError), OneRead():
        assert left_s(0.0) == 0.0
        assert left_s(0.0) == 0.0
        raise too_slow(0.5)
    assert left_s(1.0) is None


def test_other_threads_have_limits_of_their_own() -> None:
    found: list[float | None] = []
    with OneRead():
        left_s(5.0)
        thread = threading.Thread(target=lambda: found.append(left_s(5.0)))
        thread.start()
        thread.join()
    assert found == [None]


def cold_of(objects: HangingObjects) -> tuple[ColdSessions, ColdHead]:
    (pointer,) = packs_in(objects, Turned()).write([image(b"key", 3, 500)])
    return ColdSessions(packs_in(objects, Turned()), wait_s=0.2), cold_at(pointer)


def cold_at(pointer: Pointer) -> ColdHead:
    return ColdHead(pointer, b"", 0, 0, 0, 0)


def test_a_read_ends_in_time_and_what_it_asked_for_comes_all_the_same() -> None:
    objects = HangingObjects(memory())
    sessions, cold = cold_of(objects)
    objects.reads.clear()
    objects.hang()
    for _ in range(3):
        with pytest.raises(UnavailableError, match=r"within 0\.2 s"), OneRead():
            sessions.image(cold)
    assert len(objects.reads) == 1
    objects.go_on()
    with OneRead():
        found = sessions.image(cold)
    assert found.front.version == 3
    assert len(objects.reads) == 1
    sessions.close()


def test_a_job_waits_as_long_as_it_takes() -> None:
    objects = HangingObjects(memory())
    sessions, cold = cold_of(objects)
    objects.hang()
    threading.Timer(0.5, objects.go_on).start()
    found, failed = sessions.images({b"key": cold})
    assert failed == {}
    assert found[b"key"].version == 3
    sessions.close()


def test_closing_tells_who_waits_at_once() -> None:
    objects = HangingObjects(memory())
    sessions, cold = cold_of(objects)
    objects.reads.clear()
    objects.hang()
    threading.Timer(0.2, sessions.close).start()
    began = time.monotonic()
    _, failed = sessions.images({b"key": cold})
    assert time.monotonic() - began < 5
    assert failed[b"key"].code == "closed"
    with pytest.raises(UnavailableError) as told:
        sessions.image(cold)
    assert told.value.code == "closed"
    objects.go_on()
