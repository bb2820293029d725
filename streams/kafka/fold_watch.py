"""Wait until what was published is folded, and count what became of it."""

import asyncio
from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any, Final

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from turnstate.schemas.draft import Draft
from turnstate.schemas.errors import (
    CorruptDataError,
    InvalidInputError,
    UnavailableError,
)
from turnstate.schemas.operation import Op
from turnstate.schemas.wire.turn_bytes import draft_from_bytes
from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.connections import admin_client
from turnstate.streams.kafka.delta_records import Delta, delta_of
from turnstate.streams.kafka.letter_records import KeptLetter, kept_letter
from turnstate.streams.kafka.topic_ids import topic_id
from turnstate.streams.kafka.topic_reader import TopicReader, places_of
from turnstate.streams.kafka.topics import Topics

STALL_S: Final = 120.0
"""Without any progress for so long, no worker moves; a restore is quicker."""

CONFLICTS: Final = frozenset(
    {"conflict", "version_conflict", "branch_exists", "phase_constraint", "dot_reused"}
)
"""Reasons of letters that contradict what is stored (`ConflictError`)."""

_LOG_BYTES: Final = 4
_COMMITTED_EVERY_S: Final = 0.1

Progress = Callable[[int, int], None]
"""Told how many offsets of ours are folded, of how many."""


