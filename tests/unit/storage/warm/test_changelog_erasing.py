"""What is buried of a changelog is needed by nobody, and holds what was erased."""

import json
from collections.abc import Generator
from pathlib import Path
from random import Random

import pytest

from support.changelogs import Make, Owner, Topic, owners, turns_of_all_kinds
from support.told import turn
from turnstate.schemas.errors import UnavailableError
from turnstate.schemas.ids import SessionName
from turnstate.storage.stored_head import StoredHead
from turnstate.storage.warm import changelog
from turnstate.storage.warm.changelog import is_needed
from turnstate.storage.warm.changelog_records import RowRecord, record_of
from turnstate.storage.warm.erase_marks import Mark, encode_mark, marks, unpurged
from turnstate.streams.clock import VirtualClock
from turnstate.streams.kafka.erase_changelog import Unburied
from turnstate.streams.kafka.session_rewrite import rewritten

HOUR_MS = 3_600_000


@pytest.fixture(name="clock")
def fixture_clock() -> VirtualClock:
    return VirtualClock(1)


@pytest.fixture(name="make")
def fixture_make(tmp_path: Path, clock: VirtualClock) -> Generator[Make]:
    with owners(tmp_path, clock) as make:
        yield make


def command(op: str, **fields: str) -> bytes:
    """Return an operation on the session of `turn`."""
    told = {"tenant": "t", "session": "s", "role": "system", "op": op, **fields}
    return json.dumps(told).encode()


def unburied(topic: Topic, owner: Owner) -> list[bytes]:
    """Return the records of all sessions that no tombstone has buried."""
    found = Unburied({}, owner.partition.store.keys())
    for record in topic.records:
        found.note(0, record.key, record.value)
    return found.keys().get(0, [])


def bury(topic: Topic, owner: Owner) -> int:
    """Bury whatever brings no row; return how much that was."""
    store = owner.partition.store
    gone = [key for key in unburied(topic, owner) if not is_needed(store, key)]
    topic.append([RowRecord(key, None) for key in gone])
    return len(gone)


@pytest.mark.parametrize("seed", range(6))
def test_nothing_is_buried_that_a_restore_needs(
    make: Make, clock: VirtualClock, seed: int
) -> None:
    """Seals that lost their tombstones, owners that were replaced: all of it goes."""
    chance, topic = Random(seed), Topic()
    log = turns_of_all_kinds(seed, 160)
    owner = make(topic, log)
    owner.take_over(1)
    generation, lost = 1, 0
    while owner.partition.next_offset < len(log):
        clock.advance(chance.choice((0, HOUR_MS)))
        kind = chance.random()
        if kind < 0.6:
            owner.fold(chance.randrange(1, 20))
        elif kind < 0.85:
            before = len(topic.records)
            owner.seal()
            sent = topic.records[before:]
            if chance.random() < 0.6:
                # It crashed between the seal and its tombstones.
                topic.records[before:] = [each for each in sent if each.value]
                lost += sum(each.value is None for each in sent)
        else:
            send_late = owner.fold(5, stopped=True)
            generation += 1
            clock.advance(1)
            owner = make(topic, log)
            owner.take_over(generation)
            send_late()
    assert bury(topic, owner) >= min(lost, 1)
    assert bury(topic, owner) == 0
    state = owner.state()
    topic.compact(topic.end)
    again = make(topic, log)
    again.take_over(generation + 1)
    assert again.state() == state


def test_after_an_erase_nothing_of_a_session_is_left(
    make: Make, clock: VirtualClock
) -> None:
    """The frames of a seal without tombstones are in no row: only the topic tells."""
    topic, log = Topic(), [turn(at, content=f"secret {at}") for at in range(1, 9)]
    log += [turn(1, "other"), command("erase")]
    owner = make(topic, log)
    owner.take_over(1)
    for _ in range(4):
        owner.fold(2)
    clock.advance(HOUR_MS)
    owner.seal()
    topic.records = [each for each in topic.records if each.value is not None]
    owner.fold(2)
    key = SessionName("t", "s").key()
    (head,) = owner.partition.store.located([key])
    assert isinstance(head, StoredHead)
    assert head.is_tombstone
    told = [each.value for each in topic.records if each.value]
    assert any(b"secret" in value for value in told)
    found = Unburied({key: 1}, [])
    for record in topic.records:
        found.note(3, record.key, record.value)
    # The tombstones that its erase has sent do not reach them.
    assert len(found.keys()[3]) == 4
    assert bury(topic, owner) == 4
    topic.compact(topic.end)
    assert not any(b"secret" in (each.value or b"") for each in topic.records)
    kept = [each for each in map(record_of, (r.key for r in topic.records)) if each]
    assert {each.session for each in kept} == {SessionName("t", "other").key()}


