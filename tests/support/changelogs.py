"""A changelog as a list, its owners one after another, and those that were replaced."""

import json
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from turnstate.agents.ports import Record
from turnstate.schemas.dialogue.head import digest
from turnstate.schemas.dialogue.phases import default_graph
from turnstate.schemas.position import Position
from turnstate.storage.cold.sessions import ColdSessions
from turnstate.storage.cold.store import PackStore
from turnstate.storage.session_image import encode_image
from turnstate.storage.session_reader import operations
from turnstate.storage.stored_head import StoredHead, encode_stored_head
from turnstate.storage.verify import verify_session
from turnstate.storage.warm.changelog import KEY_SET_KEY, ChangelogBatch
from turnstate.storage.warm.changelog_records import RowRecord
from turnstate.storage.warm.cold_rows import ColdHead, cold_head
from turnstate.storage.warm.tables import STATE_TABLES
from turnstate.streams.clock import VirtualClock
from turnstate.streams.kafka.cold_tier import ColdNeededError
from turnstate.streams.kafka.partition import Partition, PartitionSizes
from turnstate.streams.kafka.partition_keys import PartitionKeys
from turnstate.streams.kafka.unlocking import use_keys

LOG: Final = bytes(range(16))
SEAL_AFTER_S: Final = 60

Send = Callable[[], None]
"""Sends what an owner had ready when it was stopped."""

State = dict[bytes, tuple[bytes, list[bytes]]]
"""Session key → digest, and the operation of every version."""


class Kept(NamedTuple):
    """A record as a topic keeps it."""

    offset: int
    key: bytes
    value: bytes | None


class Topic:
    """One partition of a compacted topic."""

    def __init__(self) -> None:
        self.records: list[Kept] = []
        self.end = 0

    def append(self, rows: list[RowRecord]) -> int | None:
        """Add records; return the offset of the last one."""
        for row in rows:
            self.records.append(Kept(self.end, row.key, row.value))
            self.end += 1
        return self.end - 1 if rows else None

    def compact(self, upto: int) -> None:
        """Do below an offset what a broker does: the last of each key stays.

        A key whose last record is a tombstone goes altogether.
        """
        below = [each for each in self.records if each.offset < upto]
        last = {each.key: each.offset for each in below}
        self.records = [
            each
            for each in below
            if last[each.key] == each.offset and each.value is not None
        ] + self.records[len(below) :]


