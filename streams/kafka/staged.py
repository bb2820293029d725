"""What some fetched chunks of a partition lead to; nothing of it is durable yet."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from turnstate.agents.ports import Record
from turnstate.agents.session.agent import Folded
from turnstate.storage.warm.changelog import ChangelogBatch
from turnstate.streams.kafka.entity_records import entity_rows
from turnstate.streams.kafka.letters import letter_row
from turnstate.streams.kafka.metrics import WorkerMetrics
from turnstate.streams.kafka.partition import Partition
from turnstate.streams.kafka.records import TRACEPARENT, headers_of, turns_of
from turnstate.streams.kafka.transport import Chunk

Row = tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]
"""Key, value and headers of a record to send."""


class Staged(NamedTuple):
    """The outcome of some chunks.

    Attributes:
        partition: Whose they are.
        chunks: They.
        records: The turns in them.
        folded: What those lead to.
        batch: For the store and the changelog.
        deltas: Frames to send.
        letters: Refusals to send.
        entities: Entity upserts to send.
    """

    partition: Partition
    chunks: list[Chunk]
    records: list[Record]
    folded: Folded
    batch: ChangelogBatch
    deltas: list[Row]
    letters: list[Row]
    entities: list[Row]


def staged(
    partition: Partition, chunks: list[Chunk], log_id: bytes, metrics: WorkerMetrics
) -> Staged:
    """Fold chunks in memory; the same ones again lead to the same.

    Args:
        partition: Whose they are.
        chunks: One after another, without a hole.
        log_id: The 16 bytes of the topic id of turns.
        metrics: Refusals are counted into.

    Raises:
        ColdNeededError: sessions have to be brought back first.
    """
    fetched = [record for chunk in chunks for record in chunk.records]
    records = list(turns_of(log_id, fetched))
    folded = partition.agent.fold(records)
    batch = partition.staged(folded)
    last = records[-1].position
    batch.mark(last.offset, last.index, last.log)
    traces = {
        each.offset: told
        for each in fetched
        if each.headers and (told := headers_of(each).get(TRACEPARENT))
    }
    deltas: list[Row] = []
    for change in folded.changes:
        if change.frame is not None:
            at = change.after.position
            trace = traces.get(at.offset) if at is not None else None
            headers = [(TRACEPARENT, trace.encode())] if trace else []
            deltas.append((change.key, change.frame, headers))
    letters = _letters(partition, fetched, records, folded, metrics)
    entities = entity_rows(folded.changes, traces)
    return Staged(
        partition, chunks, records, folded, batch, deltas, letters, entities
    )


def _letters(
    partition: Partition,
    fetched: Sequence[Any],
    records: Sequence[Record],
    folded: Folded,
    metrics: WorkerMetrics,
) -> list[Row]:
    now_ms = partition.clock.now_ms()
    letters: list[Row] = []
    by_offset: dict[int, Any] = {}
    for record, answer in zip(records, folded.answers, strict=True):
        if answer.error is not None:
            by_offset = by_offset or {each.offset: each for each in fetched}
            whole = by_offset[record.position.offset]
            letters.append(letter_row(whole, record, answer.error, now_ms))
            metrics.letter(answer.error.code)
    return letters
