"""Repair an embedded store from its own log."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from turnstate.agents.ports import Clock, Record
from turnstate.agents.session.rebuild import (
    catch_up,
    rebuild,
    refolder,
    session_key_of,
)
from turnstate.schemas.dialogue.phases import DialogueGraph
from turnstate.schemas.errors import CorruptDataError, TurnstateError
from turnstate.schemas.ids import SessionName
from turnstate.schemas.position import Position
from turnstate.storage.repair import FROM_BACKUP, contiguous, stage_swap
from turnstate.storage.stored_head import StoredHead
from turnstate.storage.tier import SessionChange
from turnstate.storage.warm.rocksdb import WarmStore
from turnstate.streams.documents import Document
from turnstate.streams.embedded.log import EmbeddedLog

if TYPE_CHECKING:
    from turnstate.streams.embedded.engine import Engine
    from turnstate.streams.embedded.store import EmbeddedStore

SESSIONS_A_PASS: Final = 256
"""Sessions rebuilt in one pass over the log: bounds what is held in memory."""


def records_after(
    log: EmbeddedLog, positions: Mapping[bytes, Position | None], end: int
) -> Iterator[tuple[bytes, Record]]:
    """Yield the records of some sessions that lie above their positions.

    Args:
        log: The log.
        positions: session key → the position that it has; None = none.
        end: Where to stop (exclusive).

    Raises:
        CorruptDataError: the log is damaged or does not reach back so far.
    """
    begin = min(
        (
            position.offset + 1
            if position is not None and position.log == log.identity
            else 0
            for position in positions.values()
        ),
        default=end,
    )
    for offset, raw in contiguous(log.read(begin), begin, end):
        key = session_key_of(raw)
        if key is None or key not in positions:
            continue
        position = Position(log.identity, log.partition, offset)
        if not position.is_redelivery_after(positions[key]):
            yield key, Record(raw, position)


def behind(
    store: WarmStore,
    log: EmbeddedLog,
    graph: DialogueGraph,
    clock: Clock,
    *,
    begin: int = 0,
    wanted: Iterable[bytes] | None = None,
    skipped: Iterable[bytes] = (),
) -> dict[bytes, int]:
    """Return the sessions to which the log would still add: key → offset.

    Folds, without writing, every record above its session's position. What
    was refused or a duplicate once is so again; anything else was lost.

    Args:
        store: The store.
        log: Its log.
        graph: The dialogue graph.
        clock: Not used for what is decided.
        begin: The offset to begin at.
        wanted: Only these sessions; None = all.
        skipped: Not these, which are known to be damaged.
    """
    agent = refolder(store, graph, store.log_name, clock)
    only = None if wanted is None else set(wanted)
    leave = set(skipped)
    found: dict[bytes, int] = {}

    def above() -> Iterator[Record]:
        positions: dict[bytes, Position | None] = {}
        for offset, raw in log.read(begin):
            if offset >= end:
                return
            key = session_key_of(raw)
            if key is None or key in leave or key in found:
                continue
            if only is not None and key not in only:
                continue
            if key not in positions:
                stored = store.heads([key])[0]
                positions[key] = stored.position if stored else None
            position = Position(log.identity, log.partition, offset)
            if not position.is_redelivery_after(positions[key]):
                yield Record(raw, position)

    end = log.end
    for folded in catch_up(agent, above()):
        for change in folded.changes:
            assert change.after.position is not None
            found.setdefault(change.key, change.after.position.offset)
    return found


def behind_at_open(
    store: WarmStore, log: EmbeddedLog, graph: DialogueGraph, clock: Clock
) -> dict[bytes, int]:
    """Return the sessions that lack something of the log's last chunk.

    Log and state are written in one batch, so there are none unless rows were
    lost; the last chunk is where a lost batch shows. Costs one chunk.

    Raises:
        CorruptDataError: the log does not end where the store says it does.
    """
    begin = log.check_end()
    return behind(store, log, graph, clock, begin=begin) if begin < log.end else {}


def bring_up_to_date(engine: "Engine", keys: Iterable[bytes]) -> int:
    """Fold what some sessions lack of the log; only in the owner's thread.

    From each session's recorded position on, in order, each group checked
    against the head it starts from; repeating it changes nothing.

    Returns:
        How many operations were added.

    Raises:
        CorruptDataError: the log does not reach back so far.
    """
    store, log = engine.store, engine.log
    keys = list(keys)
    heads = dict(zip(keys, store.heads(keys), strict=True))
    positions = {key: head.position if head else None for key, head in heads.items()}
    agent = refolder(store, engine.graph, store.log_name, engine.clock)
    records = (record for _, record in records_after(log, positions, log.end))
    added = 0
    for folded in catch_up(agent, records):
        if folded.changes:
            store.commit(folded.changes)
            added += sum(map(len, folded.ops))
            _forget(engine, folded.changes)
    return added


def _forget(engine: "Engine", changes: Sequence[SessionChange]) -> None:
    for change in changes:
        engine.hot.drop(change.key)


def repair(store: "EmbeddedStore", tenant: str | None = None) -> Document:
    """Verify, and rebuild from the log whatever is wrong.

    Returns:
        `sessions` looked at, `repaired` and `failed` with the reason for each;
        `bad` is what a verification says afterwards.
    """
    # Both are parts of one command; a session's check is verify's.
    from turnstate.streams.embedded.upkeep import Checked, fault_document

    first = Checked(store, tenant)
    for _ in first.run():
        pass
    wrong = [f.key for f in first.faults if f.key is not None]
    wrong = [key for key in dict.fromkeys(wrong) if key not in first.late]
    repaired: list[Document] = []
    failed: list[Document] = []
    if first.late:
        late = list(first.late)
        done = store.engine.call(lambda: _caught_up(store.engine, late))
        _enter(done.result(), repaired, failed)
    for begin in range(0, len(wrong), SESSIONS_A_PASS):
        part = wrong[begin : begin + SESSIONS_A_PASS]
        done = store.engine.call(lambda part=part: _rebuilt(store.engine, part))
        _enter(done.result(), repaired, failed)
    after = Checked(store, tenant)
    if first.faults:
        for _ in after.run():
            pass
    return {
        "sessions": first.sessions,
        "repaired": repaired,
        "failed": failed,
        "bad": [fault_document(fault) for fault in after.faults],
    }


Outcomes = Mapping[bytes, int | TurnstateError]
"""session key → its version now, or why it could not be repaired."""


def _enter(
    outcomes: Outcomes, repaired: list[Document], failed: list[Document]
) -> None:
    for key, outcome in outcomes.items():
        name = SessionName.from_key(key)
        row: Document = {"tenant": name.tenant, "session": name.session}
        if isinstance(outcome, int):
            repaired.append(row | {"version": outcome})
        else:
            failed.append(row | {"why": str(outcome)})


def _caught_up(engine: "Engine", keys: Sequence[bytes]) -> Outcomes:
    try:
        bring_up_to_date(engine, keys)
    except TurnstateError as error:
        return dict.fromkeys(keys, error)
    heads = engine.store.heads(keys)
    return {
        key: stored.head.version if stored else 0
        for key, stored in zip(keys, heads, strict=True)
    }


def _rebuilt(engine: "Engine", keys: Sequence[bytes]) -> Outcomes:
    """Rebuild sessions from the log, one pass for all of them."""
    log, store = engine.log, engine.store
    everything = dict.fromkeys(keys)
    records: dict[bytes, list[Record]] = {key: [] for key in keys}
    try:
        for key, record in records_after(log, everything, log.end):
            records[key].append(record)
    except CorruptDataError as error:
        return dict.fromkeys(keys, error)
    outcomes: dict[bytes, int | TurnstateError] = {}
    for key in keys:
        try:
            outcomes[key] = _swapped(engine, key, records[key])
        except TurnstateError as error:
            outcomes[key] = error
    store.flush()
    return outcomes


def _swapped(engine: "Engine", key: bytes, records: Sequence[Record]) -> int:
    store = engine.store
    expected = _readable_head(store, key)
    if expected is not None and expected.position is not None:
        lies_in = expected.position
        if lies_in.log != engine.log.identity or lies_in.offset >= engine.log.end:
            raise CorruptDataError(
                "the session was folded beyond the end of this log", hint=FROM_BACKUP
            )
    session = rebuild(
        key,
        records,
        graph=engine.graph,
        log_name=store.log_name,
        clock=engine.clock,
        expected=expected,
    )
    batch = store.batch()
    stage_swap(batch, session)
    store.write(batch, sync=True)
    engine.hot.drop(key)
    engine.seal([key])
    return session.stored.head.version if session.stored else 0


def _readable_head(store: WarmStore, key: bytes) -> StoredHead | None:
    try:
        return store.heads([key])[0]
    except TurnstateError:
        return None
