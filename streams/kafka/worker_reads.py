"""What a worker answers about its partitions: fresh, or not at all."""

import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from turnstate.schemas.dialogue.head import Head
from turnstate.schemas.errors import CorruptDataError, UnavailableError
from turnstate.schemas.ids import SessionName, checked_id
from turnstate.storage.cold.deadline import OneRead
from turnstate.storage.session_row import SessionRow
from turnstate.storage.warm.cold_rows import ColdHead
from turnstate.storage.warm.tables import STATE_TABLES
from turnstate.streams import documents
from turnstate.streams.documents import Document
from turnstate.streams.embedded.context import context
from turnstate.streams.embedded.events import Place, log_offset
from turnstate.streams.embedded.reach import wanted_place
from turnstate.streams.embedded.upkeep import disk_bytes
from turnstate.streams.expiry import NEVER, Expiry
from turnstate.streams.kafka.cold_reads import Cold, ColdReads, cold_of
from turnstate.streams.kafka.fresh import Fresh, FreshPartitions, Owner
from turnstate.streams.kafka.partition import Partition
from turnstate.streams.kafka.partition_walk import Walk
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
from turnstate.streams.kafka.verified_page import Calmly, VerifiedPage
from turnstate.streams.kafka.worker_backups import WorkerBackups
from turnstate.streams.kafka.worker_erasing import WorkerErasing
from turnstate.streams.kafka.worker_moves import WorkerMoves
from turnstate.streams.reading import StoreReader

REACH_S_MAX: Final = 10.0

_COLD_TRIES: Final = 4
_PAUSE_S: Final = 0.002

_Read = TypeVar("_Read")


