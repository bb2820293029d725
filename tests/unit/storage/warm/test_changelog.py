"""A changelog gives the state back: cut anywhere, compacted, by many owners."""

from collections.abc import Generator
from pathlib import Path
from random import Random

import pytest

from support.changelogs import (
    Kept,
    Make,
    Owner,
    Send,
    Topic,
    owners,
    turns_of_all_kinds,
    undisturbed,
)
from turnstate.schemas.errors import CorruptDataError, UnknownVersionError
from turnstate.storage.warm.changelog import folded_position
from turnstate.storage.warm.changelog_reader import ChangelogReader
from turnstate.storage.warm.changelog_records import (
    PLAIN_VERSION,
    RECORD_VERSION,
    Epoch,
    owner_record,
)
from turnstate.streams.clock import VirtualClock

TURNS = 160


@pytest.fixture(name="clock")
def fixture_clock() -> VirtualClock:
    return VirtualClock(1_700_000_000_000)


@pytest.fixture(name="make")
def fixture_make(tmp_path: Path, clock: VirtualClock) -> Generator[Make]:
    """Make owners with an empty disk; all are closed in the end."""
    with owners(tmp_path, clock) as make:
        yield make


def _history(owner: Owner, clock: VirtualClock, chance: Random) -> None:
    """Fold a log in pieces of chance, and seal now and then."""
    while owner.partition.folded is None or owner.partition.folded[0] < TURNS - 1:
        owner.fold(1 + chance.randrange(12))
        clock.advance(chance.choice((5, 100, 40_000)))
        if chance.random() < 0.4:
            owner.seal()


@pytest.mark.parametrize("seed", range(3))
def test_any_beginning_is_a_state_in_which_every_session_is_whole(
    make: Make, clock: VirtualClock, seed: int
) -> None:
    log, topic = turns_of_all_kinds(seed, TURNS), Topic()
    owner = make(topic, log)
    owner.take_over(1)
    _history(owner, clock, Random(seed))
    cuts = sorted(Random(seed).sample(range(topic.end), 12))
    reader_topic = Topic()
    reader = make(reader_topic, log)
    for cut in cuts:
        reader_topic.records = topic.records[:cut]
        reader.restore()
        reader.state()
    reader_topic.records = topic.records
    reader.restore()
    assert reader.state() == owner.state() == undisturbed(make, log)
    assert reader.rows() == owner.rows()
    assert folded_position(reader.partition.store) == (TURNS - 1, 0)


@pytest.mark.parametrize("seed", range(3))
def test_a_compacted_topic_gives_the_same_rows(
    make: Make, clock: VirtualClock, seed: int
) -> None:
    log, topic, chance = turns_of_all_kinds(seed, TURNS), Topic(), Random(seed)
    owner = make(topic, log)
    owner.take_over(1)
    _history(owner, clock, chance)
    whole = len(topic.records)
    topic.compact(chance.randrange(topic.end))
    part = make(topic, log)
    part.restore()
    topic.compact(topic.end)
    rest = make(topic, log)
    rest.restore()
    assert len(topic.records) < whole
    assert part.state() == rest.state() == owner.state()
    assert part.rows() == rest.rows() == owner.rows()


def test_what_was_erased_is_in_no_record_once_compacted(
    make: Make, clock: VirtualClock
) -> None:
    secret, topic = "the number is 4711", Topic()
    log = [
        b'{"tenant":"t","session":"s","turn_id":"%d","role":"user","content":"%s"}'
        % (number, secret.encode())
        for number in range(70)
    ]
    log.append(b'{"tenant":"t","session":"s","op":"erase"}')
    log.append(log[0].replace(b'"0"', b'"again"'))
    log.append(log[-2])
    owner = make(topic, log)
    owner.take_over(1)
    owner.fold(65)
    owner.seal()
    owner.fold(6)
    owner.fold(1)  # in a life of its own,
    clock.advance(100_000)
    owner.seal()
    owner.fold(1)  # which is erased as well
    topic.compact(topic.end)
    packed = b"".join(each.value or b"" for each in topic.records)
    assert secret.encode() not in packed
    again = make(topic, log)
    again.restore()
    assert again.state() == owner.state()


def test_an_erase_and_the_turn_after_it_in_one_batch_come_back_after_a_seal(
    make: Make, clock: VirtualClock
) -> None:
    log = [
        b'{"tenant":"t","session":"s","turn_id":"1","role":"user","content":"one"}',
        b'{"tenant":"t","session":"s","op":"erase"}',
        b'{"tenant":"t","session":"s","turn_id":"2","role":"user","content":"two"}',
    ]
    topic = Topic()
    owner = make(topic, log)
    owner.take_over(1)
    owner.fold(1)
    owner.fold(2)
    clock.advance(100_000)
    owner.seal()
    topic.compact(topic.end)
    again = make(topic, log)
    again.restore()
    assert again.rows() == owner.rows()
    assert b"two" not in b"".join(
        each.value or b"" for each in topic.records if each.key[:1] == b"E"
    )


# -- owners that were replaced and do not know it ------------------------------


