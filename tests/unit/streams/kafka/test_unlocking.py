"""Partitions are unlocked as they are taken over, and stay so through a rebalance."""

import asyncio
from collections.abc import Callable, Generator
from pathlib import Path
from typing import cast

import pytest

from support.changelogs import Make, Owner, Topic, owners
from support.encrypting import key_setting
from support.told import turn
from turnstate.schemas.errors import UnavailableError
from turnstate.storage.warm.changelog import ChangelogBatch
from turnstate.streams.clock import VirtualClock
from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.partition import Partition
from turnstate.streams.kafka.partition_keys import ClusterKeys, cluster_keys
from turnstate.streams.kafka.rounds import Rounds
from turnstate.streams.kafka.unlocking import unlock


class Written:
    """Write what no turn brought, as between two rounds."""

    def __init__(self, owner: Owner) -> None:
        self.owner = owner

    async def write(
        self,
        partition: Partition,
        batch: ChangelogBatch,
        then: Callable[[], object] = lambda: None,
    ) -> bool:
        partition.write(batch, self.owner.topic.append(batch.records))
        then()
        return True


@pytest.fixture(name="make")
def fixture_make(tmp_path: Path) -> Generator[Make]:
    with owners(tmp_path / "stores", VirtualClock(1_700_000_000_000)) as make:
        yield make


@pytest.fixture(name="cluster")
def fixture_cluster(tmp_path: Path) -> ClusterSettings:
    return ClusterSettings(
        cold=str(tmp_path / "cold"), encryption=key_setting(tmp_path), partitions=1
    )


def claimed(owner: Owner, generation: int) -> Owner:
    """Have an owner restore, claim, and read up to its claim."""
    owner.restore()
    owner.topic.append([owner.partition.claim(generation)])
    owner.restore()
    return owner


def unlocked(owner: Owner, keys: ClusterKeys | None) -> bool:
    rounds = cast("Rounds", Written(owner))
    return asyncio.run(unlock({0: owner.partition}, keys, rounds))


def objects(keys: ClusterKeys) -> list[Path]:
    return sorted(path for path in Path(keys.where).rglob("*") if path.is_file())


def test_a_partition_that_stays_needs_no_place(
    make: Make, cluster: ClusterSettings
) -> None:
    owner = claimed(make(Topic(), [turn(1, "s"), turn(2, "s")]), 1)
    keys = cluster_keys(cluster)
    assert keys is not None
    assert unlocked(owner, keys)
    owner.fold(1)
    (made,) = objects(keys)
    aside = made.rename(made.with_name("aside"))
    assert unlocked(claimed(owner, 2), keys)
    owner.fold(1)
    aside.rename(made)
    # Another one owned it in between: its keys may have changed.
    other = claimed(make(owner.topic, owner.log), 3)
    with ClusterKeys(cluster, keys.wrapper) as theirs:
        assert unlocked(other, theirs)
    (second,) = objects(keys)
    assert unlocked(claimed(owner, 4), keys)
    (third,) = objects(keys)
    assert made.name < second.name < third.name
    assert owner.state() == other.state()
    keys.close()


def test_an_encrypted_partition_is_refused_without_a_key(
    make: Make, cluster: ClusterSettings
) -> None:
    keys = cluster_keys(cluster)
    assert keys is not None
    topic = Topic()
    assert unlocked(claimed(make(topic, []), 1), keys)
    keys.close()
    with pytest.raises(UnavailableError, match="TURNSTATE_ENCRYPTION") as refused:
        unlocked(claimed(make(topic, []), 2), None)
    assert (refused.value.field, refused.value.code) == ("encryption", "encrypted")


def test_in_plain_nothing_is_asked_and_nothing_is_written(make: Make) -> None:
    owner = claimed(make(Topic(), []), 1)
    records = list(owner.topic.records)
    assert cluster_keys(ClusterSettings()) is None
    assert unlocked(owner, None)
    assert owner.partition.store.row_cipher is None
    assert owner.topic.records == records


def test_who_was_overtaken_stays_locked(make: Make, cluster: ClusterSettings) -> None:
    keys = cluster_keys(cluster)
    assert keys is not None
    owner = claimed(make(Topic(), []), 1)
    later = claimed(make(owner.topic, []), 2)
    owner.restore()
    assert later.partition.epoch > owner.partition.epoch
    assert unlocked(owner, keys)
    assert owner.partition.store.row_cipher is None
    keys.close()
