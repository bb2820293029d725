"""Find in a store what an erase is about: log records, and rows that have to go."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from turnstate.agents.ports import Record
from turnstate.agents.session.rebuild import traced
from turnstate.schemas.clocks import Dot
from turnstate.schemas.errors import CorruptDataError
from turnstate.schemas.operation import Op
from turnstate.storage.session_reader import operations
from turnstate.storage.warm.tables import (
    FRAMES,
    HEADS,
    INDEX,
    LIFE_BYTES,
    SEGMENTS,
    session_prefix,
)
from turnstate.streams.embedded.erase_plan import ErasePlan
from turnstate.streams.embedded.fell_behind import records_after
from turnstate.streams.embedded.scrub import draft_of

if TYPE_CHECKING:
    from turnstate.streams.embedded.store import EmbeddedStore


def became_of(
    store: "EmbeddedStore", plan: ErasePlan, stubs: Mapping[tuple[bytes, Dot], Op]
) -> dict[int, tuple[bytes, Op]]:
    """Return which log record became which operation, in sessions that go on."""
    if not stubs:
        return {}
    log = store.engine.log
    keys: dict[bytes, Any] = dict.fromkeys(plan.rewritten)
    records: dict[bytes, list[Record]] = {key: [] for key in keys}
    try:
        for key, record in records_after(log, keys, log.end):
            records[key].append(record)
    except CorruptDataError:
        # A trimmed log rebuilds nothing: what is left of it is blanked instead.
        return {}
    found: dict[int, tuple[bytes, Op]] = {}
    for key, mine in records.items():
        traces = traced(
            key,
            mine,
            graph=store.graph,
            log_name=store.engine.log.names,
            clock=store.clock,
        )
        found |= {offset: (key, op) for offset, op in traces.items()}
    return found


def erased_at_of(store: "EmbeddedStore", plan: ErasePlan) -> dict[bytes, int]:
    """Return the offset of the erase that ended each life of the plan."""
    if not plan.lives:
        return {}
    found: dict[bytes, int] = {}
    for offset, raw in store.engine.log.read():
        if b"erase" not in raw:
            continue
        draft = draft_of(raw)
        if draft is None or draft.body.op != "erase" or draft.key not in plan.lives:
            continue
        if draft.incarnation in (None, plan.lives[draft.key]):
            found[draft.key] = offset
    return found


def rows_of(store: "EmbeddedStore", plan: ErasePlan) -> tuple[dict[str, int], int]:
    """Count the rows of the sessions, and those that have to be gone."""
    seen: dict[str, int] = {HEADS: 0, FRAMES: 0, SEGMENTS: 0, INDEX: 0}
    found = 0
    for key, life in plan.lives.items():
        stored = store.warm.heads([key])[0]
        if stored is not None:
            seen[HEADS] += 1
            found += stored.head.incarnation <= life
        prefix = session_prefix(key)
        for table in (FRAMES, SEGMENTS, INDEX):
            for at, _ in store.warm.rows(table, prefix):
                seen[table] += 1
                begun = at[len(prefix) : len(prefix) + LIFE_BYTES]
                found += int.from_bytes(begun, "big") <= life
    for key in plan.rewritten:
        stored = store.warm.heads([key])[0]
        assert stored is not None, "a session that is rewritten stays"
        seen[HEADS] += 1
        for _, op in operations(store.warm, key, stored):
            seen[SEGMENTS] += 1
            found += op.body.user == plan.user
    return seen, found
