"""The archive agent: batch after batch, each whole or not at all."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from random import Random

from support.archived import NOW_MS, folded
from support.faulty_objects import FaultyObjects, Mishap
from support.memory_objects import MemoryObjects
from turnstate.agents.archive.archiving import (
    PART_BYTES,
    ArchiveAgent,
    ArchiveBatch,
    Archived,
    parts_of,
)
from turnstate.agents.archive.phones import default_deidentifier
from turnstate.agents.archive.summary import SummaryRules, decode_summary
from turnstate.schemas.errors import UnavailableError
from turnstate.schemas.ids import SessionName
from turnstate.storage.archive import Archive
from turnstate.storage.cold.objects import ObjectStore
from turnstate.streams.clock import VirtualClock


def _agent(objects: ObjectStore, keep_ms: int | None = None) -> ArchiveAgent:
    return ArchiveAgent(
        Archive(objects, Random(1).randbytes),
        rules=SummaryRules(b"sixteen bytes and more"),
        deidentifier=default_deidentifier(),
        clock=VirtualClock(NOW_MS),
        keep_ms=keep_ms,
    )


def _batch(name: str, *sessions: str) -> ArchiveBatch:
    turns = [{"role": "user", "content": "Quite secret words of somebody"}]
    return ArchiveBatch(
        name, [folded(SessionName("acme", session), turns) for session in sessions]
    )


async def _given(batches: Sequence[ArchiveBatch]) -> AsyncIterator[ArchiveBatch]:
    for batch in batches:
        yield batch


def _run(agent: ArchiveAgent, *batches: ArchiveBatch) -> list[Archived]:
    async def run() -> list[Archived]:
        return [told async for told in agent.run(_given(batches))]

    return asyncio.run(run())


def test_batches_are_archived_in_order_and_read_back() -> None:
    objects = MemoryObjects(VirtualClock(NOW_MS).now_ms)
    told = _run(_agent(objects), _batch("b1", "a", "b"), _batch("b2", "c"))
    assert [(each.batch_id, each.sessions, each.error) for each in told] == [
        ("b1", 2, None),
        ("b2", 1, None),
    ]
    archive = Archive(objects, Random(2).randbytes)
    lines = b"".join(archive.read("b1")).splitlines()
    assert [decode_summary(line).turn_count for line in lines] == [1, 1]
    assert not any(b"secret" in data for data, _ in objects.held.values())


def test_a_batch_that_fails_is_told_and_the_next_goes_on() -> None:
    objects = MemoryObjects(VirtualClock(NOW_MS).now_ms)
    faulty = FaultyObjects(objects, {2: Mishap.REFUSED})
    agent = _agent(faulty)
    told = _run(agent, _batch("b1", "a"), _batch("b2", "b"), _batch("b1", "a"))
    assert isinstance(told[0].error, UnavailableError)
    assert [each.error for each in told[1:]] == [None, None]
    archive = Archive(objects, Random(2).randbytes)
    assert sorted(archive.manifest().batches) == ["b1", "b2"]


def test_the_same_batch_again_is_there_already() -> None:
    agent = _agent(MemoryObjects(VirtualClock(NOW_MS).now_ms))
    told = _run(agent, _batch("b1", "a"), _batch("b1", "a"))
    assert [each.was_there for each in told] == [False, True]


def test_a_batch_is_kept_as_long_as_the_policy_says() -> None:
    objects = MemoryObjects(VirtualClock(NOW_MS).now_ms)
    agent = _agent(objects, keep_ms=0)
    _run(agent, _batch("b1", "a"))
    assert asyncio.run(agent.expire()) == ["b1"]
    asyncio.run(agent.sweep())
    assert [name for name in objects.held if name.startswith("archive/")] == []


def test_lines_are_never_divided() -> None:
    lines = [bytes([65 + at]) * (PART_BYTES // 2 - 1) + b"\n" for at in range(5)]
    parts = parts_of(lines)
    assert [part.count(b"\n") for part in parts] == [2, 2, 1]
    assert b"".join(parts) == b"".join(lines)
