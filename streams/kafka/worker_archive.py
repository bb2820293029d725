"""What a worker does before its sessions expire: archive them where that is set."""

from typing import TYPE_CHECKING, Final

from turnstate.agents.archive.archiving import ToArchive, to_archive
from turnstate.agents.ports import Clock
from turnstate.schemas.errors import UnavailableError
from turnstate.schemas.ids import SessionName
from turnstate.storage.stored_head import StoredHead
from turnstate.streams.documents import Document
from turnstate.streams.kafka.queries import SessionQuery
from turnstate.streams.kafka.tier_queries import ArchiveQuery
from turnstate.streams.reading import StoreReader
from turnstate.streams.settings import Settings
from turnstate.streams.steady import steadily
from turnstate.streams.tiers.archiving import archived

if TYPE_CHECKING:
    from turnstate.streams.kafka.worker_reads import WorkerReads

OPERATIONS_A_BATCH: Final = 2_000
"""Read and summed up for one answer, about a second of work; a longer session
goes alone. By count and not by the clock: the same sessions are the same batch."""


class WorkerArchive:
    """Archive sessions that are about to be erased, a batch an answer.

    Summaries are made here, where the sessions are: no text of theirs goes to
    the job, nor to the archive.

    Args:
        reads: Reads sessions where they lie.
        settings: Where the archive is; this worker's count, not the job's.
        clock: For the times in summaries.
    """

    def __init__(self, reads: "WorkerReads", settings: Settings, clock: Clock) -> None:
        self._reads = reads
        self._settings = settings
        self._clock = clock

    def archive(self, query: ArchiveQuery) -> Document:
        """Archive the first of some sessions, all of those or none.

        Returns:
            `{"taken", "archived", "stands"}`: how many of the sessions are dealt
            with, how many summaries there are, and of each that is there still
            `[place, incarnation, version]` as it was archived.

        Raises:
            UnavailableError: the archive is away, or the job wants one and this
                worker has none: nothing is archived, nothing may be erased.
        """
        if query.wanted and not self._settings.archive:
            raise UnavailableError(
                "the job archives, and the worker has no archive",
                field="archive",
                hint="set TURNSTATE_ARCHIVE for workers as for jobs",
                code="no_archive",
            )
        if not self._settings.archive:
            return self._not_archived(query)
        sessions: list[ToArchive] = []
        stands: list[tuple[int, int, int]] = []
        taken = count = 0
        for key in query.keys:
            found = self._read(key)
            if found is not None:
                head = found.stored.head
                if count and count + head.version > OPERATIONS_A_BATCH:
                    break
                count += head.version
                sessions.append(found)
                stands.append((taken, head.incarnation, head.version))
            taken += 1
        try:
            made = archived(self._settings, self._clock, sessions)
        except UnavailableError as error:
            # Of another code than what readers ask again for: the next run does.
            raise UnavailableError(
                error.message, field=error.field, hint=error.hint, code="archive_away"
            ) from error
        return {"taken": taken, "archived": made, "stands": stands}

    def _not_archived(self, query: ArchiveQuery) -> Document:
        """Return where sessions stand; reads no cold one."""
        with self._reads.parts.fresh(query.partition) as fresh:
            rows = [fresh.reader.row(key) for key in query.keys]
        stands = [
            (place, row.incarnation, row.version)
            for place, row in enumerate(rows)
            if row is not None and not row.is_tombstone
        ]
        return {"taken": len(rows), "archived": 0, "stands": stands}

    def _read(self, key: bytes) -> ToArchive | None:
        """Return a session whole, None where there is nothing of it any more."""

        def read(reader: StoreReader) -> ToArchive | None:
            def read_stored(stored: StoredHead | None) -> ToArchive | None:
                if stored is None or stored.is_tombstone:
                    return None
                return to_archive(reader.warm, key, stored, reader.graph)

            return steadily(reader.heads, key, read_stored)

        name = SessionName.from_key(key)
        query = SessionQuery(tenant=name.tenant, session=name.session)
        return self._reads.read_session(query, read, is_use=False)[0]