class WorkerReads:
    """Answer queries in any thread; each answer is of a partition owned throughout.

    Args:
        owner: Knows the partitions.
        partitions: How many the cluster has.
        log: The 16 bytes of the topic id of turns, for positions.
        calmly: Does something while nothing is folded.
        moves: What jobs ask for that move sessions; None = nothing.
        backups: Makes backups; None = nobody does.
        erasing: Cleans this worker's places; None = nothing is erased.
        expiry: Says what is served no more.
    """

    def __init__(
        self,
        owner: Owner,
        *,
        partitions: int,
        log: bytes,
        calmly: Calmly,
        moves: WorkerMoves | None = None,
        backups: WorkerBackups | None = None,
        erasing: WorkerErasing | None = None,
        expiry: Expiry = NEVER,
    ) -> None:
        self.parts = FreshPartitions(owner, log, expiry)
        self.moves = moves
        self.backups = backups
        self.erasing = erasing
        self._calmly = calmly
        self._count = partitions
        self._log = log
        self._cold = ColdReads(expiry)

    # -- one session ---------------------------------------------------------------

    def state(self, query: StateQuery) -> Document:
        """Return the state of a session; see `StoreReader.state`."""
        if query.hot_hits is not None:
            self._missed(query, query.hot_hits)
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
        return self.read_session(
            query,
            lambda reader: reader.head(query.tenant, query.session, query.version),
        )[0]

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
            partition = self.parts.partition(number)
            self.parts.check_fresh(partition)
            if reached(partition):
                return {"reached": True, "reflects": self.parts.token(partition)}
            if time.monotonic() > deadline:
                raise UnavailableError(
                    f"session {query.session!r} has not come to"
                    f" {query.at_least!r} yet",
                    field="at_least",
                    hint="ask again in a moment",
                    code="not_yet",
                )
            time.sleep(_PAUSE_S)

    def _reached(self, query: ReachQuery, number: int) -> Callable[[Partition], bool]:
        at_least = query.at_least
        if isinstance(at_least, str) and ":" in at_least:
            offset = log_offset(at_least, self._log, number)
            return lambda partition: partition.is_folded(offset)
        place = wanted_place(at_least)
        key = _key(query)

        def is_there(_: Partition) -> bool:
            with self.parts.fresh(number) as fresh:
                return _is_at(fresh.reader.row(key), place)

        return is_there

    def _about(
        self, query: SessionQuery, read: Callable[[StoreReader], Document]
    ) -> Document:
        document, reflects = self.read_session(query, read)
        return {**document, "reflects": reflects}

    def read_session(
        self,
        query: SessionQuery,
        read: Callable[[StoreReader], _Read],
        *,
        is_use: bool = True,
    ) -> tuple[_Read, str]:
        """Read a session where it lies; return what was read, as of which position.

        One that is cold is read while nothing of the partition is held; and again
        where it has come back, or gone elsewhere, meanwhile.
        """
        number, key = self._number(query), _key(query)
        with OneRead():
            for tries in range(_COLD_TRIES):
                with self.parts.fresh(number) as fresh:
                    cold = cold_of(fresh, key)
                    if cold is None:
                        return read(fresh.reader), fresh.reflects
                try:
                    answer = self._cold.read(cold, read)
                except CorruptDataError:
                    # A pack that was collected while this waited, perhaps.
                    if tries == _COLD_TRIES - 1 or self._stands(number, key, cold):
                        raise
                    continue
                if self._stands(number, key, cold):
                    if is_use and self.moves is not None:
                        self.moves.was_read_cold(number, key)
                    return answer, cold.reflects
        raise UnavailableError(
            f"session {query.session!r} goes from tier to tier",
            hint="ask again in a moment",
            code="busy",
        )

    def _stands(self, number: int, key: bytes, cold: Cold) -> bool:
        with self.parts.fresh(number) as fresh:
            now = cold_of(fresh, key)
            return now is not None and now[:3] == cold[:3]

    def _missed(self, query: SessionQuery, hits: int) -> None:
        """Have a session put into hot that readers look for there."""
        partition = self.parts.owner.partitions.get(self._number(query))
        if partition is not None and partition.redis is not None:
            partition.redis.missed(_key(query), hits)

    def _number(self, query: SessionQuery) -> int:
        return partition_of(_key(query), self._count)

    # -- many sessions, a page at a time -----------------------------------------

    def sessions(self, query: SessionsQuery) -> Document:
        """Return rows of a partition's sessions after a key, in key order.

        `next` is the key to go on after; None where there are no more.
        """
        rows: list[Document] = []
        with self.parts.fresh(query.partition) as fresh:
            walk = _walk(fresh, query, query.prefix)
            for key, row in walk.rows():
                gone = fresh.reader.has_expired(row.arrived_ms)
                if not gone and query.tier in (None, row.tier):
                    name = SessionName.from_key(key)
                    rows.append(documents.session_document(name, row))
                if len(rows) >= query.limit:
                    break
            return {"rows": rows, "next": walk.next, "reflects": fresh.reflects}

    def stats(self, query: PageQuery) -> Document:
        """Return totals of a page of sessions; the first page has the store's."""
        counts = dict.fromkeys(("hot", "warm", "cold"), 0)
        turns = text = cold_bytes = 0
        with self.parts.fresh(query.partition) as fresh:
            partition = fresh.partition
            walk = _walk(fresh, query)
            for key, row in walk.rows():
                counts[row.tier] += 1
                turns += row.turn_count
                text += row.text_bytes
                if row.tier == "cold":
                    (found,) = partition.store.located([key])
                    if isinstance(found, ColdHead):
                        cold_bytes += found.pointer.length
            page: Document = {
                "sessions": sum(counts.values()),
                "turns": turns,
                "text_bytes": text,
                "hot": counts["hot"],
                "cold": counts["cold"],
                "cold_bytes": cold_bytes,
                "next": walk.next,
            }
            if not query.after:
                partition.store.flush()
                redis = partition.redis
                held = partition.hot.bytes_held if redis is None else redis.books.bytes
                page["hot_bytes"] = held
                page["state_bytes"] = partition.store.table_bytes(STATE_TABLES)
                page["disk_bytes"] = disk_bytes(partition.store.path.parent)
            return page

    def verify(self, query: VerifyQuery) -> Document:
        """Check a page of sessions: every checksum, chain link, row and the fold.

        After the heads come the other tables, for rows that have no head;
        `next` is then a table and a key.
        """
        with self.parts.fresh(query.partition) as fresh:
            page = VerifiedPage(fresh.partition, self._calmly, fresh.is_over)
            return page.run(query)

    def positions(self, _: NoQuery) -> Document:
        """Return how far each partition of this worker is folded."""
        rows: list[Document] = []
        for number, partition in sorted(self.parts.owner.partitions.items()):
            folded = partition.folded
            rows.append(
                {
                    "partition": number,
                    "offset": None if folded is None else folded[0],
                    "fresh": self.parts.is_fresh(partition),
                    "reflects": self.parts.token(partition),
                }
            )
        return {"partitions": rows}

    # -- moves ---------------------------------------------------------------------

    def tier(self, method: str, query: Any) -> Any:
        """Do what a job asks for that moves sessions; see `WorkerMoves`.

        Raises:
            UnavailableError: nothing is moved here.
        """
        if self.moves is None:
            raise UnavailableError("nothing is moved here", code="cold_away")
        return getattr(self.moves, method)(query)

    def backup(self, method: str, query: Any) -> Any:
        """Do what a job asks for that makes backups; see `WorkerBackups`.

        Raises:
            UnavailableError: none are made here.
        """
        if self.backups is None:
            raise UnavailableError("no backups are made here", code="no_backups")
        return getattr(self.backups, method)(query)

    def erase(self, method: str, query: Any) -> Any:
        """Do what an erase asks for; see `WorkerErasing`.

        Raises:
            UnavailableError: nothing is erased here.
        """
        if self.erasing is None:
            raise UnavailableError("nothing is erased here", code="no_erasing")
        return getattr(self.erasing, method)(query)


def _key(query: SessionQuery) -> bytes:
    tenant = checked_id(query.tenant, "tenant")
    return SessionName(tenant, checked_id(query.session, "session")).key()


def _walk(fresh: Fresh, query: PageQuery, prefix: str = "") -> Walk:
    tenant = query.tenant
    if tenant is not None:
        checked_id(tenant, "tenant")
    return Walk(fresh, tenant, prefix, query.after)


def _is_at(row: SessionRow | None, wanted: Place) -> bool:
    """Say whether a session is as far as wanted."""
    if row is None:
        return wanted.version == 0
    if wanted.incarnation in (0, row.incarnation):
        return row.version >= wanted.version
    return row.incarnation > wanted.incarnation
