"""Keep an embedded store: totals, verification, sealing, what was refused."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from turnstate.schemas.errors import CorruptDataError, InvalidInputError
from turnstate.schemas.ids import checked_id
from turnstate.storage.warm.tables import DEAD, FRAMES, HEADS, INDEX, LOG, STATE_TABLES
from turnstate.streams.documents import Document
from turnstate.streams.embedded.erase import erase
from turnstate.streams.embedded.letters import (
    dead_letter,
    dead_letters,
    discard,
    redrive,
)
from turnstate.streams.embedded.repair import repair
from turnstate.streams.embedded.verification import Checked, Progress, fault_document

if TYPE_CHECKING:
    from turnstate.streams.embedded.store import EmbeddedStore

SEAL_SLICE: Final = 64
"""Sessions sealed in one go; publishing goes on between two of them."""

_SEALED_PART: Final = 8
"""Where an eighth of all sessions was sealed, what they left is compacted away
at once: 35 ms for 24 000 turns, and the state is half as large."""


def stats(store: "EmbeddedStore") -> Document:
    """Return the totals of a store, after a flush so that files tell them.

    `text_bytes` is the UTF-8 of content and of tool arguments; `state_bytes`
    the table files of heads, frames, segments and index, and the packs of
    cold sessions; `log_bytes` the table files of
    the log; `disk_bytes` what `du` says of the data folder.
    """
    engine, warm = store.engine, store.warm
    warm.flush()
    turns = text = 0
    sessions = dict.fromkeys(("hot", "warm", "cold"), 0)
    for _, row in store.rows():
        if row.is_tombstone:
            continue
        sessions[row.tier] += 1
        turns += row.turn_count
        text += row.text_bytes
    warm_bytes = warm.table_bytes(STATE_TABLES)
    cold_bytes = store.tiering.cold_bytes()
    return {
        "sessions": sum(sessions.values()),
        "turns": turns,
        "text_bytes": text,
        "log_bytes": warm.table_bytes([LOG]),
        "state_bytes": warm_bytes + cold_bytes,
        "disk_bytes": disk_bytes(store.settings.data),
        "tiers": {
            "hot": {"sessions": sessions["hot"], "bytes": engine.hot.bytes_held},
            "warm": {"sessions": sessions["warm"], "bytes": warm_bytes},
            "cold": {"sessions": sessions["cold"], "bytes": cold_bytes},
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
        for key, row in store.rows(_checked_tenant(tenant))
        if not row.is_sealed
    ]
    count = 0
    for part in _slices(keys, SEAL_SLICE):
        count += engine.call(partial(engine.seal, part)).result()
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
    checked = Checked(store, _checked_tenant(tenant))
    for done in checked.run():
        if progress is not None:
            progress(done)
    return {
        "sessions": checked.sessions,
        "frames": checked.frames,
        "versions": checked.versions,
        "erased_sessions": checked.erased,
        "erased_records": checked.erased_records,
        "bad": [fault_document(fault) for fault in checked.faults],
    }


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
