"""Files of a partition, linked at any moment: with the tail they are all of it."""

import shutil
from pathlib import Path
from random import Random

import pytest

from support.changelogs import Make, Owner, Topic, owners, turns_of_all_kinds
from turnstate.schemas.errors import CorruptDataError
from turnstate.storage.backup.checkpoint import remove_checkpoint
from turnstate.storage.warm.rocksdb import WarmStore
from turnstate.streams.clock import VirtualClock
from turnstate.streams.kafka.partition_files import facts_in, link_files

TURNS = 160


def _worked(owner: Owner, chance: Random, clock: VirtualClock, upto: int) -> None:
    """Fold, seal and compact by chance, until so many turns are folded."""
    while owner.partition.next_offset < upto:
        owner.fold(min(1 + chance.randrange(9), upto - owner.partition.next_offset))
        if chance.random() < 0.4:
            clock.advance(100_000)
            owner.seal()
        if chance.random() < 0.3:
            owner.topic.compact(chance.randrange(owner.topic.end + 1))


def _restored(make: Make, topic: Topic, log: list[bytes]) -> Owner:
    owner = make(topic, log)
    owner.take_over(7)
    return owner


@pytest.mark.parametrize("seed", range(6))
def test_files_and_tail_are_what_the_whole_changelog_is(
    seed: int, tmp_path: Path
) -> None:
    """Turns, edits, redactions, erases, seals; tombstones are gone before it is read.

    That is more than is promised: a backup older than `delete.retention.ms` is
    not used.
    """
    chance, clock = Random(seed), VirtualClock(1_700_000_000_000)
    log, topic = turns_of_all_kinds(seed, TURNS), Topic()
    with owners(tmp_path, clock) as make:
        owner = make(topic, log)
        owner.take_over(1)
        _worked(owner, chance, clock, 1 + chance.randrange(TURNS))
        folder = link_files(owner.partition)
        facts = facts_in(folder, log_name="log", number=0, partitions=1)
        assert facts.partition.offset == owner.partition.applied.offset
        assert facts.partition.epoch == tuple(owner.partition.epoch)
        assert facts.store.position == owner.partition.next_offset
        kept = tmp_path / "kept"
        shutil.copytree(folder, kept)
        remove_checkpoint(folder)
        _worked(owner, chance, clock, TURNS)
        topic.compact(topic.end)
        begun = make(topic, log)
        begun.partition.adopt(kept)
        assert begun.partition.applied.offset == facts.partition.offset
        read = sum(each.offset > facts.partition.offset for each in topic.records)
        assert read < topic.end
        begun.take_over(6)
        whole = _restored(make, topic, log)
        assert begun.state() == whole.state() == owner.state()
        assert begun.rows() == whole.rows() == owner.rows()


def test_reading_what_files_are_leaves_nothing_among_them(tmp_path: Path) -> None:
    with owners(tmp_path, VirtualClock(1)) as make:
        owner = make(Topic(), turns_of_all_kinds(1, 20))
        owner.take_over(1)
        owner.fold(20)
        folder = link_files(owner.partition)
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        facts_in(folder, log_name="log", number=0, partitions=1)
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_the_files_of_another_kind_of_store_are_refused(tmp_path: Path) -> None:
    WarmStore(tmp_path / "store", log_name="log").close()
    with pytest.raises(CorruptDataError, match="not the store of a partition"):
        facts_in(tmp_path / "store", log_name="log", number=0, partitions=1)


def test_files_that_a_crash_left_go_when_the_store_is_opened(tmp_path: Path) -> None:
    owner = Owner(tmp_path / "store", Topic(), [], VirtualClock(1))
    owner.take_over(1)
    folder = link_files(owner.partition)
    assert folder.is_dir()
    owner.close()
    Owner(tmp_path / "store", Topic(), [], VirtualClock(1)).close()
    assert not folder.exists()
