"""Batches are archived all or none, once, and go when their time is over."""

from random import Random

import pytest

from support.faulty_objects import FaultyObjects, Mishap
from support.memory_objects import MemoryObjects
from turnstate.schemas.errors import (
    CorruptDataError,
    InvalidInputError,
    NotFoundError,
    TurnstateError,
    UnavailableError,
)
from turnstate.storage.archive import KEPT, MIN_AGE_MS, Archive
from turnstate.storage.archive_manifest import BATCHES
from turnstate.storage.cold.objects import ObjectStore

PARTS = [b"one\n", b"two\n", b"three\n"]


class _Time:
    """A clock that is turned by hand."""

    def __init__(self) -> None:
        self.ms = 10 * MIN_AGE_MS

    def __call__(self) -> int:
        return self.ms


@pytest.fixture(name="time")
def fixture_time() -> _Time:
    return _Time()


@pytest.fixture(name="objects")
def fixture_objects(time: _Time) -> MemoryObjects:
    return MemoryObjects(time)


def _archive(objects: ObjectStore, seed: int = 1) -> Archive:
    return Archive(objects, Random(seed).randbytes)


def _put(archive: Archive, batch: str, time: _Time, **more: int) -> bool:
    return archive.put(batch, PARTS, records=3, now_ms=time(), **more)


def _parts(objects: MemoryObjects) -> list[str]:
    return [name for name in objects.held if name.startswith(BATCHES)]


def test_a_batch_reads_back(objects: MemoryObjects, time: _Time) -> None:
    archive = _archive(objects)
    assert _put(archive, "monday", time)
    assert list(archive.read("monday")) == PARTS
    assert archive.manifest().batches["monday"].records == 3


def test_the_same_batch_is_archived_once(objects: MemoryObjects, time: _Time) -> None:
    archive = _archive(objects)
    assert _put(archive, "monday", time)
    before = dict(objects.held)
    assert not _put(archive, "monday", time)
    assert objects.held == before


def test_nobody_reads_a_batch_before_its_commit(
    objects: MemoryObjects, time: _Time
) -> None:
    archive = _archive(objects)

    def look() -> None:
        other = _archive(objects, 2)
        assert not other.manifest().batches
        with pytest.raises(NotFoundError):
            list(other.read("monday"))

    objects.interrupt(dict.fromkeys(range(1, 10), look))
    _put(archive, "monday", time)


def _calls(time: _Time) -> int:
    counted = FaultyObjects(MemoryObjects(time))
    _put(_archive(counted), "monday", time)
    return counted.calls


@pytest.mark.parametrize("mishap", [Mishap.REFUSED, Mishap.LOST, Mishap.TORN])
def test_whatever_call_fails_it_is_all_or_none(mishap: Mishap, time: _Time) -> None:
    """At every call: afterwards the batch is whole, or nothing of it is read."""
    for at in range(1, _calls(time) + 1):
        held = MemoryObjects(time)
        faulty = FaultyObjects(held, {at: mishap})
        error: TurnstateError | None = None
        try:
            _put(_archive(faulty), "monday", time)
        except TurnstateError as met:
            error = met
        archive = _archive(held, 2)
        if error is None:
            assert list(archive.read("monday")) == PARTS
            continue
        if "monday" not in archive.manifest().batches:
            time.ms += 2 * MIN_AGE_MS
            archive.sweep(time())
            assert _parts(held) == []
            # Whoever gave it gives it again.
            assert _put(_archive(held, 3), "monday", time)
        assert list(_archive(held, 4).read("monday")) == PARTS


def test_a_part_that_fails_takes_the_others_with_it(
    objects: MemoryObjects, time: _Time
) -> None:
    faulty = FaultyObjects(objects, {6: Mishap.REFUSED})
    with pytest.raises(UnavailableError):
        _put(_archive(faulty), "monday", time)
    assert _parts(objects) == []


