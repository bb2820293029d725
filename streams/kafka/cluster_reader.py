"""Read a cluster: each question goes to the worker that owns the partition."""

import asyncio
import heapq
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import chain
from typing import Any, Final, Self

from turnstate.agents.session.step import Answer
from turnstate.schemas.errors import ConflictError, UnavailableError
from turnstate.schemas.ids import SessionName, checked_id
from turnstate.schemas.operation import MAIN
from turnstate.streams.documents import Document
from turnstate.streams.embedded.calls import SessionCalls, StoreCalls
from turnstate.streams.kafka import dead_letters
from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.cluster_totals import totals
from turnstate.streams.kafka.connections import admin_client
from turnstate.streams.kafka.entity_feed import entity_feed
from turnstate.streams.kafka.feed import driven, followed
from turnstate.streams.kafka.hot_reads import Floor, HotReads, floor_of, hot_reads
from turnstate.streams.kafka.partitioning import partition_of_session
from turnstate.streams.kafka.routing import Address, Routes, find_routes
from turnstate.streams.kafka.topic_ids import topic_id
from turnstate.streams.kafka.topics import Topics
from turnstate.streams.kafka.worker_links import WorkerLinks

HOPS_MAX: Final = 3
"""Different workers that one question goes to."""

PATIENCE_S: Final = 10.0
"""What a question waits beyond a dead worker's time-out, and for silent brokers."""

_PAUSES_S: Final = (0.05, 0.1, 0.2, 0.5)

_RETRIED: Final = frozenset(
    {
        "busy",
        "no_owner",
        "not_fresh",
        "not_here",
        "other_log",
        "owner_busy",
        "owner_closing",
        "rebalancing",
        "unavailable",
        "worker_lost",
        "worker_silent",
    }
)
"""What may be otherwise in a moment, when the group has settled."""

_OF_A_SESSION: Final = {"state", "turns", "history", "head", "context", "reach"}


