"""Rewrite the files of a store that held erased rows, while it is in use."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from turnstate.storage.warm.rows import RocksTables
from turnstate.storage.warm.tables import (
    FRAMES,
    HEADS,
    INDEX,
    META,
    SEGMENTS,
    session_prefix,
)

RANGES_MAX: Final = 32
"""More sessions are rewritten as one range: each takes the files that it meets."""

_PATIENCE_S: Final = 10.0
_PAUSE_S: Final = 0.05

Range = tuple[str, bytes, bytes]
"""A table, and the first and last key in it."""


def ranges_of(keys: Iterable[bytes]) -> list[Range]:
    r"""Return where the rows of some sessions lie.

    Example:
        >>> [table for table, first, last in ranges_of([b"a"])]
        ['heads', 'frames', 'segments', 'index']
        >>> ranges_of([])
        []
    """
    ordered = sorted(keys)
    if not ordered:
        return []
    if len(ordered) > RANGES_MAX:
        prefixes = sorted(map(session_prefix, ordered))
        spans = [(prefixes[0], prefixes[-1])]
        heads = [(ordered[0], ordered[-1])]
    else:
        spans = [(session_prefix(key), session_prefix(key)) for key in ordered]
        heads = [(key, key) for key in ordered]
    return [
        *((HEADS, *span) for span in heads),
        *((table, *span) for table in (FRAMES, SEGMENTS, INDEX) for span in spans),
    ]


def purge(
    store: RocksTables,
    keys: Sequence[bytes],
    mark: tuple[bytes, bytes],
    *,
    goes_on: Callable[[], bool] = lambda: True,
    patience_s: float = _PATIENCE_S,
) -> list[str]:
    """Rewrite every file that held what was deleted or replaced of some sessions.

    Deleted rows live on in memtables, write-ahead logs and older table files.
    The flush ends every write-ahead log that there is; the compaction leaves
    the rows out. What others write meanwhile goes to logs that begin later.

    Args:
        store: The store; what has to go is deleted in it.
        keys: The sessions.
        mark: Key and row in `META` of something of this store alone that is
            written first: where nothing is, no log would end.
        goes_on: Asked between steps; where it says no, the rest stays.
        patience_s: How long to wait until files are away that readers hold.

    Returns:
        Files that are still there; none where all is done.
    """
    batch = store.batch()
    batch.put_local(META, *mark)
    store.write(batch, sync=False)
    logs = {path.name for path in store.path.glob("*.log")}
    store.flush()
    for table, first, last in ranges_of(keys):
        if not goes_on():
            return ["the store is being closed"]
        store.rewrite(table, first, last)
    return _left_of(store, logs | set(store.leftovers()), logs, goes_on, patience_s)


def _left_of(
    store: RocksTables,
    names: set[str],
    logs: set[str],
    goes_on: Callable[[], bool],
    patience_s: float,
) -> list[str]:
    """Wait until files are away; RocksDB removes them once nobody reads them.

    A table file that was being written when it was seen may be a live one by now.
    """
    end = time.monotonic() + patience_s
    names = {name for name in names if name in logs or name.endswith(".sst")}
    while True:
        there = set(store.leftovers()) | {
            name for name in logs if (store.path / name).exists()
        }
        left = sorted(names & there)
        if not left or time.monotonic() > end or not goes_on():
            return left
        time.sleep(_PAUSE_S)
