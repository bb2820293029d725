"""An encrypted changelog gives the same state back, and opens with its keys alone."""

from collections.abc import Callable, Generator
from pathlib import Path
from random import Random

import pytest

from support.changelogs import (
    Make,
    Owner,
    Topic,
    owners,
    turns_of_all_kinds,
    undisturbed,
)
from support.encrypting import Master
from support.memory_objects import MemoryObjects
from turnstate.schemas.errors import UnavailableError
from turnstate.storage.warm.changelog_records import (
    KEY_KIND,
    PLAIN_VERSION,
    RECORD_VERSION,
    decode_record,
)
from turnstate.storage.warm.tables import KEYS
from turnstate.streams.clock import VirtualClock
from turnstate.streams.kafka.partition_keys import PartitionKeys

TURNS = 120
SAID = (b"turn ", b"edit ", b"slot")


@pytest.fixture(name="clock")
def fixture_clock() -> VirtualClock:
    return VirtualClock(1_700_000_000_000)


@pytest.fixture(name="make")
def fixture_make(tmp_path: Path, clock: VirtualClock) -> Generator[Make]:
    with owners(tmp_path, clock) as make:
        yield make


@pytest.fixture(name="keys")
def fixture_keys(clock: VirtualClock) -> Callable[[], PartitionKeys]:
    """Give what each owner sees of the keys of the partition."""
    objects = MemoryObjects(clock.now_ms)
    return lambda: PartitionKeys(lambda: objects, "here", 0, Master())


def history(owner: Owner, clock: VirtualClock, chance: Random) -> None:
    """Fold a log in pieces of chance, and seal now and then."""
    while owner.partition.folded is None or owner.partition.folded[0] < TURNS - 1:
        owner.fold(1 + chance.randrange(12))
        clock.advance(chance.choice((5, 100, 40_000)))
        if chance.random() < 0.4:
            owner.seal()


@pytest.mark.parametrize("seed", range(3))
def test_any_beginning_is_whole_and_tells_what_plain_tells(
    make: Make, clock: VirtualClock, keys: Callable[[], PartitionKeys], seed: int
) -> None:
    log, topic = turns_of_all_kinds(seed, TURNS), Topic()
    owner = make(topic, log, keys())
    owner.take_over(1)
    history(owner, clock, Random(seed))
    assert owner.state() == undisturbed(make, log)
    told = b"".join(each.value or b"" for each in topic.records)
    assert not any(word in told for word in SAID)
    for cut in sorted(Random(seed).sample(range(2, topic.end), 6)):
        part = Topic()
        part.records, part.end = topic.records[:cut], cut
        reader = make(part, log, keys())
        reader.restore()
        reader.unlock()
        reader.state()


@pytest.mark.parametrize("seed", range(3))
def test_owners_one_after_another_and_a_compaction_leave_what_opens(
    make: Make, clock: VirtualClock, keys: Callable[[], PartitionKeys], seed: int
) -> None:
    log, topic, chance = turns_of_all_kinds(seed, TURNS), Topic(), Random(seed)
    for generation in range(1, 5):
        owner = make(topic, log, keys())
        owner.take_over(generation)
        owner.fold(1 + chance.randrange(40))
        clock.advance(40_000)
        owner.seal()
        # Replaced while what it had ready was on its way: new keys, among others.
        late = owner.fold(9, stopped=True)
        later = make(topic, log, keys())
        later.take_over(generation + 10)
        late()
        topic.compact(chance.randrange(topic.end))
    last = make(topic, log, keys())
    last.take_over(99)
    history(last, clock, chance)
    assert last.state() == undisturbed(make, log)
    topic.compact(topic.end)
    anew = make(topic, log, keys())
    anew.take_over(100)
    assert anew.rows() == last.rows()
    assert dict(anew.partition.store.stored_rows(KEYS)) == dict(
        last.partition.store.stored_rows(KEYS)
    )


def test_only_records_of_keys_need_a_newer_reader(
    make: Make, clock: VirtualClock, keys: Callable[[], PartitionKeys]
) -> None:
    log, topic = turns_of_all_kinds(1, TURNS), Topic()
    owner = make(topic, log, keys())
    owner.take_over(1)
    history(owner, clock, Random(1))
    versions = {
        (each.key[:1] == KEY_KIND, decode_record(each.value).version)
        for each in topic.records
        if each.value is not None
    }
    assert versions == {(False, PLAIN_VERSION), (True, RECORD_VERSION)}


def test_without_its_keys_nothing_is_made_anew(
    make: Make, clock: VirtualClock, keys: Callable[[], PartitionKeys]
) -> None:
    log, topic = turns_of_all_kinds(1, TURNS), Topic()
    make(topic, log, keys()).take_over(1)
    elsewhere = MemoryObjects(clock.now_ms)
    other = PartitionKeys(lambda: elsewhere, "elsewhere", 0, Master())
    with pytest.raises(UnavailableError, match="not at elsewhere") as refused:
        make(topic, log, other).take_over(2)
    assert refused.value.code == "keys_lost"
    assert not elsewhere.held
