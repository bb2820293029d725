"""Destroy the keys of what is erased, so that no copy of it can be read."""

import time
from collections.abc import Mapping
from typing import Final

from turnstate.storage.warm.rows import RocksTables
from turnstate.storage.warm.tables import KEYS

_PATIENCE_S: Final = 5.0


def destroy_keys(store: RocksTables, lives: Mapping[bytes, int]) -> int:
    """Destroy the data keys of lives of sessions; return how many there were.

    What they encrypted cannot be read from then on, wherever it lies: rows, log
    records, dead letters, packs, and the files of backups. The wrapped keys are
    gone from the store's files when this returns; a backup holds a copy until
    the next `turnstate backup` to the same place takes it away. Repeating it
    destroys nothing more. Only in the owner's thread; while nothing is
    encrypted there are no keys, and it returns 0.

    Args:
        store: The store.
        lives: session key → the last of its lives that ends.
    """
    if store.row_cipher is None:
        return 0
    gone = store.row_cipher.ring.destroy(lives)
    if gone:
        purge_keys(store, min(gone), max(gone))
    return len(gone)


def purge_keys(store: RocksTables, first: bytes, last: bytes) -> None:
    """Rewrite every file in which replaced rows of the table of keys may lie."""
    store.flush()
    store.rewrite(KEYS, first, last)
    end = time.monotonic() + _PATIENCE_S
    while store.leftovers() and time.monotonic() < end:
        # RocksDB removes files in the background once nobody reads them.
        time.sleep(0.02)
