"""Archiving: some sessions as one batch, whole or not at all."""

from random import Random

import pytest

from support.archived import NOW_MS, folded
from support.faulty_objects import FaultyObjects, Mishap
from support.memory_objects import MemoryObjects
from turnstate.agents.archive.archiving import (
    PART_BYTES,
    Archiver,
    ToArchive,
    parts_of,
)
from turnstate.agents.archive.phones import default_deidentifier
from turnstate.agents.archive.summary import SummaryRules, decode_summary
from turnstate.schemas.errors import UnavailableError
from turnstate.schemas.ids import SessionName
from turnstate.storage.archive import Archive
from turnstate.storage.cold.objects import ObjectStore
from turnstate.streams.clock import VirtualClock


def _archiver(objects: ObjectStore, keep_ms: int | None = None) -> Archiver:
    return Archiver(
        Archive(objects, Random(1).randbytes),
        rules=SummaryRules(b"sixteen bytes and more"),
        deidentifier=default_deidentifier(),
        clock=VirtualClock(NOW_MS),
        keep_ms=keep_ms,
    )


def _sessions(*names: str) -> list[ToArchive]:
    turns = [{"role": "user", "content": "Quite secret words of somebody"}]
    return [folded(SessionName("acme", name), turns) for name in names]


def test_batches_are_archived_and_read_back() -> None:
    objects = MemoryObjects(VirtualClock(NOW_MS).now_ms)
    archiver = _archiver(objects)
    first = archiver.archive(_sessions("a", "b"))
    assert (first.sessions, archiver.archive(_sessions("c")).sessions) == (2, 1)
    archive = Archive(objects, Random(2).randbytes)
    lines = b"".join(archive.read(first.batch_id)).splitlines()
    assert [decode_summary(line).turn_count for line in lines] == [1, 1]
    assert sum(map(len, lines)) + len(lines) == first.bytes
    assert not any(b"secret" in data for data, _ in objects.held.values())


def test_a_batch_that_fails_leaves_nothing_and_comes_again() -> None:
    objects = MemoryObjects(VirtualClock(NOW_MS).now_ms)
    archiver = _archiver(FaultyObjects(objects, {2: Mishap.REFUSED}))
    with pytest.raises(UnavailableError):
        archiver.archive(_sessions("a", "b"))
    archive = Archive(objects, Random(2).randbytes)
    assert not archive.manifest().batches
    assert not [name for name in objects.held if name.startswith("archive/")]
    again = archiver.archive(_sessions("a", "b"))
    assert not again.was_there
    assert list(archive.manifest().batches) == [again.batch_id]


def test_the_same_sessions_again_are_there_already() -> None:
    archiver = _archiver(MemoryObjects(VirtualClock(NOW_MS).now_ms))
    told = [archiver.archive(_sessions("a")) for _ in range(2)]
    assert [each.was_there for each in told] == [False, True]
    assert told[0].batch_id == told[1].batch_id
    assert told[0].batch_id != archiver.archive(_sessions("a", "b")).batch_id


def test_a_batch_is_kept_as_long_as_the_policy_says() -> None:
    objects = MemoryObjects(VirtualClock(NOW_MS).now_ms)
    made = _archiver(objects, keep_ms=1).archive(_sessions("a"))
    archive = Archive(objects, Random(2).randbytes)
    assert archive.expire(NOW_MS) == []
    assert archive.expire(NOW_MS + 1) == [made.batch_id]
    assert [name for name in objects.held if name.startswith("archive/")] == []


def test_lines_are_never_divided() -> None:
    lines = [bytes([65 + at]) * (PART_BYTES // 2 - 1) + b"\n" for at in range(5)]
    parts = parts_of(lines)
    assert [part.count(b"\n") for part in parts] == [2, 2, 1]
    assert b"".join(parts) == b"".join(lines)
