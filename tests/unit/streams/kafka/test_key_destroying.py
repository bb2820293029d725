"""Keys that an erase destroys open no copy any more, and a crash only delays it."""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from support.changelogs import Make, Owner, Topic, owners
from support.encrypting import MASTER_B, Master
from support.faulty_objects import FaultyObjects, Mishap
from support.faulty_store import FaultyStore
from support.memory_objects import MemoryObjects
from support.told import turn
from turnstate.schemas.errors import (
    CorruptDataError,
    ErasedKeyError,
    TurnstateError,
    UnavailableError,
)
from turnstate.schemas.ids import SessionName
from turnstate.storage.cold.objects import ObjectStore
from turnstate.storage.encryption.key_rows import KeyRow
from turnstate.storage.encryption.key_set import OpenedKeySet
from turnstate.storage.encryption.slotted_keys import SlottedKeyRing
from turnstate.storage.warm.changelog import ChangelogBatch
from turnstate.storage.warm.changelog_records import KEY_KIND, decode_record
from turnstate.storage.warm.tables import KEYS
from turnstate.streams.clock import VirtualClock
from turnstate.streams.kafka.key_destroying import destroy_keys
from turnstate.streams.kafka.partition import Partition
from turnstate.streams.kafka.partition_keys import PartitionKeys
from turnstate.streams.kafka.worker_moves import WorkerMoves

SESSIONS = [f"s{number}" for number in range(40)]
EVE = SessionName("t", "s7").key()
ERASE = (
    b'{"tenant": "t", "session": "s7", "role": "system", "op": "erase"}'
)


@dataclass
class BetweenRounds:
    """Do at once what a worker does between two rounds."""

    owner: Owner

    @property
    def partition(self) -> Partition:
        return self.owner.partition

    def done(self, number: int, call: Callable[[Any], Awaitable[Any]]) -> Any:
        assert number == self.partition.number

        async def run() -> Any:
            return await call(self)

        return asyncio.run(run())

    async def written(
        self, batch: ChangelogBatch, then: Callable[[], object] = lambda: None
    ) -> None:
        self.partition.write(batch, self.owner.topic.append(batch.records))
        then()
        self.owner.topic.append(batch.tombstones)


def destroy(owner: Owner, lives: dict[bytes, int]) -> int:
    moves = cast("WorkerMoves", BetweenRounds(owner))
    return destroy_keys(owner.partition, moves, lives)


@pytest.fixture(name="make")
def fixture_make(tmp_path: Path) -> Generator[Make]:
    with owners(tmp_path, VirtualClock(1_700_000_000_000)) as make:
        yield make


@pytest.fixture(name="objects")
def fixture_objects() -> MemoryObjects:
    return MemoryObjects(lambda: 0)


def folded(make: Make, opens_place: Callable[[], ObjectStore]) -> Owner:
    """Return an owner of sessions, one of which is erased."""
    log = [turn(number, session) for number in range(3) for session in SESSIONS]
    keys = PartitionKeys(opens_place, "here", 0, Master())
    owner = make(Topic(), [*log, ERASE], keys)
    owner.take_over(1)
    owner.fold(len(log))
    owner.fold(1)
    return owner


def key_rows(topic: Topic) -> list[tuple[bytes, bytes]]:
    """Return every row of a key that any record brings, compacted or not."""
    return [
        (at, row)
        for each in topic.records
        if each.key[:1] == KEY_KIND and each.value is not None
        for _, _, at, row in decode_record(each.value).rows
    ]


def opens(keys: OpenedKeySet, at: bytes, row: bytes) -> bool:
    """Say whether a copy of a row gives its key, by what there is now."""
    store = FaultyStore("log")
    store.rows_by_table[KEYS][at] = row
    try:
        SlottedKeyRing(store, keys).find(at)
    except CorruptDataError as error:
        if error.code != "key_lost":
            raise
        return False
    except ErasedKeyError:
        return False
    return True


def check(
    owner: Owner, objects: ObjectStore, before: dict[bytes, bytes], gone: bytes
) -> None:
    """Check that one key is gone wherever it lies, and all others are not."""
    assert owner.partition.unlocked is not None
    keys = owner.partition.unlocked.keys.keys
    assert keys is not None
    assert keys.stored.replaced == []
    assert len(list(objects.list())) == 1
    now = dict(owner.partition.store.stored_rows(KEYS))
    assert KeyRow.decode(now[gone]).is_destroyed
    assert {at for at, row in now.items() if opens(keys, at, row)} == set(now) - {gone}
    # No copy of its row opens: in the log as it lies, or in an older store.
    copies = [row for at, row in key_rows(owner.topic) if at == gone]
    assert len(copies) > 1
    assert not any(opens(keys, gone, row) for row in copies)
    assert not opens(keys, gone, before[gone])
    owner.state()