class Owner:
    """A worker with one partition that folds a log, as a checkpoint does it."""

    def __init__(
        self,
        folder: Path,
        topic: Topic,
        log: list[bytes],
        clock: VirtualClock,
        packs: PackStore | None = None,
        keys: PartitionKeys | None = None,
    ) -> None:
        self.partition_keys = keys
        self.topic = topic
        self.log = log
        self.packs = packs
        self.cold = None if packs is None else ColdSessions(packs)
        self.partition = Partition(
            folder,
            0,
            partitions=1,
            changelog_id=bytes(16),
            sizes=PartitionSizes(1 << 20, 8 << 20, SEAL_AFTER_S),
            log_name="log",
            graph=default_graph(),
            clock=clock,
            below=self.cold,
        )

    def take_over(self, generation: int) -> None:
        """Restore, claim, read up to the claim."""
        before = self.partition.applied.offset
        self.restore()
        self.topic.append([self.partition.claim(generation)])
        self.restore()
        if self.partition_keys is not None:
            self.unlock()
        changed = self.partition.applied.offset != before
        assert self.partition.restored(changed=changed)

    def unlock(self) -> None:
        """Encrypt from now on, as `unlocking.unlock` has it."""
        assert self.partition_keys is not None
        expected = self.partition.store.meta(KEY_SET_KEY)
        opened = self.partition_keys.take_over(expected)
        use_keys(self.partition, self.partition_keys, opened)
        if expected is None:
            batch = self.partition.batch()
            batch.stage_key_set(opened.stored.id)
            self.partition.write(batch, self.topic.append(batch.records))

    def restore(self, *, batch: int = 7) -> None:
        """Apply what the store does not have yet."""
        after = self.partition.applied.offset
        rows = [(each.offset, each.value) for each in self.topic.records]
        rows = [row for row in rows if row[0] > after]
        for at in range(0, len(rows), batch):
            self.partition.apply(rows[at : at + batch])

    def fold(self, count: int, *, stopped: bool = False) -> Send:
        """Fold the next turns of the log.

        Where it is stopped before its records go out, they go when what is
        returned is called; its store does not get them.
        """
        partition = self.partition
        begin = 0 if partition.folded is None else partition.folded[0] + 1
        records = [
            Record(raw, Position(LOG, 0, begin + at, 0))
            for at, raw in enumerate(self.log[begin : begin + count])
        ]
        if not records:
            return lambda: None
        try:
            folded = partition.agent.fold(records)
        except ColdNeededError as needed:
            self.wake(needed.keys)
            folded = partition.agent.fold(records)
        batch = partition.staged(folded)
        last = records[-1].position
        batch.mark(last.offset, last.index, LOG)
        if not stopped:
            partition.write(batch, self.topic.append(batch.records))
            partition.committed(folded, last.offset, last.index)
        return lambda: self._send(batch.records)

    def seal(self, *, stopped: bool = False) -> Send:
        """Seal what is due; see `fold`."""
        partition = self.partition
        seals = partition.due_seals()
        batch = partition.staged_seals(seals)
        if not stopped:
            partition.write(batch, self.topic.append(batch.records))
            for sealed in seals:
                partition.sealer.done(sealed)
            self.topic.append(batch.tombstones)
        return lambda: self._send(batch.records)

    def keys(self, *, cold: bool) -> list[bytes]:
        """Return the sessions that are cold, or those that are not."""
        store = self.partition.store
        return [
            key
            for key in list(store.keys())
            for found in store.located([key])
            if isinstance(found, ColdHead) is cold
            and not (isinstance(found, StoredHead) and found.is_tombstone)
        ]

    def cool(self, keys: list[bytes], *, stopped: bool = False) -> Send:
        """Seal sessions, copy them into packs and let them go; see `fold`."""
        partition, store = self.partition, self.partition.store
        assert self.packs is not None
        seals = partition.sealer.planned(keys=keys)
        sealing = partition.staged_seals(seals)
        partition.write(sealing, self.topic.append(sealing.records))
        partition.sealed(seals)
        self.topic.append(sealing.tombstones)
        heads = {
            key: found
            for key, found in zip(keys, store.located(keys), strict=True)
            if isinstance(found, StoredHead)
        }
        images = [
            store.image(key, head, encode_stored_head(head))
            for key, head in heads.items()
        ]
        pointers = self.packs.write(map(encode_image, images))
        batch = partition.batch()
        for image, pointer in zip(images, pointers, strict=True):
            now_ms = partition.clock.now_ms()
            batch.stage_cooled(image, cold_head(heads[image.key], pointer, now_ms))
        return self._carried(batch, stopped=stopped, gone=list(heads))

    def wake(
        self, keys: list[bytes], *, stopped: bool = False, parts: int | None = None
    ) -> Send:
        """Bring cold sessions back; see `fold`.

        Args:
            keys: They.
            stopped: Nothing is sent, or `parts` records are and no more.
            parts: How many.
        """
        fetched, failed = self.partition.cold.fetch(keys)
        assert not failed
        batch, _ = self.partition.cold.stage(fetched)
        if parts is not None:
            self.topic.append(batch.records[:parts])
        rest = batch.records[parts or 0 :]
        send = self._carried(batch, stopped=stopped, gone=[])
        return (lambda: self._send(rest)) if stopped else send

    def repoint(self, keys: list[bytes], *, stopped: bool = False) -> Send:
        """Copy cold sessions into another pack, and point there; see `fold`."""
        assert self.packs is not None
        batch = self.partition.batch()
        for key in keys:
            (found,) = self.partition.store.located([key])
            assert isinstance(found, ColdHead)
            images, _ = self.partition.store.images([key])
            (pointer,) = self.packs.write([encode_image(images[key])])
            batch.stage_pointed(key, found, replace(found, pointer=pointer))
        return self._carried(batch, stopped=stopped, gone=[])

    def _carried(
        self, batch: ChangelogBatch, *, stopped: bool, gone: list[bytes]
    ) -> Send:
        if not stopped:
            for key in gone:
                self.partition.hot.drop(key)
            self.partition.write(batch, self.topic.append(batch.records))
            self.topic.append(batch.tombstones)
        return lambda: self._send(batch.records)

    def _send(self, records: list[RowRecord]) -> None:
        self.topic.append(records)

    def close(self) -> None:
        """Let the store go."""
        self.partition.close()
        if self.cold is not None:
            self.cold.close()

    def state(self) -> State:
        """Return what the store holds; every frame is verified."""
        store, found = self.partition.store, State()
        for key in list(store.keys()):
            head = store.heads([key])[0]
            assert head is not None
            images, failed = store.images([key])
            assert not failed, failed
            image = images.get(key)
            faults = verify_session(store, key, head, default_graph(), image).faults
            assert not faults, (key, faults)
            told = [op.record for _, op in operations(store, key, head)]
            assert len(told) == head.head.version
            found[key] = digest(head.head), told
        return found

    def rows(self) -> dict[str, dict[bytes, bytes]]:
        """Return the tables that count as state, but for what is this store's."""
        return {table: dict(self.partition.store.rows(table)) for table in STATE_TABLES}


