"""A partition's store: damage has it made anew, a newer version is left alone."""

from pathlib import Path

import pytest

from support.changelogs import LOG, Owner, Topic, turns_of_all_kinds
from turnstate.schemas.dialogue.phases import default_graph
from turnstate.schemas.errors import CorruptDataError, UnknownVersionError
from turnstate.storage.warm.changelog import folded_position
from turnstate.storage.warm.rocksdb import WarmStore
from turnstate.storage.warm.tables import META, STORE_VERSION_COLD, VERSION_KEY
from turnstate.streams.clock import VirtualClock
from turnstate.streams.kafka.partition import Partition, PartitionSizes


def test_a_store_that_proved_damaged_is_made_anew_at_the_next_start(
    tmp_path: Path,
) -> None:
    topic, log, clock = Topic(), turns_of_all_kinds(1, 30), VirtualClock(1)
    owner = Owner(tmp_path / "store", topic, log, clock)
    owner.take_over(1)
    owner.fold(30)
    rows = owner.rows()
    with pytest.raises(CorruptDataError), owner.partition.condemning():
        raise CorruptDataError("a block is wrong")
    owner.close()
    again = Owner(tmp_path / "store", topic, log, clock)
    assert again.partition.folded is None
    again.take_over(2)
    assert again.rows() == rows
    again.close()
    third = Owner(tmp_path / "store", topic, log, clock)
    assert third.partition.folded == (29, 0)
    third.close()


def test_a_row_of_the_store_that_cannot_be_read_is_damage(tmp_path: Path) -> None:
    store = WarmStore(tmp_path / "store", log_name="log")
    batch = store.batch()
    batch.put(META, b"position", b"\xc1")
    store.write(batch, sync=False)
    with pytest.raises(CorruptDataError, match="position"):
        folded_position(store)
    store.close()
    owner = Owner(tmp_path / "store", Topic(), [], VirtualClock(1))
    assert owner.partition.folded is None
    owner.close()


def test_a_store_of_a_newer_version_is_not_touched(tmp_path: Path) -> None:
    store = WarmStore(tmp_path / "store", log_name="log")
    batch = store.batch()
    batch.put(META, VERSION_KEY, bytes([STORE_VERSION_COLD + 1]))
    store.write(batch, sync=False)
    store.close()
    for _ in range(2):
        with pytest.raises(UnknownVersionError):
            Owner(tmp_path / "store", Topic(), [], VirtualClock(1))


def test_what_is_folded_of_another_log_says_nothing(tmp_path: Path) -> None:
    log = turns_of_all_kinds(2, 9)
    owner = Owner(tmp_path / "store", Topic(), log, VirtualClock(1))
    owner.take_over(1)
    owner.fold(9)
    owner.close()
    for log_id, folded in ((LOG, (8, 0)), (bytes(16), None)):
        partition = Partition(
            tmp_path / "store",
            0,
            partitions=1,
            changelog_id=bytes(16),
            sizes=PartitionSizes(1 << 20, 8 << 20, 60),
            log_name="log",
            graph=default_graph(),
            clock=VirtualClock(1),
            log_id=log_id,
        )
        assert partition.folded == folded
        assert partition.next_offset == (0 if folded is None else 9)
        partition.close()