def test_what_a_crash_leaves_is_swept_once_it_is_old(
    objects: MemoryObjects, time: _Time
) -> None:
    archive = _archive(objects)
    _put(archive, "kept", time)

    def crash() -> None:
        raise KeyboardInterrupt

    objects.interrupt({6: crash})
    with pytest.raises(KeyboardInterrupt):
        _put(archive, "lost", time)
    left = len(_parts(objects))
    assert left > len(PARTS)
    assert archive.sweep(time()).parts == 0
    time.ms += MIN_AGE_MS + 1
    assert archive.sweep(time()).parts == left - len(PARTS)
    assert list(archive.read("kept")) == PARTS


def test_a_writer_that_a_sweep_has_passed_commits_nothing(
    objects: MemoryObjects, time: _Time
) -> None:
    slow = _archive(objects)

    def sleep_and_sweep() -> None:
        time.ms += 2 * MIN_AGE_MS
        _archive(objects, 2).sweep(time())

    began = time()
    objects.interrupt({8: sleep_and_sweep})
    with pytest.raises(UnavailableError) as refused:
        slow.put("monday", PARTS, records=3, now_ms=began)
    assert refused.value.code == "collected"
    assert _parts(objects) == []
    assert _put(slow, "monday", time)
    assert list(slow.read("monday")) == PARTS


@pytest.mark.parametrize("at", range(1, 12))
def test_two_writers_at_once_lose_nothing(
    objects: MemoryObjects, time: _Time, at: int
) -> None:
    first, second = _archive(objects, 1), _archive(objects, 2)
    objects.interrupt({at: lambda: _put(second, "tuesday", time)})
    assert _put(first, "monday", time)
    if "tuesday" not in first.manifest().batches:
        _put(second, "tuesday", time)
    for batch in ("monday", "tuesday"):
        assert list(first.read(batch)) == PARTS


@pytest.mark.parametrize("at", range(1, 12))
def test_two_writers_of_one_batch_leave_one(
    objects: MemoryObjects, time: _Time, at: int
) -> None:
    first, second = _archive(objects, 1), _archive(objects, 2)
    told: list[bool] = []
    objects.interrupt({at: lambda: told.append(_put(second, "monday", time))})
    told.append(_put(first, "monday", time))
    assert told.count(True) == 1
    assert list(first.read("monday")) == PARTS
    assert len(_parts(objects)) == len(PARTS)


def test_a_batch_goes_when_its_time_is_over(
    objects: MemoryObjects, time: _Time
) -> None:
    archive = _archive(objects)
    _put(archive, "short", time, expires_ms=time() + 100)
    _put(archive, "long", time, expires_ms=time() + 1000)
    _put(archive, "ever", time)
    assert archive.expire(time() + 99) == []
    assert archive.expire(time() + 100) == ["short"]
    assert sorted(archive.manifest().batches) == ["ever", "long"]
    assert archive.expire(time() + 10_000) == ["long"]
    assert len(_parts(objects)) == len(PARTS)


def test_a_batch_is_removed_at_once_where_it_must(
    objects: MemoryObjects, time: _Time
) -> None:
    archive = _archive(objects)
    _put(archive, "monday", time)
    assert archive.remove("monday")
    assert not archive.remove("monday")
    assert _parts(objects) == []


def test_old_manifests_are_swept(objects: MemoryObjects, time: _Time) -> None:
    archive = _archive(objects)
    for number in range(2 * KEPT):
        _put(archive, f"b{number}", time)
    archive.sweep(time())
    names = [name for name in objects.held if name.startswith("transactions/")]
    assert len(names) == KEPT + 1
    assert len(archive.manifest().batches) == 2 * KEPT


def test_a_damaged_and_a_missing_part_are_named(
    objects: MemoryObjects, time: _Time
) -> None:
    archive = _archive(objects)
    _put(archive, "monday", time)
    name = _parts(objects)[1]
    objects.held[name] = (b"others", time())
    with pytest.raises(CorruptDataError, match=name):
        list(archive.read("monday"))
    del objects.held[name]
    with pytest.raises(CorruptDataError, match=name):
        list(archive.read("monday"))


@pytest.mark.parametrize("batch", ["", "a/b", ".", "x" * 129, "日"])
def test_an_id_that_is_none_is_refused(
    objects: MemoryObjects, time: _Time, batch: str
) -> None:
    with pytest.raises(InvalidInputError) as refused:
        _put(_archive(objects), batch, time)
    assert refused.value.field == "batch"
    assert objects.held == {}
