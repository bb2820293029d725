"""Keep an embedded store: totals, verification, sealing, what was refused."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from turnstate.schemas.errors import (
    CorruptDataError,
    InvalidInputError,
    TurnstateError,
)
from turnstate.schemas.ids import SessionName, checked_id, tenant_prefix
from turnstate.storage.session_keys import every_key
from turnstate.storage.stored_head import StoredHead, encode_stored_head
from turnstate.storage.verify import Fault, Verified, verify_session
from turnstate.storage.warm.tables import DEAD, FRAMES, HEADS, INDEX, LOG, STATE_TABLES
from turnstate.streams.documents import Document
from turnstate.streams.embedded.erase import erase
from turnstate.streams.embedded.repair import behind, repair
from turnstate.streams.embedded.letters import (
    dead_letter,
    dead_letters,
    discard,
    redrive,
)

if TYPE_CHECKING:
    from turnstate.streams.embedded.store import EmbeddedStore

SEAL_SLICE: Final = 64
"""Sessions sealed in one go; publishing goes on between two of them."""

_SEALED_PART: Final = 8
"""Where an eighth of all sessions was sealed, what they left is compacted away
at once: 35 ms for 24 000 turns, and the state is half as large."""

_READ_TRIES: Final = 4

Progress = Callable[[int], None]
"""Is told how many sessions are done."""


def stats(store: "EmbeddedStore") -> Document:
    """Return the totals of a store, after a flush so that files tell them.

    `text_bytes` is the UTF-8 of content and of tool arguments; `state_bytes`
    the table files of heads, frames, segments and index; `log_bytes` those of
    the log; `disk_bytes` what `du` says of the data folder.
    """
    engine, warm = store.engine, store.warm
    warm.flush()
    sessions = turns = text = hot = 0
    for key, stored in store.stored_heads():
        if stored.is_tombstone:
            continue
        sessions += 1
        turns += stored.head.turn_count
        text += stored.text_bytes
        hot += engine.hot.peek(key) is not None
    state_bytes = warm.table_bytes(STATE_TABLES)
    return {
        "sessions": sessions,
        "turns": turns,
        "text_bytes": text,
        "log_bytes": warm.table_bytes([LOG]),
        "state_bytes": state_bytes,
        "disk_bytes": disk_bytes(store.settings.data),
        "tiers": {
            "hot": {"sessions": hot, "bytes": engine.hot.bytes_held},
            "warm": {"sessions": sessions - hot, "bytes": state_bytes},
            "cold": {"sessions": 0, "bytes": 0},
        },
        "dead_letters": sum(1 for _ in warm.rows(DEAD)),
        "commits": engine.commits,
        "syncs": warm.syncs,
    }


def disk_bytes(folder: Path) -> int:
    """Return what `du` says: the blocks of a folder and of all that is in it."""
    total = 0
    for path in (folder, *folder.rglob("*")):
        try:
            total += path.lstat().st_blocks * 512
        except FileNotFoundError:
            # RocksDB removes files while they are counted.
            continue
    return total


def seal(store: "EmbeddedStore", tenant: str | None = None) -> Document:
    """Seal every session that has frames; publishing goes on meanwhile."""
    engine = store.engine
    keys = [
        key
        for key, stored in store.stored_heads(_checked_tenant(tenant))
        if stored.head.version != stored.sealed_version
    ]
    count = 0
    for part in _slices(keys, SEAL_SLICE):
        count += engine.call(lambda part=part: engine.seal(part)).result()
    store.warm.flush()
    if count * _SEALED_PART > store.warm.rows_about(HEADS):
        for table in (FRAMES, HEADS, INDEX):
            store.warm.compact(table)
    return {"sealed": count, "sessions": len(keys)}


def trim_log(store: "EmbeddedStore", below: int) -> Document:
    """Let go of log records below an offset; state does not need them any more.

    What is trimmed can be rebuilt from a backup only. So everything is
    verified first, and nothing is trimmed while something is wrong.

    Args:
        store: The store.
        below: The first offset that is kept for certain; chunks go whole.

    Raises:
        InvalidInputError: the log does not reach so far.
        CorruptDataError: a verification found damage: repair it first.
    """
    engine, warm = store.engine, store.warm
    if not 0 <= below <= engine.log.end:
        raise InvalidInputError(
            f"offset {below} is not in the log, which ends at {engine.log.end}",
            field="below",
        )
    checked = Checked(store, None)
    for _ in checked.run():
        pass
    if checked.faults:
        raise CorruptDataError(
            f"{len(checked.faults)} things are wrong: {checked.faults[0].why}",
            hint="the log is what they are rebuilt from: turnstate verify --repair",
        )

    def trim() -> None:
        batch = warm.batch()
        engine.log.stage_trim(batch, below)
        warm.write(batch, sync=True)
        warm.flush()
        warm.compact(LOG)

    engine.call(trim).result()
    begin = next((offset for offset, _ in engine.log.read()), engine.log.end)
    return {"begin": begin, "end": engine.log.end}


def verify(
    store: "EmbeddedStore",
    tenant: str | None = None,
    progress: Progress | None = None,
) -> Document:
    """Check everything that is stored against everything else.

    Goes on past damage, wherever it is, and while turns are published.

    Args:
        store: The store.
        tenant: Only this tenant's sessions; then log and dead letters, which
            are everybody's, are left out.
        progress: Is told how many sessions are done.
    """
    checked = Checked(store, tenant)
    for done in checked.run():
        if progress is not None:
            progress(done)
    return {
        "sessions": checked.sessions,
        "frames": checked.frames,
        "versions": checked.versions,
        "bad": [fault_document(fault) for fault in checked.faults],
    }


class Checked:
    """One verification of a store, and what came of it.

    Attributes:
        sessions: Sessions that were looked at.
        frames: Frames and segments that were read.
        versions: Operations that were folded again.
        faults: What is wrong.
        late: Sessions that are whole but fell behind the log: key → offset.
    """

    def __init__(self, store: "EmbeddedStore", tenant: str | None) -> None:
        self.store = store
        self.tenant = _checked_tenant(tenant)
        self.sessions = self.frames = self.versions = 0
        self.faults: list[Fault] = []
        self.late: dict[bytes, int] = {}

    def run(self) -> Iterator[int]:
        """Verify; yield the number of sessions that are done."""
        prefix = b"" if self.tenant is None else tenant_prefix(self.tenant)
        for key in every_key(self.store.warm, prefix, self._unreadable):
            found = self._session(key)
            self.sessions += 1
            self.frames += found.frames
            self.versions += found.versions
            self.faults += found.faults
            yield self.sessions
        self._behind()
        if self.tenant is None:
            self._others()

    def _unreadable(self, table: str, error: TurnstateError) -> None:
        self.faults.append(Fault(None, table, None, str(error)))

    def _session(self, key: bytes) -> Verified:
        """Verify one session; where a commit came between, again."""
        for _ in range(_READ_TRIES):
            found, stored = self._as_it_stands(key)
            if not found.faults:
                return found
            if self._head(key) == stored:
                break
        # What is still wrong while nobody writes is wrong.
        return self.store.engine.call(lambda: self._as_it_stands(key)[0]).result()

    def _head(self, key: bytes) -> StoredHead | None:
        try:
            return self.store.warm.heads([key])[0]
        except TurnstateError:
            return None

    def _as_it_stands(self, key: bytes) -> tuple[Verified, StoredHead | None]:
        warm, hot = self.store.warm, self.store.engine.hot
        try:
            stored = warm.heads([key])[0]
        except TurnstateError as error:
            return Verified(0, 0, [Fault(key, "warm", None, str(error))]), None
        if stored is None:
            why = "there are rows of the session and no head"
            return Verified(0, 0, [Fault(key, "warm", None, why)]), None
        found = verify_session(warm, key, stored, self.store.graph)
        held = hot.peek(key)
        if held is not None and held is not stored and not _agree(held, stored):
            why = "the hot tier holds another state than the warm one"
            found.faults.append(Fault(key, "hot", held.head.version, why))
        return found, stored

    def _behind(self) -> None:
        """Look for sessions to which the log would still add something."""
        store, engine = self.store, self.store.engine
        prefix = b"" if self.tenant is None else tenant_prefix(self.tenant)
        damaged = [fault.key for fault in self.faults if fault.key is not None]

        def lacking(keys: Sequence[bytes] | None) -> dict[bytes, int]:
            return behind(
                store.warm,
                engine.log,
                store.graph,
                store.clock,
                wanted=keys,
                skipped=damaged,
            )

        try:
            found = lacking(None)
            if found:
                # A turn that came meanwhile is no loss: look while nobody writes.
                found = engine.call(lambda: lacking(list(found))).result()
        except TurnstateError as error:
            self.faults.append(
                Fault(None, LOG, None, f"it cannot be folded again: {error}")
            )
            return
        for key, offset in sorted(found.items()):
            if key.startswith(prefix):
                self.late[key] = offset
                why = f"the log goes on for it at offset {offset}: it fell behind"
                self.faults.append(Fault(key, "warm", None, why))

    def _others(self) -> None:
        """Check the tables that are no session's: log and dead letters."""
        for why in self.store.engine.log.faults():
            self.faults.append(Fault(None, LOG, None, why))
        try:
            for at, _ in self.store.warm.rows(DEAD):
                self._letter(at)
        except TurnstateError as error:
            self._unreadable(DEAD, error)

    def _letter(self, at: bytes) -> None:
        number = str(int.from_bytes(at, "big"))
        try:
            dead_letter(self.store, number)
        except TurnstateError as error:
            why = f"dead letter {number}: {error}"
            self.faults.append(Fault(None, DEAD, None, why))


def fault_document(fault: Fault) -> Document:
    """Return a row of `bad`; one that is no session's has no names."""
    name: SessionName | None = None
    if fault.key is not None:
        try:
            name = SessionName.from_key(fault.key)
        except InvalidInputError:
            name = None
    return {
        "tenant": name and name.tenant,
        "session": name and name.session,
        "tier": fault.tier,
        "version": fault.version,
        "why": fault.why,
    }


def _agree(held: StoredHead, stored: StoredHead) -> bool:
    return encode_stored_head(held) == encode_stored_head(stored)


def _checked_tenant(tenant: str | None) -> str | None:
    return None if tenant is None else checked_id(tenant, "tenant")


def _slices(keys: Sequence[bytes], size: int) -> Iterator[Sequence[bytes]]:
    for begin in range(0, len(keys), size):
        yield keys[begin : begin + size]


__all__ = [
    "Checked",
    "dead_letter",
    "dead_letters",
    "discard",
    "disk_bytes",
    "erase",
    "redrive",
    "repair",
    "seal",
    "stats",
    "trim_log",
    "verify",
]
