"""Take erased records out of log, dead letters and recordings, and of every file."""

import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from turnstate.agents.dead_letters import decode_dead_letter
from turnstate.agents.session.rebuild import session_key_of
from turnstate.agents.session.recorded import (
    FIRST_BYTE,
    arrival_of_recorded,
    recorded_bytes,
)
from turnstate.schemas.clocks import Dot
from turnstate.schemas.draft import Draft
from turnstate.schemas.errors import CorruptDataError, TurnstateError
from turnstate.schemas.ids import SessionName, tenant_prefix
from turnstate.schemas.operation import Op
from turnstate.schemas.position import Position
from turnstate.schemas.wire.turn_bytes import draft_from_bytes
from turnstate.storage.warm.rocksdb import WarmStore
from turnstate.storage.warm.tables import (
    DEAD,
    FRAMES,
    HEADS,
    INDEX,
    LOG,
    META,
    SEGMENTS,
    STATE_TABLES,
    session_prefix,
)
from turnstate.streams.embedded.log import EmbeddedLog

BLANK: Final = b""
"""What stands in the log where a record was: its offset stays, nothing folds."""

_PURGE_KEY: Final = b"purge"
_PURGE_SOME: Final = b"some"
_PURGE_ALL: Final = b"all"

_CHUNKS_A_BATCH: Final = 16
_PATIENCE_S: Final = 5.0
_NOWHERE: Final = Position(b"", 0, 0)


class Gone(NamedTuple):
    """What has to be nowhere.

    Attributes:
        tenant: The tenant.
        lives: session key → the last life of it that is erased.
        user: Everything that this user said, too; None = nobody.
        stubs: (session key, dot) → the stub in the place of the operation.
    """

    tenant: str
    lives: Mapping[bytes, int]
    user: str | None = None
    stubs: Mapping[tuple[bytes, Dot], Op] = {}

    def is_about(self, raw: bytes) -> bool:
        """Say whether a record, as it came, has to go."""
        if not self._may_be_about(raw):
            return False
        draft = draft_of(raw)
        if draft is None:
            return self._seems_about(raw)
        if draft.name.tenant != self.tenant:
            return False
        if self.user is not None and draft.body.user == self.user:
            return True
        last = self.lives.get(draft.key)
        if last is None or draft.body.op == "erase":
            return False
        return draft.stamp is None or draft.stamp.incarnation <= last

    def _may_be_about(self, raw: bytes) -> bool:
        """Look at the names alone; most records end here."""
        key = session_key_of(raw)
        if key is None or key in self.lives:
            return True
        if self.user is None or not key.startswith(tenant_prefix(self.tenant)):
            return False
        # Only an escape could spell the name in another way.
        return b"\\" in raw or self.user.encode() in raw

    def _seems_about(self, raw: bytes) -> bool:
        """Judge bytes that are no turn by the names that they hold."""
        if not _holds(raw, self.tenant):
            return False
        if self.user is not None and _holds(raw, self.user):
            return True
        return any(_holds(raw, SessionName.from_key(key).session) for key in self.lives)


def draft_of(raw: bytes) -> Draft | None:
    """Return what a record of the log says, None where it is no turn."""
    try:
        if raw[:1] == FIRST_BYTE:
            return arrival_of_recorded(raw, _NOWHERE).draft
        return draft_from_bytes(raw)
    except TurnstateError:
        return None


def _holds(raw: bytes, text: str) -> bool:
    spelled = text.encode()
    escaped = msgspec.json.encode(text)[1:-1]
    ascii_only = text.encode("ascii", "backslashreplace")
    return spelled in raw or escaped in raw or ascii_only in raw


def scrub_log(
    store: WarmStore,
    log: EmbeddedLog,
    gone: Gone,
    became: Mapping[int, tuple[bytes, Op]],
    erased_at: Mapping[bytes, int],
    *,
    dry_run: bool = False,
) -> tuple[int, int, tuple[int, int] | None]:
    """Blank what has to go; where a session goes on, leave its stub.

    Args:
        store: The store.
        log: Its log.
        gone: What has to go.
        became: offset → (session key, operation) that the record became, for
            the sessions that go on.
        erased_at: session key → offset of its erase; what is unstamped above
            it is of the next life and stays.
        dry_run: Only count.

    Returns:
        Records looked at, records replaced, first offsets of the first and the
        last chunk rewritten.
    """
    seen = replaced = staged = 0
    touched: list[int] = []
    batch = store.batch()
    for first, records in log.chunks():
        changed = False
        for place, raw in enumerate(records):
            if not raw:
                continue
            seen += 1
            put = _in_its_place(raw, first + place, gone, became, erased_at)
            if put is None:
                continue
            records[place] = put
            changed = True
            replaced += 1
        if changed and not dry_run:
            log.stage_rewrite(batch, first, records)
            touched.append(first)
            staged += 1
            if staged % _CHUNKS_A_BATCH == 0:
                store.write(batch, sync=False)
                batch = store.batch()
    if touched:
        store.write(batch, sync=True)
    return seen, replaced, (touched[0], touched[-1]) if touched else None


