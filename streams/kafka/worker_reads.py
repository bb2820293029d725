"""What a worker answers about its partitions: fresh, or not at all."""

import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple, Protocol

from turnstate.schemas.dialogue.head import Head
from turnstate.schemas.errors import UnavailableError
from turnstate.schemas.ids import SessionName, checked_id, tenant_prefix
from turnstate.storage.stored_head import StoredHead
from turnstate.storage.warm.tables import STATE_TABLES
from turnstate.streams import documents
from turnstate.streams.documents import Document
from turnstate.streams.embedded.context import context
from turnstate.streams.embedded.events import START, log_offset
from turnstate.streams.embedded.reach import has_reached, wanted_place
from turnstate.streams.embedded.upkeep import disk_bytes
from turnstate.streams.kafka.membership import MembershipLease
from turnstate.streams.kafka.partition import Partition
from turnstate.streams.kafka.partitioning import partition_of
from turnstate.streams.kafka.queries import (
    ContextQuery,
    HeadQuery,
    NoQuery,
    PageQuery,
    ReachQuery,
    SessionQuery,
    SessionsQuery,
    StateQuery,
    TurnsQuery,
    VerifyQuery,
)
from turnstate.streams.kafka.read_gate import GateShutError
from turnstate.streams.kafka.restore import RestoreProgress
from turnstate.streams.kafka.verified_page import Calmly, VerifiedPage
from turnstate.streams.reading import StoreReader

READS_AT_ONCE: Final = 2
"""More wait: each takes its share of the interpreter from the fold."""

WAIT_S: Final = 10.0
"""How long a read waits for its turn."""

SLICE_S: Final = 0.5
"""After that a page of a long read ends, however short it is."""

REACH_S_MAX: Final = 10.0

_PAUSE_S: Final = 0.002


class Owner(Protocol):
    """Who knows the partitions of a worker: its application."""

    partitions: dict[int, Partition]
    membership: MembershipLease
    restoring: RestoreProgress | None


