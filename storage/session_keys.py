"""Find every session that any table of a warm store has rows of."""

from collections.abc import Callable, Iterator

from turnstate.schemas.errors import CorruptDataError
from turnstate.storage.warm.rocksdb import WarmStore
from turnstate.storage.warm.tables import (
    FRAMES,
    HEADS,
    INDEX,
    SEGMENTS,
    after_prefix,
    session_prefix,
)

Told = Callable[[str, CorruptDataError], None]
"""Is told the table, and what is wrong with it."""


def every_key(store: WarmStore, prefix: bytes, told: Told) -> Iterator[bytes]:
    """Yield the session keys that start with a prefix, each once.

    From the heads and from all the other tables: a session whose head is lost
    is found by its frames, and a damaged block of one table hides nothing
    that another one knows.

    Args:
        store: The store.
        prefix: What the keys start with.
        told: Is told of blocks that cannot be read; the walk goes on.
    """
    seen: set[bytes] = set()
    for key in _heads(store, prefix, told):
        seen.add(key)
        yield key
    lost: set[bytes] = set()
    for table in (FRAMES, SEGMENTS, INDEX):
        for key in owners(store, table, told):
            if key.startswith(prefix) and key not in seen:
                lost.add(key)
    yield from sorted(lost)


def _heads(store: WarmStore, prefix: bytes, told: Told) -> Iterator[bytes]:
    try:
        yield from store.keys(prefix)
    except CorruptDataError as error:
        told(HEADS, error)


def owners(
    store: WarmStore, table: str, told: Told, after: bytes = b""
) -> Iterator[bytes]:
    """Yield the session of each run of rows of a table; one seek a session.

    Args:
        store: The store.
        table: Any but that of the heads.
        told: Is told of a block that cannot be read; the walk ends there.
        after: The session to go on after.
    """
    start = after_prefix(session_prefix(after)) if after else b""
    while True:
        try:
            found = next(store.stored_rows(table, b"", start), None)
        except CorruptDataError as error:
            told(table, error)
            return
        if found is None:
            return
        at = found[0]
        key = at[2 : 2 + int.from_bytes(at[:2], "big")]
        yield key
        start = after_prefix(session_prefix(key))
