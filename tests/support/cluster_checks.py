"""Look at all that a cluster left: its topics and stores say one and the same."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from support.cluster import Cluster, Sample, Taken
from turnstate.schemas.dialogue.head import digest
from turnstate.schemas.dialogue.phases import DialogueGraph, default_graph
from turnstate.schemas.ids import SessionName
from turnstate.schemas.operation import Op
from turnstate.storage.verify import verify_session
from turnstate.storage.warm.below import Below
from turnstate.storage.warm.changelog import folded_position
from turnstate.storage.warm.rocksdb import WarmStore
from turnstate.streams.clock import SystemClock
from turnstate.streams.embedded.store import EmbeddedStore
from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.delta_records import delta_of
from turnstate.streams.kafka.partition import Partition, PartitionSizes
from turnstate.streams.kafka.restore import restore
from turnstate.streams.kafka.topic_ids import topic_id
from turnstate.streams.kafka.topic_reader import read_whole
from turnstate.streams.kafka.topics import Topics
from turnstate.streams.settings import Settings

LOG_NAME: Final = "log"

Digests = dict[bytes, bytes]
"""Session key → digest."""


class Told(NamedTuple):
    """What `deltas` says of one session.

    Attributes:
        records: Version → the operation's bytes.
        first: Turn id → (partition, offset) of the first frame that has it.
    """

    records: dict[int, bytes]
    first: dict[str, tuple[int, int]]


class Checked(NamedTuple):
    """What a check has seen.

    Attributes:
        turns: Records in the topic of turns.
        sessions: Sessions that they make.
        operations: Operations that `deltas` has, each once.
        frames: Frames that it has, those sent again as well.
    """

    turns: int
    sessions: int
    operations: int
    frames: int


async def check_cluster(
    cluster: Cluster, taken: Sequence[Taken], samples: Sequence[Sample] = ()
) -> Checked:
    """Compare everything, once all is folded and the workers have ended.

    Every acknowledged turn is in the topic and was folded once; the digests of
    an embedded run over the same log, of the workers' stores and of a restore
    from nothing are the same; no version is missing on `deltas`, or there with
    two contents; nothing was committed before its frame was out.

    Args:
        cluster: It.
        taken: What was acknowledged to the producer.
        samples: What was committed at some moments, with the end of `deltas`.
    """
    settings = cluster.settings
    log: list[Any] = [each async for each in read_whole(settings, cluster.topics.turns)]
    log.sort(key=lambda each: (each.partition, each.offset))
    wanted = await asyncio.to_thread(
        embedded_digests, cluster.folder / "embedded", [each.value for each in log]
    )
    told, frames = await _told(settings, cluster.topics.deltas)
    names = sorted(map(SessionName.from_key, set(told) ^ set(wanted)))
    assert not names, f"deltas has other sessions than the log: {names[:5]}"
    _check_taken(taken, log, told)
    for key, session in told.items():
        assert sorted(session.records) == list(range(1, len(session.records) + 1)), (
            f"{SessionName.from_key(key)} lacks versions on deltas"
        )
    _check_samples(samples, log, told)
    stores = await asyncio.to_thread(store_digests, cluster)
    assert stores == wanted, _differences("the stores", stores, wanted)
    restored = await restored_digests(settings, cluster.folder / "restored")
    assert restored == wanted, _differences("a restore", restored, wanted)
    operations = sum(len(session.records) for session in told.values())
    return Checked(len(log), len(wanted), operations, frames)


def embedded_digests(folder: Path, lines: Iterable[bytes]) -> Digests:
    """Return the digests of an undisturbed embedded run over a log."""
    with EmbeddedStore(Settings(data=folder, fsync="never")) as store:
        store.publish(list(lines))
        return _digests(store.warm)


def store_digests(cluster: Cluster) -> Digests:
    """Return the digests of the stores of each partition's last owner, verified.

    The last owner is known by the position it folded: none is behind another.
    """
    found: dict[int, tuple[int, Path]] = {}
    for worker in cluster.workers.values():
        for path in (cluster.folder / "data" / worker.name).glob("*/store"):
            store = WarmStore(path, log_name=LOG_NAME)
            try:
                at = folded_offset(store)
            finally:
                store.close()
            number = int(path.parent.name)
            found[number] = max(found.get(number, (-1, path)), (at, path))
    digests: Digests = {}
    for _, path in found.values():
        store = WarmStore(path, log_name=LOG_NAME)
        try:
            digests |= _verified(store)
        finally:
            store.close()
    return digests


def folded_offset(store: WarmStore) -> int:
    """Return the offset that a store has folded last, -1 = none."""
    position = folded_position(store)
    return -1 if position is None else position[0]


async def restored_digests(settings: ClusterSettings, folder: Path) -> Digests:
    """Return the digests of partitions restored from nothing, verified."""
    partitions = await restored(settings, folder)
    try:
        return {
            key: value
            for partition in partitions.values()
            for key, value in _verified(partition.store).items()
        }
    finally:
        for partition in partitions.values():
            partition.close()


async def restored(
    settings: ClusterSettings, folder: Path, below: Below | None = None
) -> dict[int, Partition]:
    """Restore every partition from the changelog alone; close them afterwards.

    Args:
        settings: Of the cluster.
        folder: Where to.
        below: Where cold sessions are, if some are.
    """
    changelog = Topics.of(settings).changelog
    changelog_id = await topic_id(settings, changelog)
    partitions = {
        number: Partition(
            folder / str(number),
            number,
            partitions=settings.partitions,
            changelog_id=changelog_id,
            sizes=PartitionSizes(1 << 20, 8 << 20, 3600),
            log_name=LOG_NAME,
            graph=default_graph(),
            clock=SystemClock(),
            below=below,
        )
        for number in range(settings.partitions)
    }
    await restore(settings, changelog, partitions, lambda _: None)
    return partitions


def _digests(store: WarmStore) -> Digests:
    found: Digests = {}
    for key in list(store.keys()):
        head = store.heads([key])[0]
        assert head is not None
        found[key] = digest(head.head)
    return found


def _verified(store: WarmStore, graph: DialogueGraph | None = None) -> Digests:
    """Return the digests of a store in which every frame is read and folded."""
    for key in list(store.keys()):
        head = store.heads([key])[0]
        assert head is not None
        faults = verify_session(store, key, head, graph or default_graph()).faults
        assert not faults, f"{store.path}: {faults}"
    return _digests(store)


async def _told(settings: ClusterSettings, topic: str) -> tuple[dict[bytes, Told], int]:
    told: dict[bytes, Told] = {}
    frames = 0
    async for record in read_whole(settings, topic):
        frames += 1
        delta = delta_of(record)
        session = told.setdefault(delta.key, Told({}, {}))
        for at, raw in enumerate(delta.records, start=delta.header.from_version + 1):
            known = session.records.setdefault(at, raw)
            assert known == raw, (
                f"version {at} of {SessionName.from_key(delta.key)} has two contents"
            )
            turn_id = Op.decode(raw).turn_id
            if turn_id is not None:
                place = record.partition, record.offset
                session.first[turn_id] = min(session.first.get(turn_id, place), place)
    return told, frames


def _check_taken(
    taken: Sequence[Taken], log: Sequence[Any], told: dict[bytes, Told]
) -> None:
    at = {(each.partition, each.offset): each for each in log}
    for turn in taken:
        record = at.get((turn.partition, turn.offset))
        assert record is not None, f"{turn} is not in the log"
        key = SessionName(turn.tenant, turn.session).key()
        assert record.key == key
        assert turn.turn_id in told[key].first, f"{turn} is lost"
    for key, session in told.items():
        names = Counter(Op.decode(raw).turn_id for raw in session.records.values())
        twice = [name for name, count in names.items() if count > 1]
        assert not twice, f"{SessionName.from_key(key)} has {twice} twice"


def _check_samples(
    samples: Sequence[Sample], log: Sequence[Any], told: dict[bytes, Told]
) -> None:
    first: dict[tuple[int, int], int] = {}
    for record in log:
        turn_id = msgspec.json.decode(record.value)["turn_id"]
        first[record.partition, record.offset] = told[record.key].first[turn_id][1]
    for sample in samples:
        for (partition, offset), frame in first.items():
            if offset < sample.committed[partition]:
                assert frame < sample.deltas[partition], (
                    f"turn {partition}-{offset} was committed before it was folded"
                )


def _differences(what: str, found: Digests, wanted: Digests) -> str:
    lost = sorted(wanted.keys() - found.keys())
    extra = sorted(found.keys() - wanted.keys())
    other = sorted(k for k in wanted.keys() & found.keys() if wanted[k] != found[k])
    names = [SessionName.from_key(key) for key in (lost + extra + other)[:5]]
    return (
        f"{what}: {len(lost)} sessions lost, {len(extra)} too many,"
        f" {len(other)} other than they should be, as {names}"
    )