def test_a_copy_of_its_row_opens_nothing(make: Make, objects: MemoryObjects) -> None:
    owner = folded(make, lambda: objects)
    before = dict(owner.partition.store.stored_rows(KEYS))
    told = owner.state()
    assert destroy(owner, {EVE: 1}) == 1
    now = dict(owner.partition.store.stored_rows(KEYS))
    (gone,) = [at for at, row in now.items() if KeyRow.decode(row).is_destroyed]
    check(owner, objects, before, gone)
    assert owner.state() == told
    assert destroy(owner, {EVE: 1}) == 0
    anew = make(owner.topic, owner.log, owner.partition_keys)
    anew.take_over(2)
    assert anew.state() == told
    assert dict(anew.partition.store.stored_rows(KEYS)) == now


@pytest.mark.parametrize("mishap", [Mishap.REFUSED, Mishap.LOST])
def test_a_place_that_fails_at_any_call_delays_it(
    make: Make, objects: MemoryObjects, mishap: Mishap
) -> None:
    places: list[ObjectStore] = [objects]
    owner = folded(make, lambda: places[-1])
    before = dict(owner.partition.store.stored_rows(KEYS))
    told = owner.state()
    met = 0
    for at in range(1, 40):
        faulty = FaultyObjects(objects, {at: mishap})
        places.append(faulty)
        try:
            destroy(owner, {EVE: 1})
        except TurnstateError:
            owner.state()
        met += len(faulty.met)
        if faulty.calls < at:
            break
    else:
        pytest.fail("it never came to an end")
    assert met > 5
    now = dict(owner.partition.store.stored_rows(KEYS))
    (gone,) = [at for at, row in now.items() if KeyRow.decode(row).is_destroyed]
    check(owner, objects, before, gone)
    assert owner.state() == told


def test_a_place_that_is_away_is_named(make: Make, objects: MemoryObjects) -> None:
    owner = folded(make, lambda: objects)
    told = owner.state()
    objects.is_away = True
    with pytest.raises(UnavailableError, match="place of the keys") as away:
        destroy(owner, {EVE: 1})
    assert away.value.code == "keys_away"
    assert owner.state() == told
    objects.is_away = False
    assert destroy(owner, {EVE: 1}) == 1


def test_who_was_replaced_destroys_nothing(make: Make, objects: MemoryObjects) -> None:
    owner = folded(make, lambda: objects)
    later = make(
        owner.topic, owner.log, PartitionKeys(lambda: objects, "here", 0, Master())
    )
    later.take_over(2)
    held = dict(objects.held)
    with pytest.raises(UnavailableError) as refused:
        destroy(owner, {EVE: 1})
    assert refused.value.code == "not_fresh"
    assert objects.held == held
    later.state()


def test_a_crash_between_the_steps_is_finished_by_the_next_owner(
    make: Make, objects: MemoryObjects
) -> None:
    owner = folded(make, lambda: objects)
    before = dict(owner.partition.store.stored_rows(KEYS))
    assert owner.partition.unlocked is not None
    owner.partition.unlocked.keys.replace([9, 10])
    later = make(
        owner.topic, owner.log, PartitionKeys(lambda: objects, "here", 0, Master())
    )
    later.take_over(2)
    assert destroy(later, {EVE: 1}) == 1
    now = dict(later.partition.store.stored_rows(KEYS))
    (gone,) = [at for at, row in now.items() if KeyRow.decode(row).is_destroyed]
    check(later, objects, before, gone)


def test_another_master_key_is_taken_while_the_owner_goes_on(
    make: Make, objects: MemoryObjects
) -> None:
    owner = folded(make, lambda: objects)
    told = owner.state()
    job = PartitionKeys(lambda: objects, "here", 0, Master())
    assert job.rotate(Master(MASTER_B))
    assert not job.rotate(Master(MASTER_B))
    assert destroy(owner, {EVE: 1}) == 1
    old = PartitionKeys(lambda: objects, "here", 0, Master())
    with pytest.raises(UnavailableError, match=MASTER_B) as refused:
        make(owner.topic, owner.log, old).take_over(2)
    assert refused.value.code == "wrong_key"
    new = PartitionKeys(lambda: objects, "here", 0, Master(MASTER_B))
    later = make(owner.topic, owner.log, new)
    later.take_over(3)
    assert later.state() == told
    with pytest.raises(UnavailableError) as replaced:
        assert owner.partition.unlocked is not None
        owner.partition.unlocked.keys.replace([1])
    assert replaced.value.code == "not_fresh"