class WorkerReads:
    """Answer queries in any thread; each answer is of a partition owned throughout.

    Args:
        owner: Knows the partitions.
        partitions: How many the cluster has.
        log: The 16 bytes of the topic id of turns, for positions.
        calmly: Does something while nothing is folded.
    """

    def __init__(
        self, owner: Owner, *, partitions: int, log: bytes, calmly: Calmly
    ) -> None:
        self._owner = owner
        self._calmly = calmly
        self._count = partitions
        self._log = log
        self._turn = threading.BoundedSemaphore(READS_AT_ONCE)

    # -- one session ---------------------------------------------------------------

    def state(self, query: StateQuery) -> Document:
        """Return the state of a session; see `StoreReader.state`."""
        return self._about(
            query,
            lambda reader: reader.state(
                query.tenant, query.session, version=query.version, branch=query.branch
            ),
        )

    def turns(self, query: TurnsQuery) -> Document:
        """Return a page of turns; see `StoreReader.turns`."""
        return self._about(
            query,
            lambda reader: reader.turns(
                query.tenant,
                query.session,
                version=query.version,
                branch=query.branch,
                at=query.at,
                limit=query.limit,
            ),
        )

    def history(self, query: SessionQuery) -> Document:
        """Return how a session is stored; see `StoreReader.history`."""
        return self._about(
            query, lambda reader: reader.history(query.tenant, query.session)
        )

    def context(self, query: ContextQuery) -> Document:
        """Return messages for a model; see `context.context`."""
        return self._about(
            query,
            lambda reader: context(
                reader,
                query.tenant,
                query.session,
                budget_tokens=query.budget_tokens,
                version=query.version,
                branch=query.branch,
                complete_open_calls=query.complete_open_calls,
            ),
        )

    def head(self, query: HeadQuery) -> Head:
        """Return the head of a session; see `StoreReader.head`."""
        with self._fresh(self._number(query)) as fresh:
            return fresh.reader.head(query.tenant, query.session, query.version)

    def reach(self, query: ReachQuery) -> Document:
        """Wait until a session is at a version, or its partition at a token.

        Raises:
            UnavailableError: it is not there in time (code `not_yet`).
            InvalidInputError: the token is none, or of another log.
        """
        number = self._number(query)
        reached = self._reached(query, number)
        deadline = time.monotonic() + min(query.timeout_ms / 1000, REACH_S_MAX)
        while True:
            partition = self._partition(number)
            self._check_fresh(partition)
            if reached(partition):
                return {"reached": True, "reflects": self._token(partition)}
            if time.monotonic() > deadline:
                raise UnavailableError(
                    f"session {query.session!r} has not come to"
                    f" {query.at_least!r} yet",
                    field="at_least",
                    hint="ask again in a moment",
                    code="not_yet",
                )
            time.sleep(_PAUSE_S)

    def _reached(
        self, query: ReachQuery, number: int
    ) -> Callable[[Partition], bool]:
        at_least = query.at_least
        if isinstance(at_least, str) and ":" in at_least:
            offset = log_offset(at_least, self._log, number)
            return lambda partition: partition.is_folded(offset)
        place = wanted_place(at_least)
        key = SessionName(query.tenant, query.session).key()

        def is_there(_: Partition) -> bool:
            with self._fresh(number) as fresh:
                return has_reached(fresh.partition.head(key), place)

        return is_there

    def _about(
        self, query: SessionQuery, read: Callable[[StoreReader], Document]
    ) -> Document:
        with self._fresh(self._number(query)) as fresh:
            return {**read(fresh.reader), "reflects": fresh.reflects}

    def _number(self, query: SessionQuery) -> int:
        name = SessionName(
            checked_id(query.tenant, "tenant"), checked_id(query.session, "session")
        )
        return partition_of(name.key(), self._count)

    # -- many sessions, a page at a time -----------------------------------------

    def sessions(self, query: SessionsQuery) -> Document:
        """Return rows of a partition's sessions after a key, in key order.

        `next` is the key to go on after; None where there are no more.
        """
        rows: list[Document] = []
        with self._fresh(query.partition) as fresh:
            walk = self._walk(fresh, query, query.prefix)
            for key, stored in walk.heads():
                hot = fresh.partition.hot.peek(key) is not None
                name = SessionName.from_key(key)
                tier = "hot" if hot else "warm"
                if query.tier in (None, tier):
                    rows.append(documents.session_document(name, stored, tier))
                if len(rows) >= query.limit:
                    break
            return {"rows": rows, "next": walk.next, "reflects": fresh.reflects}

    def stats(self, query: PageQuery) -> Document:
        """Return totals of a page of sessions; the first page has the store's."""
        sessions = turns = text = hot = 0
        with self._fresh(query.partition) as fresh:
            partition = fresh.partition
            walk = self._walk(fresh, query)
            for key, stored in walk.heads():
                sessions += 1
                turns += stored.head.turn_count
                text += stored.text_bytes
                hot += partition.hot.peek(key) is not None
            page: Document = {
                "sessions": sessions,
                "turns": turns,
                "text_bytes": text,
                "hot": hot,
                "next": walk.next,
            }
            if not query.after:
                partition.store.flush()
                page["hot_bytes"] = partition.hot.bytes_held
                page["state_bytes"] = partition.store.table_bytes(STATE_TABLES)
                page["disk_bytes"] = disk_bytes(partition.store.path.parent)
            return page

    def verify(self, query: VerifyQuery) -> Document:
        """Check a page of sessions: every checksum, chain link, row and the fold.

        After the heads come the other tables, for rows that have no head;
        `next` is then a table and a key.
        """
        with self._fresh(query.partition) as fresh:
            page = VerifiedPage(fresh.partition, self._calmly, fresh.is_over)
            return page.run(query)

    def positions(self, _: NoQuery) -> Document:
        """Return how far each partition of this worker is folded."""
        rows: list[Document] = []
        for number, partition in sorted(self._owner.partitions.items()):
            folded = partition.folded
            rows.append(
                {
                    "partition": number,
                    "offset": None if folded is None else folded[0],
                    "fresh": self._is_fresh(partition),
                    "reflects": self._token(partition),
                }
            )
        return {"partitions": rows}

    # -- inside ------------------------------------------------------------------

    def _walk(self, fresh: "_Fresh", query: PageQuery, prefix: str = "") -> "_Walk":
        tenant = query.tenant
        if tenant is not None:
            checked_id(tenant, "tenant")
        return _Walk(fresh, tenant, prefix, query.after)

    @contextmanager
    def _fresh(self, number: int) -> Generator["_Fresh"]:
        """Give a partition that is this worker's, before and after it is read.

        Raises:
            UnavailableError: it is elsewhere (`not_here`), or not ready
                (`not_fresh`), or too many ask (`busy`).
        """
        if not self._turn.acquire(timeout=WAIT_S):
            raise UnavailableError(
                "the worker has too many reads to do",
                hint="ask again in a moment",
                code="busy",
            )
        try:
            partition = self._partition(number)
            with partition.gate.reading():
                self._check_fresh(partition)
                epoch = partition.epoch
                fresh = _Fresh(
                    partition,
                    StoreReader(partition.store, partition, partition.graph),
                    self._token(partition),
                    time.monotonic() + SLICE_S,
                )
                try:
                    yield fresh
                finally:
                    # What it found may be a store in the middle of a restore,
                    # so this error stands in the place of any other.
                    self._check_fresh(partition)
                    if partition.epoch != epoch:
                        raise self._not_fresh(number)
        except GateShutError:
            raise self._not_fresh(number) from None
        finally:
            self._turn.release()

    def _partition(self, number: int) -> Partition:
        partition = self._owner.partitions.get(number)
        if partition is None:
            raise UnavailableError(
                f"partition {number} is not this worker's",
                field="partition",
                hint="ask the worker that the group's metadata name now",
                code="not_here",
            )
        return partition

    def _check_fresh(self, partition: Partition) -> None:
        if not self._is_fresh(partition):
            raise self._not_fresh(partition.number)

    def _is_fresh(self, partition: Partition) -> bool:
        return (
            partition.is_fresh
            and self._owner.membership.holds
            and self._owner.partitions.get(partition.number) is partition
        )

    def _not_fresh(self, number: int) -> UnavailableError:
        progress = self._owner.restoring
        if progress is None:
            what = f"partition {number} is being handed over"
        else:
            share = 100 * progress.done // max(progress.total, 1)
            what = f"partition {number} is being restored, {share} % done"
        return UnavailableError(
            what, field="partition", hint="ask again in a moment", code="not_fresh"
        )

    def _token(self, partition: Partition) -> str:
        folded = partition.folded
        if folded is None:
            return START
        return f"{self._log.hex()}:{partition.number}:{folded[0]}"