def _in_its_place(
    raw: bytes,
    offset: int,
    gone: Gone,
    became: Mapping[int, tuple[bytes, Op]],
    erased_at: Mapping[bytes, int],
) -> bytes | None:
    """Return what to write instead of a record, None = it stays."""
    found = became.get(offset)
    if found is not None:
        stub = gone.stubs.get((found[0], found[1].dot))
        if stub is None:
            return None
        written = recorded_bytes(SessionName.from_key(found[0]), stub.record)
        return None if written == raw else written
    if not gone.is_about(raw):
        return None
    if gone.lives:
        draft = draft_of(raw)
        if draft is not None and draft.stamp is None:
            end = erased_at.get(draft.key)
            is_users = gone.user is not None and draft.body.user == gone.user
            if end is not None and offset > end and not is_users:
                return None
    return BLANK


def scrub_letters(
    store: WarmStore, gone: Gone, *, dry_run: bool = False
) -> tuple[int, int]:
    """Remove dead letters that have to go: (looked at, removed)."""
    seen = removed = 0
    batch = store.batch()
    for at, row in store.rows(DEAD):
        seen += 1
        try:
            raw = decode_dead_letter(row).raw
        except CorruptDataError:
            raw = row
        if gone.is_about(raw):
            batch.delete(DEAD, at)
            removed += 1
    if removed and not dry_run:
        store.write(batch, sync=True)
    return seen, removed


def begin_purge(store: WarmStore) -> None:
    """Remember that files have to be rewritten, should a crash come before."""
    row = store.meta(_PURGE_KEY)
    batch = store.batch()
    batch.put(META, _PURGE_KEY, _PURGE_ALL if row else _PURGE_SOME)
    store.write(batch, sync=True)


def purge_files(
    store: WarmStore,
    keys: Iterable[bytes],
    chunks: tuple[int, int] | None,
    *,
    changed: bool,
) -> list[str]:
    """Rewrite every file that held what was deleted; return what is left over.

    Deleted rows live on in memtables, write-ahead logs and older table files
    (after delete and flush alone the text was still there). The flush ends
    every write-ahead log that holds them, the compaction leaves the rows out.

    Args:
        store: The store.
        keys: The sessions that were touched.
        chunks: The first and last log chunk that was rewritten.
        changed: Whether anything was deleted at all. What an erase that
            crashed had left is purged in any case.
    """
    ranges: list[tuple[str, bytes, bytes]] = []
    ordered = sorted(keys)
    if store.meta(_PURGE_KEY) == _PURGE_ALL:
        changed = True
        ranges = [(table, b"", b"\xfe" * 600) for table in (*STATE_TABLES, LOG, DEAD)]
    elif changed:
        prefixes = sorted(map(session_prefix, ordered))
        ranges = [(HEADS, ordered[0], ordered[-1])] if ordered else []
        ranges += [
            (table, prefixes[0], prefixes[-1])
            for table in (FRAMES, SEGMENTS, INDEX)
            if prefixes
        ]
        if chunks is not None:
            first, last = (offset.to_bytes(8, "big") for offset in chunks)
            ranges.append((LOG, first, last))
        ranges.append((DEAD, bytes(8), b"\xfe" * 8))
    batch = store.batch()
    batch.delete(META, _PURGE_KEY)
    if not changed:
        store.write(batch, sync=True)
        return []
    store.flush()
    for table, first, last in ranges:
        store.rewrite(table, first, last)
    end = time.monotonic() + _PATIENCE_S
    while store.leftovers() and time.monotonic() < end:
        # RocksDB removes files in the background once nobody reads them.
        time.sleep(0.05)
    left = store.leftovers()
    if not left:
        store.write(batch, sync=True)
    return left


def replace_file(path: Path, write: Callable[[Path], None]) -> None:
    """Write a file anew beside itself, then put it in its place, durably."""
    beside = path.with_name(path.name + ".erasing")
    try:
        write(beside)
        with beside.open("rb") as file:
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
