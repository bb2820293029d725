"""One store at a time backs up into a place; a killed backup keeps nobody out."""

import pytest

from support.memory_objects import MemoryObjects
from turnstate.schemas.errors import FencedError, UnavailableError
from turnstate.storage.cold.lease import TTL_MS
from turnstate.streams.embedded.backup_lease import PlaceLease, held_place


class _Clock:
    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms


def test_another_store_waits_and_the_same_does_not() -> None:
    clock = _Clock()
    objects = MemoryObjects(clock.now_ms)
    PlaceLease(objects, "a", clock)  # killed: it never lets go
    with pytest.raises(UnavailableError) as refused:
        PlaceLease(objects, "b", clock)
    assert refused.value.code == "leased"
    with held_place(objects, "a", clock):
        pass
    with held_place(objects, "b", clock):
        pass
    assert len(objects.held) == 1


def test_it_is_held_on_to_while_a_backup_runs() -> None:
    clock = _Clock()
    objects = MemoryObjects(clock.now_ms)
    with held_place(objects, "a", clock) as keep:
        for _ in range(10):
            clock.ms += TTL_MS // 3
            keep()
            with pytest.raises(UnavailableError):
                PlaceLease(objects, "b", clock)


def test_who_slept_too_long_is_fenced() -> None:
    clock = _Clock()
    objects = MemoryObjects(clock.now_ms)
    with pytest.raises(FencedError), held_place(objects, "a", clock) as keep:
        clock.ms += 3 * TTL_MS
        PlaceLease(objects, "b", clock)
        keep()


def test_a_failure_lets_go() -> None:
    clock = _Clock()
    objects = MemoryObjects(clock.now_ms)
    with pytest.raises(ValueError), held_place(objects, "a", clock):
        raise ValueError
    PlaceLease(objects, "b", clock)