def turns_of_all_kinds(seed: int, count: int, *, sessions: int = 4) -> list[bytes]:
    """Return turns, edits, redactions, forks, duplicates, erases, by chance."""
    return list(_turns(Random(seed), count, sessions))


def _turns(chance: Random, count: int, sessions: int) -> Iterator[bytes]:
    ids: dict[str, list[str]] = {}
    for number in range(count):
        session = f"s{chance.randrange(sessions)}"
        known = ids.setdefault(session, [])
        told: dict[str, Any] = {
            "tenant": "t",
            "session": session,
            "turn_id": f"{number}",
            "role": "user",
            "content": f"turn {number} " + "x" * chance.randrange(60),
            "slots": {"set": {f"slot{number % 5}": number}},
        }
        kind = chance.random()
        if known and kind < 0.06:
            told["turn_id"] = chance.choice(known)  # a duplicate, or a conflict
        elif known and kind < 0.14:
            target = chance.choice(known)
            told |= {"op": "edit", "target": target, "content": f"edit {number}"}
        elif known and kind < 0.20:
            told = {k: v for k, v in told.items() if k in ("tenant", "session")}
            target = chance.choice(known)
            told |= {"role": "system", "op": "redact", "target": target}
            told["turn_id"] = f"{number}"
        elif known and kind < 0.23:
            told = {"tenant": "t", "session": session, "role": "system", "op": "erase"}
            known.clear()
        else:
            known.append(f"{number}")
        yield json.dumps(told).encode()


Make = Callable[..., Owner]
"""Makes an owner of a topic and a log, with an empty disk."""


@contextmanager
def owners(
    folder: Path, clock: VirtualClock, packs: PackStore | None = None
) -> Generator[Make]:
    """Give what makes owners; all are closed in the end."""
    made: list[Owner] = []
    numbers = count()

    def make(
        topic: Topic, log: list[bytes], keys: PartitionKeys | None = None
    ) -> Owner:
        place = folder / str(next(numbers))
        made.append(Owner(place, topic, log, clock, packs, keys))
        return made[-1]

    try:
        yield make
    finally:
        for owner in made:
            owner.close()


def undisturbed(make: Make, log: list[bytes]) -> State:
    """Return what a log folds into where nothing ever happens."""
    owner = make(Topic(), log)
    owner.take_over(1)
    owner.fold(len(log))
    return owner.state()