@pytest.mark.parametrize("seed", range(4))
def test_a_session_is_written_anew_in_its_place(
    make: Make, clock: VirtualClock, seed: int
) -> None:
    """Its state stays, its stubs are what a restore has, and nothing else."""
    topic, log = Topic(), turns_of_all_kinds(seed, 120, sessions=2)
    owner = make(topic, log)
    owner.take_over(1)
    while owner.partition.next_offset < len(log):
        owner.fold(15)
        clock.advance(HOUR_MS)
        owner.seal()
    partition, store = owner.partition, owner.partition.store
    before = owner.state()
    count = 0
    for key in list(store.keys()):
        (stored,) = store.located([key])
        assert isinstance(stored, StoredHead)
        made = rewritten(
            store,
            key,
            stored,
            None,
            graph=partition.graph,
            log_name="log",
            clock=clock,
        )
        if made.image is None:
            continue
        batch = partition.batch()
        batch.stage_rewritten(made.image)
        partition.write(batch, topic.append(batch.records))
        topic.append(batch.tombstones)
        partition.hot.drop(key)
        count += len(made.stubs)
        (stored,) = store.located([key])
        assert isinstance(stored, StoredHead)
        again = rewritten(
            store,
            key,
            stored,
            None,
            graph=partition.graph,
            log_name="log",
            clock=clock,
        )
        assert again.image is None
        assert again.stubs == made.stubs
    assert count
    after = owner.state()
    assert {key: state[0] for key, state in after.items()} == {
        key: state[0] for key, state in before.items()
    }
    assert after != before
    bury(topic, owner)
    topic.compact(topic.end)
    fresh = make(topic, log)
    fresh.take_over(2)
    assert fresh.state() == after
    assert fresh.rows() == owner.rows()


def test_one_that_does_not_fit_into_a_record_is_left_as_it_is(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changelog, "REWRITTEN_BYTES_MAX", 100)
    log = [turn(1), command("redact", target="s-1")]
    owner = make(Topic(), log)
    owner.take_over(1)
    owner.fold(2)
    partition, store = owner.partition, owner.partition.store
    (key,) = store.keys()
    (stored,) = store.located([key])
    assert isinstance(stored, StoredHead)
    clock = partition.clock
    told = {"graph": partition.graph, "log_name": "log", "clock": clock}
    made = rewritten(store, key, stored, None, **told)  # type: ignore[arg-type]
    assert made.image is not None
    with pytest.raises(UnavailableError) as failed:
        partition.batch().stage_rewritten(made.image)
    assert failed.value.code == "too_long_to_rewrite"
    assert store.located([key]) == [stored]


def test_a_restore_knows_what_has_to_be_purged(make: Make) -> None:
    topic, log = Topic(), [turn(1), turn(2, "other")]
    owner = make(topic, log)
    owner.take_over(1)
    owner.fold(2)
    key = SessionName("t", "s").key()
    mark = Mark(bytes(8), b"", 1)
    batch = owner.partition.batch()
    batch.stage_erasing(key, encode_mark(mark))
    owner.partition.write(batch, topic.append(batch.records))
    topic.compact(topic.end)
    fresh = make(topic, log)
    fresh.take_over(2)
    for each in (owner, fresh):
        store = each.partition.store
        assert list(marks(store)) == [(key, encode_mark(mark), mark)]
        assert unpurged(store) == {key: encode_mark(mark)}
        assert not list(marks(store, SessionName("u", "s").key()))