def test_what_a_replaced_owner_sends_late_takes_nothing_away(
    make: Make, clock: VirtualClock
) -> None:
    log, topic = turns_of_all_kinds(7, 40, sessions=1), Topic()
    first = make(topic, log)
    first.take_over(1)
    first.fold(10)
    late = first.fold(5, stopped=True)
    second = make(topic, log)
    second.take_over(2)
    clock.advance(3_000)
    second.fold(3)
    second.fold(2)  # to the same version as the one that is late
    late()
    second.fold(25)
    topic.compact(topic.end)
    third = make(topic, log)
    third.restore()
    assert third.state() == second.state() == undisturbed(make, log)
    assert third.rows() == second.rows()


def test_a_late_write_before_the_new_owner_has_written_anything_is_void(
    make: Make, clock: VirtualClock
) -> None:
    log, topic = turns_of_all_kinds(8, 40, sessions=1), Topic()
    first = make(topic, log)
    first.take_over(1)
    first.fold(10)
    late = first.fold(9, stopped=True)
    second = make(topic, log)
    second.take_over(2)
    late()
    clock.advance(3_000)
    second.fold(4)
    second.fold(26)
    third = make(topic, log)
    third.restore()
    assert third.rows() == second.rows()
    assert third.state() == undisturbed(make, log)


def test_a_late_seal_takes_no_frame_away(make: Make, clock: VirtualClock) -> None:
    log, topic = turns_of_all_kinds(9, 40, sessions=2), Topic()
    first = make(topic, log)
    first.take_over(1)
    first.fold(30)
    second = make(topic, log)
    second.take_over(2)
    clock.advance(100_000)
    first.seal(stopped=True)()
    second.fold(10)
    topic.compact(topic.end)
    third = make(topic, log)
    third.restore()
    assert third.rows() == second.rows()
    assert third.state() == undisturbed(make, log)


def test_who_reads_a_later_claim_is_not_the_owner(
    make: Make,
) -> None:
    topic = Topic()
    first, second = make(topic, []), make(topic, [])
    first.restore()
    claim = first.partition.claim(1)
    second.take_over(2)
    topic.append([claim])
    first.restore()
    assert not first.partition.restored(changed=True)
    assert not first.partition.is_fresh


@pytest.mark.parametrize("seed", range(6))
def test_owners_come_and_go_and_one_state_is_left(
    make: Make, clock: VirtualClock, seed: int
) -> None:
    """Whatever order takeovers, late writes, seals and compactions come in."""
    chance, topic = Random(seed), Topic()
    log = turns_of_all_kinds(seed, TURNS)
    workers = [make(topic, log) for _ in range(3)]
    late: list[Send] = []
    owner = workers[0]
    owner.take_over(1)
    generation = 1
    while owner.partition.folded is None or owner.partition.folded[0] < TURNS - 1:
        clock.advance(chance.choice((1, 1, 3_000, 70_000)))
        what = chance.random()
        if what < 0.5:
            owner.fold(1 + chance.randrange(9))
        elif what < 0.65:
            owner.seal()
        elif what < 0.8:
            if chance.random() < 0.5:
                late.append(owner.fold(1 + chance.randrange(9), stopped=True))
            else:
                late.append(owner.seal(stopped=True))
            generation += 1
            owner = chance.choice([each for each in workers if each is not owner])
            owner.take_over(generation)
        elif what < 0.9 and late:
            late.pop(chance.randrange(len(late)))()
        else:
            topic.compact(chance.randrange(topic.end + 1))
    for send in late:
        send()
    topic.compact(topic.end)
    fresh = make(topic, log)
    fresh.restore()
    assert fresh.rows() == owner.rows()
    assert fresh.state() == owner.state() == undisturbed(make, log)
    for worker in workers:
        worker.restore()
        assert worker.rows() == owner.rows()


# -- records that are none -------------------------------------------------------


@pytest.mark.parametrize("value", [b"", b"\xc1", b"nonsense", b"\x93\x01\x02\x03"])
def test_a_record_that_cannot_be_read_is_named(make: Make, value: bytes) -> None:
    owner = make(Topic(), [])
    reader = ChangelogReader(owner.partition.store, Epoch(0, 0))
    with pytest.raises(CorruptDataError, match="a changelog record"):
        reader.stage(owner.partition.store.batch(), value)


def test_a_record_of_a_newer_version_is_refused(make: Make) -> None:
    owner = make(Topic(), [])
    value = owner_record(Epoch(1, 1)).value
    assert value is not None
    newer = value.replace(
        bytes([0x93, PLAIN_VERSION]), bytes([0x93, RECORD_VERSION + 1]), 1
    )
    reader = ChangelogReader(owner.partition.store, Epoch(0, 0))
    with pytest.raises(UnknownVersionError, match=f"version {RECORD_VERSION + 1}"):
        reader.stage(owner.partition.store.batch(), newer)


def test_compaction_here_is_what_a_broker_does() -> None:
    topic = Topic()
    topic.records = [
        Kept(0, b"a", b"1"),
        Kept(1, b"b", b"1"),
        Kept(2, b"a", b"2"),
        Kept(3, b"b", None),
        Kept(4, b"a", b"3"),
    ]
    topic.compact(4)
    assert topic.records == [Kept(2, b"a", b"2"), Kept(4, b"a", b"3")]