class ClusterReader(StoreCalls, SessionCalls):
    """Answer the reads of a store from the workers of a cluster.

    Each answer about a session has `reflects`, the position of the log that it
    is not older than. A partition that moves is waited for, and never answered
    from a store that may be behind. Safe to use from several threads, but not
    in the thread of an event loop.

    Where there is a hot tier, the newest state of a session is looked for there
    first, and comes from there if all of it does.

    Args:
        cluster: Where the brokers are, and the group.
        wait_s: How long a question may take in all; None = the session
            time-out and a little.

    Attributes:
        hot: Reads of the hot tier, once the first question was asked; None
            where there is none.
    """

    def __init__(
        self, cluster: ClusterSettings, *, wait_s: float | None = None
    ) -> None:
        self.cluster = cluster
        self._topics = Topics.of(cluster)
        session_s = cluster.session_timeout_ms / 1000
        self._wait_s = session_s + PATIENCE_S if wait_s is None else wait_s
        self._lock = threading.Lock()
        self._routes: Routes | None = None
        self._links: WorkerLinks | None = None
        self.hot: HotReads | None = None

    def close(self) -> None:
        """Hang up."""
        with self._lock:
            if self._links is not None:
                self._links.close()
            if self.hot is not None:
                self.hot.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- one session ---------------------------------------------------------------

    def call(self, method: str, **arguments: Any) -> Any:
        """Have the worker of a session answer.

        Raises:
            UnavailableError: no worker can, in time; or the method does not
                work on a cluster (code `embedded_only`).
            TurnstateError: what the method raises.
        """
        if method not in _OF_A_SESSION:
            name = method.replace("_", "-")
            raise UnavailableError(
                f"{name} does not work on a cluster",
                field="profile",
                hint="leave --profile and TURNSTATE_PROFILE out to run embedded",
                code="embedded_only",
            )
        tenant = checked_id(arguments["tenant"], "tenant")
        session = checked_id(arguments["session"], "session")
        number = partition_of_session(tenant, session, self.cluster.partitions)
        if method == "state":
            return self._state(number, SessionName(tenant, session), arguments)
        answer = self.ask(number, method, arguments)
        if method == "reach" and self.hot is not None:
            key = SessionName(tenant, session).key()
            self.hot.was_told(key, floor_of(arguments["at_least"]))
        return answer

    def _state(
        self, number: int, name: SessionName, arguments: dict[str, Any]
    ) -> Document:
        is_newest = arguments.get("version") is None
        hot = self._hot_reads() if is_newest else None
        if hot is None:
            return self._told(number, arguments)
        found = hot.state(name, arguments.get("branch", MAIN))
        if found is not None:
            return found
        arguments = {**arguments, "hot_hits": hot.new_hits()}
        document = self._told(number, arguments)
        hot.was_told(name.key(), Floor(document["incarnation"], document["version"]))
        return document

    def _told(self, number: int, arguments: dict[str, Any]) -> Document:
        document: Document = self.ask(number, "state", arguments)
        return document

    def _hot_reads(self) -> HotReads | None:
        if self.cluster.redis:
            self._known()  # they are made with the first routes
        return self.hot

    def state_of_owner(self, tenant: str, session: str) -> Document:
        """Return the newest state, from the worker that owns it and nobody else."""
        number = partition_of_session(tenant, session, self.cluster.partitions)
        arguments = {"tenant": tenant, "session": session}
        return self._told(number, arguments)

    # -- what needs a store that this process can write ------------------------------

    def publish(self, records: Sequence[bytes]) -> list[Answer]:
        """Refuse: a cluster is published to by its log (`TurnProducer`)."""
        del records
        raise UnavailableError(
            "a cluster is not published to through its reader",
            field="profile",
            hint="use streams.kafka.producer.TurnProducer, or turnstate publish",
            code="embedded_only",
        )

    # -- all of them -----------------------------------------------------------------

    def sessions(
        self, *, tenant: str | None = None, tier: str | None = None, prefix: str = ""
    ) -> Iterator[Document]:
        """Yield a row for each session, in key order over all workers."""
        options = {"tenant": tenant, "tier": tier, "prefix": prefix}
        return heapq.merge(
            *(self._rows(number, options) for number in self._numbers()),
            key=lambda row: SessionName(row["tenant"], row["session"]).key(),
        )

    def _rows(self, number: int, options: dict[str, Any]) -> Iterator[Document]:
        for page in self.pages(number, "sessions", options):
            yield from page["rows"]

    def stats(self) -> Document:
        """Return totals over all workers.

        `log_bytes` is null: the brokers know it, and tell it to nobody but
        their own tools.
        """
        pages = (self.pages(number, "stats", {}) for number in self._numbers())
        told = chain.from_iterable(pages)
        return totals(told, asyncio.run(dead_letters.dead_letters(self.cluster)))

    def verify(
        self, tenant: str | None = None, progress: Callable[..., Any] | None = None
    ) -> Document:
        """Check everything that the workers store against everything else."""
        sums = dict.fromkeys(("sessions", "frames", "versions"), 0)
        bad: list[Document] = []
        for number in self._numbers():
            for page in self.pages(number, "verify", {"tenant": tenant}):
                for name in sums:
                    sums[name] += page[name]
                bad += page["bad"]
                if progress is not None:
                    progress(sums["sessions"])
        return {**sums, "bad": bad}

    def positions(self) -> list[Document]:
        """Return how far each partition is folded, as its worker says now.

        Raises:
            UnavailableError: a worker does not answer.
        """
        rows: list[Document] = []
        deadline = time.monotonic() + self._wait_s
        for address in sorted(set(self.routes().owners.values())):
            answer = self._worker_links().ask(address, "positions", {}, deadline)
            rows += answer["partitions"]
        return sorted(rows, key=lambda row: row["partition"])

    def subscribe(
        self,
        tenant: str | None = None,
        session: str | None = None,
        *,
        token: str | None = None,
        follow: bool = True,
        stopped: Callable[[], bool] | None = None,
    ) -> Generator[Document]:
        """Yield the events of a session, or of all, from the topic `deltas`."""
        return followed(
            self.cluster,
            self.state_of_owner,
            tenant,
            session,
            token=token,
            follow=follow,
            stopped=stopped,
        )

    def entities(
        self,
        tenant: str | None = None,
        *,
        token: str | None = None,
        follow: bool = True,
        stopped: Callable[[], bool] | None = None,
    ) -> Generator[Document]:
        """Yield entity upserts from their topic; see `entity_feed.entity_feed`."""
        feed = entity_feed(self.cluster, tenant, token=token, follow=follow)
        return driven(feed, stopped)

    def routes(self) -> Routes:
        """Ask the group anew who owns what.

        Raises:
            UnavailableError: the brokers do not answer.
            ConflictError: the group has more partitions than the settings say.
        """
        routes, ids = asyncio.run(self._look())
        strange = max(routes.owners, default=-1)
        if strange >= self.cluster.partitions:
            raise ConflictError(
                f"a worker has partition {strange}, there are to be"
                f" {self.cluster.partitions} partitions",
                field="partitions",
                hint="give this command the settings that the workers have",
                code="other_partitions",
            )
        with self._lock:
            self._routes = routes
            if self._links is None:
                self._links = WorkerLinks(ids[0])
                self.hot = hot_reads(self.cluster, *ids)
        return routes

    # -- inside ----------------------------------------------------------------------

    def _numbers(self) -> range:
        return range(self.cluster.partitions)

    def pages(
        self, number: int, method: str, options: dict[str, Any]
    ) -> Iterator[Document]:
        """Yield pages of a partition; where it moves, its new owner goes on."""
        place: dict[str, Any] = {}
        while True:
            arguments = {"partition": number, **options, **place}
            page: Document = self.ask(number, method, arguments)
            yield page
            following = page["next"]
            if following is None:
                return
            if isinstance(following, bytes):
                place = {"after": following}
            else:
                place = {"table": following[0], "after": following[1]}

    def ask(self, number: int, method: str, arguments: dict[str, Any]) -> Any:
        """Ask who owns a partition, and again where that changes meanwhile.

        Raises:
            TurnstateError: what the method raises, or that nobody answers in time.
        """
        deadline = time.monotonic() + self._wait_s
        asked: set[Address] = set()
        tries = 0
        while True:
            try:
                address = self._known().address(number)
                if address not in asked and len(asked) == HOPS_MAX:
                    raise _wandering(number)
                asked.add(address)
                return self._worker_links().ask(address, method, arguments, deadline)
            except UnavailableError as error:
                pause_s = _PAUSES_S[min(tries, len(_PAUSES_S) - 1)]
                if error.code not in _RETRIED or time.monotonic() + pause_s > deadline:
                    raise
                time.sleep(pause_s)
                self._forget()
                tries += 1

    def _worker_links(self) -> WorkerLinks:
        assert self._links is not None, "made with the first routes"
        return self._links

    def _forget(self) -> None:
        with self._lock:
            self._routes = None

    def _known(self) -> Routes:
        with self._lock:
            routes = self._routes
        return routes or self.routes()

    async def _look(self) -> tuple[Routes, tuple[bytes, bytes]]:
        log = changelog = b""
        if self._links is None:
            at, wait_s = self.cluster, PATIENCE_S
            log = await topic_id(at, self._topics.turns, timeout_s=wait_s)
            if at.redis:
                name = self._topics.changelog
                changelog = await topic_id(at, name, timeout_s=wait_s)
        async with admin_client(self.cluster, timeout_s=self._wait_s) as admin:
            routes = await find_routes(self.cluster, admin, self._topics.turns)
            return routes, (log, changelog)


def _wandering(number: int) -> UnavailableError:
    return UnavailableError(
        f"partition {number} was looked for at {HOPS_MAX} workers",
        field="partition",
        hint="the group does not settle: see why its workers come and go",
        code="hops",
    )
