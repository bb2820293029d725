"""Sessions go to the cold tier and come back, and the changelog restores them whole."""

import os
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
from turnstate.schemas.errors import UnavailableError
from turnstate.storage.cold.directory import DirectoryObjects
from turnstate.storage.cold.store import PackStore
from turnstate.storage.warm import changelog
from turnstate.storage.warm.changelog_records import (
    COLD_KIND,
    FRAME_KIND,
    SEGMENT_KIND,
    WOKEN_KIND,
    decode_record,
)
from turnstate.streams.clock import VirtualClock

TURNS = 120


@pytest.fixture(name="clock")
def fixture_clock() -> VirtualClock:
    return VirtualClock(1_700_000_000_000)


@pytest.fixture(name="make")
def fixture_make(
    tmp_path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> Generator[Make]:
    """Make owners with an empty disk and one cold tier; all are closed in the end."""
    monkeypatch.setattr(changelog, "PART_BYTES", 500)
    packs = PackStore(
        DirectoryObjects(tmp_path / "cold"), clock=clock.now_ms, chance=os.urandom
    )
    with owners(tmp_path, clock, packs) as make:
        yield make


def _folded(owner: Owner) -> int:
    return 0 if owner.partition.folded is None else owner.partition.folded[0] + 1


def _kinds(topic: Topic) -> set[bytes]:
    return {each.key[:1] for each in topic.records}


def _restored(make: Make, topic: Topic, log: list[bytes]) -> Owner:
    owner = make(topic, log)
    owner.restore()
    return owner


def test_a_cold_session_is_one_record_and_comes_back_whole(
    make: Make, clock: VirtualClock
) -> None:
    log, topic = turns_of_all_kinds(1, 60, sessions=2), Topic()
    owner = make(topic, log)
    owner.take_over(1)
    owner.fold(60)
    before = owner.state()
    clock.advance(1000)
    owner.cool(owner.keys(cold=False))
    assert len(owner.keys(cold=True)) == 2
    topic.compact(topic.end)
    assert not {FRAME_KIND, SEGMENT_KIND, WOKEN_KIND} & _kinds(topic)
    cold = [each for each in topic.records if each.key[:1] == COLD_KIND]
    assert len(cold) == 2
    # However long the session is, that it is cold takes no more than this.
    assert all(len(each.value or b"") < 400 for each in cold)
    fresh = _restored(make, topic, log)
    assert fresh.state() == owner.state() == before
    assert fresh.rows() == owner.rows()
    assert fresh.partition.store.knows_cold
    owner.wake(owner.keys(cold=True))
    topic.compact(topic.end)
    assert COLD_KIND not in _kinds(topic)
    woken = [each for each in topic.records if each.key[:1] == WOKEN_KIND]
    assert len(woken) > 4
    again = _restored(make, topic, log)
    assert again.state() == owner.state() == before
    assert again.rows() == owner.rows()


def test_a_late_turn_of_a_cold_session_wakes_it(
    make: Make, clock: VirtualClock
) -> None:
    log, topic = turns_of_all_kinds(2, 80, sessions=3), Topic()
    owner = make(topic, log)
    owner.take_over(1)
    for _ in range(4):
        owner.fold(20)
        clock.advance(1000)
        owner.cool(owner.keys(cold=False))
    assert owner.state() == undisturbed(make, log)
    topic.compact(topic.end)
    assert _restored(make, topic, log).rows() == owner.rows()


def test_half_a_session_that_comes_back_is_cold(
    make: Make, clock: VirtualClock
) -> None:
    log, topic = turns_of_all_kinds(3, 60, sessions=1), Topic()
    owner = make(topic, log)
    owner.take_over(1)
    owner.fold(60)
    owner.cool(owner.keys(cold=False))
    before, cold = owner.state(), owner.keys(cold=True)
    for parts in range(1, 4):
        owner.wake(cold, stopped=True, parts=parts)
        fresh = _restored(make, topic, log)
        assert fresh.keys(cold=True) == cold
        assert fresh.state() == before
        # Whoever takes over brings it back all the same, and sends it away again.
        fresh.take_over(parts + 1)
        fresh.wake(cold)
        assert fresh.state() == before
        clock.advance(1000)
        fresh.cool(cold)
        assert fresh.state() == before
        topic.compact(topic.end)
        owner = _restored(make, topic, log)
        owner.take_over(parts + 10)
        assert owner.state() == before
        assert owner.rows() == fresh.rows()


def test_a_disk_from_before_follows_a_compacted_topic(
    make: Make, clock: VirtualClock
) -> None:
    """Rows that are on a disk, and gone from the topic, go from the disk as well."""
    log, topic = turns_of_all_kinds(4, 90, sessions=2), Topic()
    owner = make(topic, log)
    owner.take_over(1)
    owner.fold(30)
    old = _restored(make, topic, log)
    owner.fold(30)
    clock.advance(70_000)
    owner.seal()
    owner.cool(owner.keys(cold=False))
    middle = _restored(make, topic, log)
    owner.repoint(owner.keys(cold=True))
    topic.compact(topic.end)
    for worker in (old, middle):
        worker.restore()
        assert worker.rows() == owner.rows()
    owner.wake(owner.keys(cold=True))
    owner.fold(30)
    topic.compact(topic.end)
    for worker in (old, middle, make(topic, log)):
        worker.restore()
        assert worker.rows() == owner.rows()
        assert worker.state() == undisturbed(make, log)


def test_an_erase_of_a_cold_session_leaves_nothing_in_the_topic(
    make: Make, clock: VirtualClock
) -> None:
    secret, topic = "the number is 4711", Topic()
    told = '{"tenant":"t","session":"s","turn_id":"%d","role":"user","content":"%s"}'
    log = [(told % (number, secret)).encode() for number in range(40)]
    log.append(b'{"tenant":"t","session":"s","role":"system","op":"erase"}')
    owner = make(topic, log)
    owner.take_over(1)
    owner.fold(20)
    owner.cool(owner.keys(cold=False))
    owner.fold(20)
    owner.cool(owner.keys(cold=False))
    clock.advance(1000)
    owner.wake(owner.keys(cold=True))
    owner.cool(owner.keys(cold=False))
    owner.fold(1)
    topic.compact(topic.end)
    assert secret.encode() not in b"".join(each.value or b"" for each in topic.records)
    assert _restored(make, topic, log).rows() == owner.rows()


def test_what_a_replaced_owner_sends_late_takes_no_session_away(
    make: Make, clock: VirtualClock
) -> None:
    log, topic = turns_of_all_kinds(5, 60, sessions=2), Topic()
    first = make(topic, log)
    first.take_over(1)
    first.fold(40)
    clock.advance(1000)
    late = [first.cool(first.keys(cold=False), stopped=True)]
    first.cool(first.keys(cold=False))
    late.append(first.wake(first.keys(cold=True), stopped=True))
    late.append(first.repoint(first.keys(cold=True), stopped=True))
    second = make(topic, log)
    second.take_over(2)
    second.wake(second.keys(cold=True))
    for send in late:
        send()
    second.fold(20)
    topic.compact(topic.end)
    fresh = _restored(make, topic, log)
    assert fresh.rows() == second.rows()
    assert fresh.state() == undisturbed(make, log)


def test_records_say_no_more_than_old_readers_know_where_nothing_is_cold(
    make: Make, clock: VirtualClock
) -> None:
    log, topic = turns_of_all_kinds(6, 60), Topic()
    owner = make(topic, log)
    owner.take_over(1)
    owner.fold(60)
    clock.advance(100_000)
    owner.seal()

    def versions() -> set[int]:
        return {
            decode_record(each.value).version
            for each in topic.records
            if each.value is not None
        }

    assert versions() == {1}
    owner.cool(owner.keys(cold=False))
    assert versions() == {1, 2}


def test_without_a_cold_tier_a_cold_session_says_so(
    make: Make, tmp_path: Path, clock: VirtualClock
) -> None:
    log, topic = turns_of_all_kinds(7, 20, sessions=1), Topic()
    owner = make(topic, log)
    owner.take_over(1)
    owner.fold(20)
    owner.cool(owner.keys(cold=False))
    lonely = Owner(tmp_path / "lonely", topic, log, clock)
    lonely.restore()
    with pytest.raises(UnavailableError) as caught:
        lonely.state()
    assert caught.value.code == "cold_away"
    lonely.close()


@pytest.mark.parametrize("seed", range(8))
def test_any_cut_of_any_history_restores_whole_sessions(
    make: Make, clock: VirtualClock, seed: int
) -> None:
    """Takeovers, late writes, moves, seals, erases and compactions by chance."""
    chance, topic = Random(seed), Topic()
    log = turns_of_all_kinds(seed + 50, TURNS, sessions=3)
    workers = [make(topic, log) for _ in range(2)]
    late: list[Send] = []
    owner, generation = workers[0], 1
    owner.take_over(1)
    whole: list[Kept] = []

    def some(*, cold: bool) -> list[bytes]:
        keys = owner.keys(cold=cold)
        return chance.sample(keys, chance.randrange(len(keys) + 1))

    while _folded(owner) < TURNS:
        clock.advance(chance.choice((1, 1, 3_000, 70_000)))
        what = chance.random()
        stopped = False
        if what < 0.35:
            owner.fold(1 + chance.randrange(9))
        elif what < 0.42:
            owner.seal()
        elif what < 0.56:
            owner.cool(some(cold=False))
        elif what < 0.62:
            owner.wake(some(cold=True))
        elif what < 0.66:
            owner.repoint(some(cold=True))
        elif what < 0.84:
            kind = chance.randrange(5)
            if kind == 0:
                late.append(owner.fold(1 + chance.randrange(9), stopped=True))
            elif kind == 1:
                late.append(owner.seal(stopped=True))
            elif kind == 2:
                late.append(owner.cool(some(cold=False), stopped=True))
            elif kind == 3:
                parts = chance.randrange(4)
                late.append(owner.wake(some(cold=True), stopped=True, parts=parts))
            else:
                late.append(owner.repoint(some(cold=True), stopped=True))
            stopped = True
        elif what < 0.92 and late:
            late.pop(chance.randrange(len(late)))()
        else:
            topic.compact(chance.randrange(topic.end + 1))
        whole = list(topic.records)
        if stopped:
            generation += 1
            owner = chance.choice([each for each in workers if each is not owner])
            owner.take_over(generation)
    for send in late:
        send()
    wanted = undisturbed(make, log)
    assert owner.state() == wanted
    for cut in sorted(chance.sample(range(1, len(whole) + 1), 6)):
        part = Topic()
        part.records, part.end = whole[:cut], topic.end
        part.compact(chance.randrange(topic.end + 1))
        _restored(make, part, log).state()
    topic.compact(topic.end)
    fresh = _restored(make, topic, log)
    assert fresh.state() == wanted
    assert fresh.rows() == owner.rows()
    for worker in workers:
        worker.restore()
        assert worker.rows() == owner.rows()
