"""Find in a partition what an erase is about: sessions, and rows that have to go."""

from collections.abc import Iterator
from typing import Final

from turnstate.schemas.errors import CorruptDataError, UnavailableError
from turnstate.schemas.ids import tenant_prefix
from turnstate.storage.rewrite import said_by
from turnstate.storage.session_reader import FrameStore, operations
from turnstate.storage.stored_head import StoredHead
from turnstate.storage.warm.cold_rows import ColdHead
from turnstate.storage.warm.erase_marks import marks, who_of
from turnstate.storage.warm.tables import (
    FRAMES,
    HEADS,
    INDEX,
    LIFE_BYTES,
    SEGMENTS,
    session_prefix,
)
from turnstate.streams.documents import Document
from turnstate.streams.kafka.erase_queries import (
    ErasePlanQuery,
    EraseScanQuery,
    Found,
)
from turnstate.streams.kafka.fresh import Fresh, FreshPartitions
from turnstate.streams.kafka.partition import Partition
from turnstate.streams.kafka.partition_reader import ColdReader
from turnstate.streams.steady import steadily

COLD_AT_ONCE: Final = 16
"""Cold sessions that one page reads: each is a request or two."""

_TRIES: Final = 3


def found_page(parts: FreshPartitions, query: ErasePlanQuery) -> Document:
    """Return a page of the sessions that an erase is about.

    Cold ones are read from their packs, while nothing of the partition is held.

    Raises:
        UnavailableError: the partition cannot be read here, or the cold tier is
            away.
        CorruptDataError: a session cannot be read: repair it first.
    """
    found: list[Found] = []
    cold: list[bytes] = []
    following: bytes | None = None
    with parts.fresh(query.partition) as fresh:
        if not query.after:
            found += _left_over(fresh, query)
        for key in _keys(fresh, query):
            (lies,) = fresh.reader.warm.located([key])
            if lies is None:
                continue
            whole = _whole(key, lies, query)
            if whole is not None:
                found.append(whole)
            elif isinstance(lies, ColdHead):
                cold.append(key)
            elif query.user is not None and not lies.is_tombstone:
                found += _warm(fresh.partition, key, query.user)
            if not query.keys and (fresh.is_over() or len(cold) >= COLD_AT_ONCE):
                following = key
                break
    for key in cold:
        assert query.user is not None, "a session that is named goes whole"
        found += _cold(parts, query.partition, key, query.user)
    return {"found": found, "next": following}


def _keys(fresh: Fresh, query: ErasePlanQuery) -> Iterator[bytes]:
    if query.user is None:
        yield from query.keys
    else:
        prefix = tenant_prefix(query.tenant)
        yield from fresh.reader.warm.keys(prefix, query.after)


def _left_over(fresh: Fresh, query: ErasePlanQuery) -> Iterator[Found]:
    """Yield what an earlier erase of the same user has not come to its end with."""
    if query.user is None:
        return
    who = who_of(query.tenant, query.user)
    store = fresh.reader.warm
    for key, _, mark in marks(store, tenant_prefix(query.tenant)):
        if mark.who != who or mark.is_done:
            continue
        (lies,) = store.located([key])
        if lies is None:
            continue
        now = _incarnation(lies)
        if not mark.life:
            yield Found(key, now, is_over=False, is_whole=False, is_left=True)
        elif mark.life < now:
            # It has ended; what was said since is looked at by itself.
            yield Found(key, mark.life + 1, is_over=True, is_whole=True, is_left=True)


def _whole(
    key: bytes, lies: StoredHead | ColdHead, query: ErasePlanQuery
) -> Found | None:
    """Return a session that goes whole, None where it does not."""
    if query.user is not None and lies.owner != query.user:
        return None
    if isinstance(lies, ColdHead):
        return Found(key, lies.incarnation, False, True, lies.turn_count)
    head = lies.head
    return Found(key, head.incarnation, lies.is_tombstone, True, head.turn_count)


def _warm(partition: Partition, key: bytes, user: str) -> list[Found]:
    def read(stored: StoredHead | None) -> list[Found]:
        if stored is None or stored.is_tombstone:
            return []
        return _spoken(partition.store, key, stored, user)

    return steadily(partition, key, read)


def _cold(parts: FreshPartitions, number: int, key: bytes, user: str) -> list[Found]:
    """Read a session that was cold a moment ago, wherever it lies now."""
    for tries in range(_TRIES):
        with parts.fresh(number) as fresh:
            partition = fresh.partition
            (lies,) = partition.store.located([key])
            if not isinstance(lies, ColdHead):
                return _warm(partition, key, user)
            below = partition.below
        if below is None:
            raise UnavailableError(
                "a session is cold, and the cold tier is not configured here",
                hint="set `cold`, or [s3] in cluster.toml, to where its packs are",
                code="cold_away",
            )
        try:
            reader = ColdReader(partition, lies, below)
            stored = reader.heads.head(key)
            assert stored is not None, "it was read"
            return _spoken(reader.warm, key, stored, user)
        except CorruptDataError:
            # A pack that was collected while this read it, perhaps.
            if tries == _TRIES - 1:
                raise
    raise AssertionError("unreachable")


def _spoken(
    store: FrameStore, key: bytes, stored: StoredHead, user: str
) -> list[Found]:
    """Return a session of others if the user did anything there."""
    ops = [op for _, op in operations(store, key, stored)]
    if not any(op.body.user == user for op in ops):
        return []
    said = said_by(ops, user, stored.head.redacted)
    return [Found(key, stored.head.incarnation, False, False, len(said), spoken=said)]


def rows_of(fresh: Fresh, query: EraseScanQuery) -> tuple[dict[str, int], int]:
    """Count the rows of some sessions, and those that have to be gone.

    Raises:
        CorruptDataError: a session that goes on cannot be read.
    """
    store = fresh.reader.warm
    seen = {HEADS: 0, FRAMES: 0, SEGMENTS: 0, INDEX: 0}
    found = 0
    for key, life in query.lives:
        (lies,) = store.located([key])
        if lies is not None:
            seen[HEADS] += 1
            found += _incarnation(lies) <= life
        prefix = session_prefix(key)
        for table in (FRAMES, SEGMENTS, INDEX):
            for at, _ in store.stored_rows(table, prefix):
                seen[table] += 1
                begun = at[len(prefix) : len(prefix) + LIFE_BYTES]
                found += int.from_bytes(begun, "big") <= life
    for key in query.rewritten:
        (lies,) = store.located([key])
        seen[HEADS] += lies is not None
        if isinstance(lies, StoredHead) and query.user is not None:
            ops = [op for _, op in operations(store, key, lies)]
            seen[SEGMENTS] += len(ops)
            found += sum(op.body.user == query.user for op in ops)
    return seen, found


def _incarnation(lies: StoredHead | ColdHead) -> int:
    return lies.head.incarnation if isinstance(lies, StoredHead) else lies.incarnation
