"""The archive agent: summaries of a batch of sessions, archived all or none."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from turnstate.agents.archive.deidentify import Deidentifier
from turnstate.agents.archive.summary import SummaryRules, encode_summary, summarise
from turnstate.agents.ports import Clock
from turnstate.schemas.errors import TurnstateError
from turnstate.schemas.ids import SessionName
from turnstate.schemas.operation import Op
from turnstate.storage.archive import Archive
from turnstate.storage.stored_head import StoredHead

PART_BYTES = 4 << 20
"""Of summaries in one object, about."""


class ToArchive(NamedTuple):
    """One session that is to be archived.

    Attributes:
        name: The session.
        stored: Its head.
        ops: All its operations, in version order.
        phases: The phase after each of its turns (`phases_along`).
    """

    name: SessionName
    stored: StoredHead
    ops: Sequence[Op]
    phases: Sequence[str]


class ArchiveBatch(NamedTuple):
    """Sessions that are archived together.

    Attributes:
        batch_id: Names the batch: the same sessions come under the same id again.
        sessions: Which.
    """

    batch_id: str
    sessions: Sequence[ToArchive]


class Archived(NamedTuple):
    """What became of a batch.

    Attributes:
        batch_id: Which.
        sessions: How many summaries it has.
        bytes: Of all of them.
        was_there: It was archived before.
        error: Why nothing of it was archived; None where all of it was.
    """

    batch_id: str
    sessions: int
    bytes: int
    was_there: bool = False
    error: TurnstateError | None = None


class ArchiveAgent:
    """Archive what it is given, batch after batch.

    Summaries are made and cleaned before anything leaves the process; calls
    that block run in a thread. A batch that fails leaves nothing, and is told
    with its error: whoever gave it gives it again. An error of the input (a
    bad batch id) is told the same way.

    Args:
        archive: Where to.
        rules: What goes into summaries.
        deidentifier: Cleans labels and values.
        clock: For the times in summaries, and for retention.
        keep_ms: How long a batch is kept; None = for ever.
    """

    def __init__(
        self,
        archive: Archive,
        *,
        rules: SummaryRules,
        deidentifier: Deidentifier,
        clock: Clock,
        keep_ms: int | None = None,
    ) -> None:
        self._archive = archive
        self._rules = rules
        self._deidentifier = deidentifier
        self._clock = clock
        self._keep_ms = keep_ms

    async def run(
        self, batches: AsyncIterator[ArchiveBatch]
    ) -> AsyncIterator[Archived]:
        """Archive batch after batch, and yield what became of each."""
        async for batch in batches:
            yield await self.archive(batch)

    async def archive(self, batch: ArchiveBatch) -> Archived:
        """Archive one batch: all of it or none."""
        return await asyncio.to_thread(self._archived, batch)

    async def expire(self) -> list[str]:
        """Remove the batches whose time is over; say which.

        Raises:
            UnavailableError: the store is away; repeat it.
        """
        return await asyncio.to_thread(self._archive.expire, self._clock.now_ms())

    async def sweep(self) -> None:
        """Remove what crashed writers have left.

        Raises:
            UnavailableError: the store is away; repeat it.
        """
        await asyncio.to_thread(self._archive.sweep, self._clock.now_ms())

    def _archived(self, batch: ArchiveBatch) -> Archived:
        now_ms = self._clock.now_ms()
        lines = [self._line(session, now_ms) for session in batch.sessions]
        size = sum(map(len, lines))
        try:
            is_new = self._archive.put(
                batch.batch_id,
                parts_of(lines),
                records=len(lines),
                now_ms=now_ms,
                expires_ms=None if self._keep_ms is None else now_ms + self._keep_ms,
            )
        except TurnstateError as error:
            return Archived(batch.batch_id, 0, 0, error=error)
        return Archived(batch.batch_id, len(lines), size, was_there=not is_new)

    def _line(self, session: ToArchive, now_ms: int) -> bytes:
        return encode_summary(
            summarise(
                session.name,
                session.stored,
                session.ops,
                session.phases,
                rules=self._rules,
                deidentifier=self._deidentifier,
                now_ms=now_ms,
            )
        )


def parts_of(lines: Sequence[bytes]) -> list[bytes]:
    r"""Return lines joined into parts, each of which ends with a whole line.

    Example:
        >>> parts_of([b"a\n", b"b\n"])
        [b'a\nb\n']
    """
    parts: list[bytes] = []
    part: list[bytes] = []
    size = 0
    for line in lines:
        part.append(line)
        size += len(line)
        if size >= PART_BYTES:
            parts.append(b"".join(part))
            part, size = [], 0
    if part:
        parts.append(b"".join(part))
    return parts