class FoldWatch:
    """Follow published turns through `deltas` and `dead-letters`.

    A frame tells the range of log positions that it was folded from, not the
    position of each operation, so a turn is found by what it is: session, id,
    content. Two publishers of one and the same turn in one batch of a worker
    may both count it as accepted; nothing else is counted twice.

    Args:
        settings: Where the brokers are, and the names.
        reader: Reads the two topics from where `begin` finds their ends.
    """

    def __init__(self, settings: ClusterSettings, reader: TopicReader) -> None:
        self._settings = settings
        self._topics = Topics.of(settings)
        self._log = b""
        self._reader = reader
        self._places = places_of(
            settings, self._topics.deltas, self._topics.dead_letters
        )
        self._waiting: Counter[int] = Counter()
        self._spans: dict[int, list[list[int]]] = {}
        self._told: dict[bytes, tuple[int, int]] = {}
        self._letters: dict[tuple[str, int, int, int], KeptLetter] = {}
        self._by_session: Counter[bytes] = Counter()
        self._folded = 0
        self.accepted = 0
        self.conflicts = 0
        self.refused = 0

    async def begin(self) -> None:
        """Remember which log it is, and where the two topics end now."""
        identity = await topic_id(self._settings, self._topics.turns)
        self._log = identity[:_LOG_BYTES]
        self._reader.assign(self._places)
        self._reader.seek(await self._reader.ends(self._places))

    def expect(self, draft: Draft) -> None:
        """Note a turn that is going to be published."""
        self._by_session[draft.key] += 1
        if draft.body.op == "erase":
            self.accepted += 1  # it has no dot, so no frame will tell of it
        else:
            self._waiting[_token_of_draft(draft)] += 1

    def acknowledged(self, topic: str, partition: int, offset: int) -> None:
        """Note a record that the brokers have."""
        if topic != self._topics.turns or offset < 0:
            return
        spans = self._spans.setdefault(partition, [])
        if spans and spans[-1][1] == offset - 1:
            spans[-1][1] = offset
        else:
            insort(spans, [offset, offset])

    @property
    def duplicates(self) -> int:
        """Return how many turns were there before, once all are folded."""
        return sum(self._waiting.values())

    @property
    def sessions(self) -> list[bytes]:
        """Return the sessions of which a turn was not refused."""
        return [key for key, count in self._by_session.items() if count > 0]

    async def wait(
        self, *, progress: Progress | None = None, stall_s: float = STALL_S
    ) -> None:
        """Wait until every acknowledged record is folded; then count.

        Raises:
            UnavailableError: nothing moved for `stall_s` (code `no_progress`).
                What was published is safe in Kafka.
        """
        loop = asyncio.get_running_loop()
        moved = loop.time()
        total = sum(last - first + 1 for first, last in self._all_spans())
        async with admin_client(self._settings) as admin:
            done = -1
            while done < total:
                now_done = await self._committed(admin)
                if now_done is not None and now_done > done:
                    done, moved = now_done, loop.time()
                    if progress is not None:
                        progress(done, total)
                if done >= total:
                    break
                if await self._take(await self._reader.records(wait_ms=100)):
                    moved = loop.time()
                if loop.time() - moved > stall_s:
                    raise self._stalled(done, total, stall_s)
        ends = await self._reader.ends(self._places)
        async for record in self._reader.until(ends):
            self._note(record)
        self._count_letters()

    async def _take(self, records: list[Any]) -> int:
        """Note records; return how many operations of ours were among them."""
        before = self._folded
        for record in records:
            self._note(record)
        return self._folded - before

    def _all_spans(self) -> list[list[int]]:
        return [span for spans in self._spans.values() for span in spans]

    async def _committed(self, admin: Any) -> int | None:
        """Return how many of our offsets are committed; None = nobody answers."""
        places = [
            TopicPartition(self._topics.turns, partition) for partition in self._spans
        ]
        if not places:
            return 0
        try:
            found: Mapping[Any, Any] = await admin.list_consumer_group_offsets(
                self._settings.group, partitions=places
            )
        except (KafkaError, OSError, TimeoutError):
            await asyncio.sleep(_COMMITTED_EVERY_S)
            return None
        done = 0
        for place in places:
            offset = found[place].offset if place in found else -1
            for first, last in self._spans[place.partition]:
                done += max(0, min(offset, last + 1) - first)
        return done

    def _stalled(self, done: int, total: int, stall_s: float) -> UnavailableError:
        return UnavailableError(
            f"no worker of the group {self._settings.group!r} moves: {max(done, 0)} of"
            f" {total} records are folded, and none in the last {stall_s:g} s",
            field="worker",
            hint="the turns are safe in Kafka; turnstate worker folds them",
            code="no_progress",
        )

    # -- what became of them -------------------------------------------------------

    def _note(self, record: Any) -> None:
        if record.topic == self._topics.deltas:
            try:
                delta = delta_of(record)
            except CorruptDataError:
                return  # who reads the state from it will say so
            self._note_frame(record.partition, delta)
        elif record.value is not None:
            try:
                kept = kept_letter(record)
            except CorruptDataError:
                return
            place = kept.refused
            if place is not None and self._is_mine(*place[:3]):
                self._letters.setdefault(place, kept)

    def _note_frame(self, partition: int, delta: Delta) -> None:
        header = delta.header
        known = self._told.get(delta.key, (0, 0))
        top = (header.incarnation, header.to_version)
        if delta.key not in self._by_session or top <= known:
            return
        skip = known[1] if known[0] == header.incarnation else 0
        self._told[delta.key] = top
        if not any(self._holds_mine(partition, at) for at in delta.positions):
            return
        for at in range(max(0, skip - header.from_version), len(delta.records)):
            token = _token_of_op(delta.key, delta.op(at))
            if self._waiting.get(token, 0):
                self._waiting[token] -= 1
                self.accepted += 1
            self._folded += 1

    def _holds_mine(self, partition: int, at: Any) -> bool:
        """Say whether a range of log positions meets what was published."""
        return (
            at.partition == partition
            and at.log == self._log
            and self._meets(partition, at.first[0], at.last[0])
        )

    def _is_mine(self, topic: str, partition: int, offset: int) -> bool:
        return topic == self._topics.turns and self._meets(partition, offset, offset)

    def _meets(self, partition: int, first: int, last: int) -> bool:
        spans = self._spans.get(partition, [])
        at = bisect_right(spans, last, key=itemgetter(0)) - 1
        return at >= 0 and spans[at][1] >= first

    def _count_letters(self) -> None:
        """Count refusals, after the frames: a stamped turn may have both."""
        for kept in self._letters.values():
            try:
                draft = draft_from_bytes(kept.letter.raw)
            except InvalidInputError:
                self.refused += 1  # sent as it was, unchecked
                continue
            if draft.body.op == "erase":
                self.accepted -= 1
            else:
                token = _token_of_draft(draft)
                if not self._waiting.get(token, 0):
                    continue
                self._waiting[token] -= 1
            if kept.letter.reason in CONFLICTS:
                self.conflicts += 1
            else:
                self.refused += 1
                self._by_session[draft.key] -= 1


def _token_of_draft(draft: Draft) -> int:
    op = draft.body.op
    if op is not None:
        # The owner writes what an operation names by its dot: other bytes.
        return hash((draft.key, draft.turn_id, op))
    return hash((draft.key, draft.turn_id, draft.content_hash))


def _token_of_op(key: bytes, op: Op) -> int:
    kind = op.body.op
    if kind is not None:
        return hash((key, op.turn_id, kind))
    return hash((key, op.turn_id, op.content_hash))


