"""Erase a session or a user: from the state, then from every byte that is kept."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from turnstate.agents.session.rebuild import refold
from turnstate.schemas.clocks import Dot
from turnstate.schemas.errors import (
    InvalidInputError,
    NotFoundError,
    UnavailableError,
)
from turnstate.schemas.ids import SessionName, checked_id
from turnstate.schemas.operation import Op
from turnstate.schemas.turn import Turn
from turnstate.schemas.wire.json import turn_to_json
from turnstate.storage.encryption.destroying import destroy_keys
from turnstate.storage.repair import stage_swap
from turnstate.storage.rewrite import without_redacted
from turnstate.storage.session_reader import fold_all, operations
from turnstate.streams.documents import Document
from turnstate.streams.embedded.erase_copies import scrub_copies
from turnstate.streams.embedded.erase_plan import ErasePlan, user_plan
from turnstate.streams.embedded.erase_scan import became_of, erased_at_of, rows_of
from turnstate.streams.embedded.recordings import not_covered, scrub_recordings
from turnstate.streams.embedded.repair import forget
from turnstate.streams.embedded.scrub import (
    Gone,
    begin_purge,
    purge_files,
    scrub_letters,
    scrub_log,
)

if TYPE_CHECKING:
    from turnstate.streams.embedded.store import EmbeddedStore

_ROUNDS: Final = 8
"""How often turns that come while a user is erased are looked for again."""


def erase(
    store: "EmbeddedStore",
    tenant: str,
    session: str | None = None,
    user: str | None = None,
    dry_run: bool = False,
) -> Document:
    """Erase a session, or a user: the sessions they own and what they said elsewhere.

    An erase is an operation of the log: it ends a life of the session and
    leaves a tombstone, so that neither a late turn nor a replay brings it
    back. Then the bytes go: frames, segments, index, log records, dead
    letters, recordings in the data folder, old table files and write-ahead
    logs. Repeating it changes nothing.

    Args:
        store: The store.
        tenant: The tenant.
        session: The session; or else
        user: the user.
        dry_run: Say what would go; change nothing.

    Returns:
        `sessions` erased whole, `rewritten` ones where the user spoke,
        `turns` that went, `scanned` rows by store, `found_after` what is still
        there (0), `not_covered` what was not looked at.

    Raises:
        InvalidInputError: a name is empty, or not one of the two is given.
        NotFoundError: nothing of that session was ever here.
        CorruptDataError: a session cannot be read: repair it first.
    """
    checked_id(tenant, "tenant")
    if (session is None) == (user is None):
        raise InvalidInputError(
            "name either a session or a user", field="session", hint="one of the two"
        )
    if session is not None:
        plan = _session_plan(store, tenant, checked_id(session, "session"))
    else:
        plan = user_plan(store, tenant, checked_id(user, "user"))
    if dry_run:
        there = _scrubbed(store, plan, dry_run=True)
        return _report(plan, _with_copies(store, plan, there, dry_run=True))
    return _carried_out(store, plan)


def erase_sessions(
    store: "EmbeddedStore", tenant: str, keys: Sequence[bytes]
) -> Document:
    """Erase many sessions of one tenant at once, as `erase` does one.

    Raises:
        CorruptDataError: a session cannot be read: repair it first.
    """
    plan = ErasePlan(tenant)
    for key in keys:
        stored = store.engine.head(key)
        if stored is not None:
            plan.add_session(key, stored)
    return _carried_out(store, plan)


def _carried_out(store: "EmbeddedStore", plan: ErasePlan) -> Document:
    _end_lives(store, plan)
    for _ in range(_ROUNDS):
        _redact(store, plan)
        task = _owner_task(store, plan)
        found: _Scrub | None = store.engine.call(task).result()
        if found is not None:
            store.recent_states.clear()
            return _report(plan, _with_copies(store, plan, found))
        _look_again(store, plan)
    raise UnavailableError(
        f"{plan.user!r} keeps on talking while being erased",
        hint="stop publishing their turns, then erase again",
    )


@dataclass(slots=True)
class _Scrub:
    """What was looked at, what went, what is still there."""

    scanned: dict[str, int]
    found: int
    not_covered: list[str]
    stubs: Mapping[tuple[bytes, Dot], Op] = field(
        default_factory=dict[tuple[bytes, Dot], Op]
    )
    keys_destroyed: int = 0


def _session_plan(store: "EmbeddedStore", tenant: str, session: str) -> ErasePlan:
    key = SessionName(tenant, session).key()
    plan = ErasePlan(tenant)
    stored = store.engine.head(key)
    if stored is not None:
        plan.add_session(key, stored)
        return plan
    # Never folded; but refused turns may lie in the log and in dead letters.
    plan.lives[key] = 0
    if not _scrubbed(store, plan, dry_run=True).found:
        raise NotFoundError(
            f"there is no session {session!r} of tenant {tenant!r}", field="session"
        )
    return plan


def _look_again(store: "EmbeddedStore", plan: ErasePlan) -> None:
    """Plan what came while the first plan was carried out."""
    assert plan.user is not None
    newer = user_plan(store, plan.tenant, plan.user)
    plan.lives |= newer.lives
    plan.ending, plan.spoken = newer.ending, newer.spoken
    plan.rewritten |= newer.rewritten
    plan.sessions += newer.sessions
    plan.turns += newer.turns
    _end_lives(store, plan)


def _end_lives(store: "EmbeddedStore", plan: ErasePlan) -> None:
    """Send the erases through the log; each names the life that it ends."""
    records: list[bytes] = []
    for key in plan.ending:
        name = SessionName.from_key(key)
        records.append(
            turn_to_json(
                Turn(
                    tenant=name.tenant,
                    session=name.session,
                    role="system",
                    op="erase",
                    incarnation=plan.lives[key],
                )
            )
        )
    _send(store, records)
    plan.ending = []


def _redact(store: "EmbeddedStore", plan: ErasePlan) -> None:
    """Hide what the user said in the sessions of others."""
    records: list[bytes] = []
    for key, dots in plan.spoken.items():
        name = SessionName.from_key(key)
        records += [
            turn_to_json(
                Turn(
                    tenant=name.tenant,
                    session=name.session,
                    role="system",
                    op="redact",
                    target=dot.address(),
                )
            )
            for dot in dots
        ]
    _send(store, records)
    plan.spoken = {}


def _send(store: "EmbeddedStore", records: Sequence[bytes]) -> None:
    if not records:
        return
    for answer in store.publish(records):
        if answer.error is not None:
            raise answer.error


def _owner_task(
    store: "EmbeddedStore", plan: ErasePlan
) -> Callable[[], "_Scrub | None"]:
    """Return what the owner's thread does; it says None if more has come."""

    def task() -> _Scrub | None:
        if plan.user is not None:
            newer = user_plan(store, plan.tenant, plan.user)
            if newer.ending or any(newer.spoken.values()):
                return None
            plan.rewritten |= newer.rewritten
        stubs: dict[tuple[bytes, Dot], Op] = {}
        for key in sorted(plan.rewritten):
            stubs |= _rewrite(store, key, plan.user)
        return _scrubbed(store, plan, stubs)

    return task


