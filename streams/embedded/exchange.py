"""Take a store's operations out as a recording, and fold a recording into one."""

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from turnstate.agents.session.recorded import recorded_bytes
from turnstate.agents.session.step import Answer
from turnstate.replay.recording import (
    RecordedErasure,
    RecordedItem,
    RecordedOperation,
)
from turnstate.replay.recording_json import json_line
from turnstate.schemas.admission import Verdict
from turnstate.schemas.errors import ConflictError
from turnstate.schemas.ids import SessionName, checked_id
from turnstate.storage.session_reader import operations
from turnstate.storage.stored_head import StoredHead
from turnstate.streams.documents import Document
from turnstate.streams.steady import steadily

if TYPE_CHECKING:
    from turnstate.streams.embedded.store import EmbeddedStore

BATCH_ITEMS: Final = 2048
"""Items handed to the engine at once, as lines of `publish` are."""

IN_FLIGHT: Final = 4
"""Batches that wait for their answers; reading goes on meanwhile."""


def export_items(
    store: "EmbeddedStore", tenant: str | None = None
) -> Iterator[RecordedItem]:
    """Yield everything that is stored, session by session in key order.

    Each session is as of one moment; sessions are not of the same one. A
    session in a later life than its first is preceded by the erasures that led
    there: an import lands in the same life, and erases what it still has of the
    earlier ones. O(largest session) memory.

    Raises:
        CorruptDataError: something stored is damaged.
    """
    if tenant is not None:
        checked_id(tenant, "tenant")
    for key, _ in store.stored_heads(tenant):
        name = SessionName.from_key(key)
        life, records = steadily(store.engine, key, partial(_life, store, key))
        for incarnation in range(1, life):
            yield RecordedErasure(name, incarnation)
        for record in records:
            yield RecordedOperation(name, life, record)


def _life(
    store: "EmbeddedStore", key: bytes, stored: StoredHead | None
) -> tuple[int, list[bytes]]:
    """Return the incarnation that a session is in, and its records."""
    if stored is None:
        return 1, []
    records = [op.record for _, op in operations(store.warm, key, stored)]
    return stored.head.incarnation, records


def import_items(store: "EmbeddedStore", items: Iterable[RecordedItem]) -> Document:
    """Fold the items of a recording; return once they are durable.

    What is there already adds nothing, so importing again is harmless.

    Args:
        store: Where to.
        items: In any order; a parent that comes later attaches its children then.
    """
    totals: Counter[str] = Counter()
    sessions: set[SessionName] = set()
    waiting: deque[Future[list[Answer]]] = deque()
    source = iter(items)
    while batch := list(islice(source, BATCH_ITEMS)):
        sessions.update(item.name for item in batch)
        totals["erasures"] += sum(isinstance(item, RecordedErasure) for item in batch)
        totals["items"] += len(batch)
        waiting.append(
            store.engine.submit([_log_record(item) for item in batch], trusted=True)
        )
        if len(waiting) > IN_FLIGHT:
            _count(totals, waiting.popleft())
    for answers in waiting:
        _count(totals, answers)
    return {
        "operations": totals["items"] - totals["erasures"],
        "erasures": totals["erasures"],
        "sessions": len(sessions),
        "accepted": totals["accepted"],
        "duplicates": totals["duplicates"],
        "conflicts": totals["conflicts"],
        "dropped": totals["dropped"],
        "refused": totals["refused"],
    }


def _log_record(item: RecordedItem) -> bytes:
    if isinstance(item, RecordedErasure):
        return json_line(item)
    return recorded_bytes(item.name, item.record)


_COUNTED: Final = {
    Verdict.ACCEPTED: "accepted",
    Verdict.DUPLICATE: "duplicates",
    Verdict.REDELIVERED: "duplicates",
    Verdict.DROPPED: "dropped",
}


def _count(totals: "Counter[str]", answers: "Future[list[Answer]]") -> None:
    for answer in answers.result():
        conflict = isinstance(answer.error, ConflictError)
        other = "conflicts" if conflict else "refused"
        totals[_COUNTED.get(answer.verdict, other)] += 1
