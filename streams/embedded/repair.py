"""Repair an embedded store from its own log."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from turnstate.agents.ports import Record
from turnstate.agents.session.rebuild import catch_up, rebuild, refolder
from turnstate.schemas.dialogue.head import digest
from turnstate.schemas.errors import CorruptDataError, TurnstateError
from turnstate.schemas.ids import SessionName, checked_id
from turnstate.storage.repair import FROM_BACKUP, OneSession, stage_swap
from turnstate.storage.stored_head import StoredHead
from turnstate.storage.warm.cold_rows import ColdHead
from turnstate.storage.warm.rocksdb import WarmStore
from turnstate.streams.documents import Document
from turnstate.streams.embedded.fell_behind import records_after
from turnstate.streams.embedded.verification import Checked, fault_document

if TYPE_CHECKING:
    from turnstate.streams.embedded.engine import Engine
    from turnstate.streams.embedded.store import EmbeddedStore

SESSIONS_A_PASS: Final = 256
"""Sessions rebuilt in one pass over the log: bounds what is held in memory."""


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
    agent = refolder(store, engine.graph, log.names, engine.clock, store)
    records = (record for _, record in records_after(log, positions, log.end))
    added = 0
    for folded in catch_up(agent, records):
        if folded.changes:
            store.commit(folded.changes)
            added += sum(map(len, folded.ops))
            for change in folded.changes:
                forget(engine, change.key)
    return added


def forget(engine: "Engine", key: bytes) -> None:
    """Drop what is remembered of a session whose rows were exchanged."""
    engine.hot.drop(key)
    engine.agent.tails.forget(key)


def repair(store: "EmbeddedStore", tenant: str | None = None) -> Document:
    """Verify, and rebuild from the log whatever is wrong.

    Returns:
        `sessions` looked at, `repaired` and `failed` with the reason for each;
        `bad` is what a verification says afterwards.
    """
    if tenant is not None:
        checked_id(tenant, "tenant")
    first = Checked(store, tenant)
    for _ in first.run():
        pass
    wrong = [f.key for f in first.faults if f.key is not None]
    wrong = [key for key in dict.fromkeys(wrong) if key not in first.late]
    repaired: list[Document] = []
    failed: list[Document] = []
    if first.late:
        late = list(first.late)
        done = store.engine.call(partial(_caught_up, store.engine, late))
        _enter(done.result(), repaired, failed)
    for begin in range(0, len(wrong), SESSIONS_A_PASS):
        part = wrong[begin : begin + SESSIONS_A_PASS]
        done = store.engine.call(partial(_rebuilt, store.engine, part))
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
        log_name=engine.log.names,
        clock=engine.clock,
        expected=expected,
    )
    _check_cold(store, session)
    batch = store.batch()
    stage_swap(batch, session)
    store.write(batch, sync=True)
    forget(engine, key)
    engine.seal([key])
    return session.stored.head.version if session.stored else 0


def _check_cold(store: WarmStore, rebuilt: OneSession) -> None:
    """Check a rebuilt session against the pointer that it takes the place of.

    Raises:
        CorruptDataError: the log gives another state than the pointer tells.
    """
    try:
        (cold,) = store.located([rebuilt.key])
    except CorruptDataError:
        return
    if not isinstance(cold, ColdHead):
        return
    stored = rebuilt.stored
    version = stored.head.version if stored else 0
    if (
        stored is None
        or version < cold.version
        or (version == cold.version and digest(stored.head) != cold.digest)
    ):
        raise CorruptDataError(
            f"the log gives another state than the cold session's pointer, of"
            f" version {cold.version}, says",
            hint=FROM_BACKUP,
        )


def _readable_head(store: WarmStore, key: bytes) -> StoredHead | None:
    try:
        return store.heads([key])[0]
    except TurnstateError:
        return None