def _rewrite(
    store: "EmbeddedStore", key: bytes, user: str | None
) -> dict[tuple[bytes, Dot], Op]:
    """Write a session anew, from a new chain start, with stubs; return them."""
    engine, warm = store.engine, store.warm
    stored = engine.head(key)
    assert stored is not None, "it was planned"
    fold = fold_all(warm, key, stored, store.graph)
    before = [op for _, op in operations(warm, key, stored)]
    after = without_redacted(before, stored.head.redacted, fold.ids_changed, user)
    stubs = {(key, op.dot): op for op in after if op.body.hidden is not None}
    if after != before:
        session = refold(
            SessionName.from_key(key),
            stored,
            after,
            graph=store.graph,
            log_name=warm.log_name,
            clock=store.clock,
        )
        batch = warm.batch()
        stage_swap(batch, session)
        warm.write(batch, sync=True)
        forget(engine, key)
        engine.seal([key])
    return stubs


def _scrubbed(
    store: "EmbeddedStore",
    plan: ErasePlan,
    stubs: Mapping[tuple[bytes, Dot], Op] | None = None,
    *,
    dry_run: bool = False,
) -> _Scrub:
    """Take what has to go out of log, letters, recordings and old files."""
    warm, log = store.warm, store.engine.log
    gone = Gone(plan.tenant, plan.lives, plan.user, stubs or {})
    became = became_of(store, plan, stubs or {})
    erased_at = erased_at_of(store, plan)
    keys = [*plan.lives, *plan.rewritten]
    folder = store.settings.data / "recordings"
    if not dry_run:
        begin_purge(warm)
    records, found, chunks = scrub_log(
        warm, log, gone, became, erased_at, dry_run=dry_run
    )
    letters, letters_found = scrub_letters(warm, gone, dry_run=dry_run)
    recorded, recorded_found, unread = scrub_recordings(folder, gone, dry_run=dry_run)
    scanned = {"log": records, "dead_letters": letters, "recordings": recorded}
    found += letters_found + recorded_found
    rows, rows_found = rows_of(store, plan)
    scanned |= rows
    if dry_run:
        return _Scrub(scanned, found + rows_found, not_covered(store.settings.data))
    changed = bool(found or rows_found or plan.turns)
    left = purge_files(warm, keys, chunks, changed=changed)
    _, still_log, _ = scrub_log(warm, log, gone, became, erased_at, dry_run=True)
    _, still_letters = scrub_letters(warm, gone, dry_run=True)
    _, still_rows = rows_of(store, plan)
    still = still_log + still_letters + still_rows
    return _Scrub(
        scanned,
        still,
        [*unread, *left, *not_covered(store.settings.data)],
        gone.stubs,
        destroy_keys(warm, plan.lives),
    )


def _with_copies(
    store: "EmbeddedStore", plan: ErasePlan, found: _Scrub, *, dry_run: bool = False
) -> _Scrub:
    """Look through copies, too; not in the owner's thread, which they need."""
    keys = [*plan.lives, *plan.rewritten]
    gone = Gone(plan.tenant, plan.lives, plan.user, found.stubs)
    copies = scrub_copies(store, gone, keys, dry_run=dry_run)
    return _Scrub(
        found.scanned | copies.scanned,
        found.found + copies.found,
        [*found.not_covered, *copies.not_covered],
        keys_destroyed=found.keys_destroyed,
    )


def _report(plan: ErasePlan, found: _Scrub) -> Document:
    return {
        "sessions": plan.sessions,
        "rewritten": len(plan.rewritten),
        "turns": plan.turns,
        "scanned": found.scanned,
        "found_after": found.found,
        "keys_destroyed": found.keys_destroyed,
        "not_covered": found.not_covered,
    }