class _Fresh(NamedTuple):
    """A partition that may be read, and the log position that it reflects."""

    partition: Partition
    reader: StoreReader
    reflects: str
    until: float

    def is_over(self) -> bool:
        """Say whether a page has to end: it took its time, or the store closes."""
        return time.monotonic() > self.until or not self.partition.is_fresh


class _Walk:
    """Go over the heads of a partition until a page is over.

    Attributes:
        next: The key to go on after; None once all have been seen.
    """

    def __init__(
        self, fresh: _Fresh, tenant: str | None, prefix: str, after: bytes
    ) -> None:
        self._fresh = fresh
        self._prefix = prefix
        self._start = b""
        self._anywhere = tenant is None and bool(prefix)
        if tenant is not None:
            self._start = tenant_prefix(tenant) + prefix.encode()
        self.next: bytes | None = after

    def heads(self) -> Iterator[tuple[bytes, StoredHead]]:
        """Yield (key, head) of the sessions that are asked for."""
        reader = self._fresh.reader
        for key in reader.warm.keys(self._start, self.next or b""):
            self.next = key
            stored = reader.heads.head(key) if self._matches(key) else None
            if stored is not None and not stored.is_tombstone:
                yield key, stored
            if self._fresh.is_over():
                return
        self.next = None

    def _matches(self, key: bytes) -> bool:
        return not self._anywhere or SessionName.from_key(key).session.startswith(
            self._prefix
        )
