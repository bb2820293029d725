"""Archive summaries of some sessions: cleaned first, then all of them or none."""

from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

from turnstate.agents.archive.deidentify import Deidentifier
from turnstate.agents.archive.summary import (
    SummaryRules,
    encode_summary,
    phases_along,
    summarise,
)
from turnstate.agents.ports import Clock, Store
from turnstate.schemas.dialogue.phases import DialogueGraph
from turnstate.schemas.ids import SessionName
from turnstate.schemas.operation import Op
from turnstate.storage.archive import Archive
from turnstate.storage.session_reader import fold_all, operations
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


def to_archive(
    store: Store, key: bytes, stored: StoredHead, graph: DialogueGraph
) -> ToArchive:
    """Return what is to be archived of a session, out of the store that has it.

    Raises:
        CorruptDataError: it cannot be read: repair it first.
    """
    ops = [op for _, op in operations(store, key, stored)]
    states = fold_all(store, key, stored, graph).states
    return ToArchive(
        SessionName.from_key(key), stored, ops, phases_along(ops, states)
    )


class Archived(NamedTuple):
    """What became of a batch.

    Attributes:
        batch_id: Names it.
        sessions: How many summaries it has.
        bytes: Of all of them.
        was_there: It was archived before.
    """

    batch_id: str
    sessions: int
    bytes: int
    was_there: bool = False


class Archiver:
    """Archive what it is given, all of it or none; blocks.

    Summaries are made and cleaned before anything leaves the process.

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

    def archive(self, sessions: Sequence[ToArchive]) -> Archived:
        """Archive some sessions as one batch; the same ones again are there already.

        Raises:
            UnavailableError: the archive is away; nothing of it is archived.
            CorruptDataError: the archive is damaged; likewise.
        """
        now_ms = self._clock.now_ms()
        batch_id = batch_id_of(sessions)
        lines = [self._line(session, now_ms) for session in sessions]
        is_new = self._archive.put(
            batch_id,
            parts_of(lines),
            records=len(lines),
            now_ms=now_ms,
            expires_ms=None if self._keep_ms is None else now_ms + self._keep_ms,
        )
        size = sum(map(len, lines))
        return Archived(batch_id, len(lines), size, was_there=not is_new)

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


def batch_id_of(sessions: Sequence[ToArchive]) -> str:
    """Return the name of a batch: that of its sessions, as they stand."""
    hashed = blake2b(digest_size=16)
    for each in sessions:
        head = each.stored.head
        key = each.name.key()
        hashed.update(len(key).to_bytes(2, "big") + key)
        hashed.update(b"%d %d;" % (head.incarnation, head.version))
    return hashed.hexdigest()


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
