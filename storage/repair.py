"""Repair one session: rows rebuilt in memory, checked, swapped in one batch."""

from collections.abc import Iterable, Iterator, Sequence

from turnstate.schemas.dialogue.head import digest
from turnstate.schemas.dialogue.turn_index import IdEntry
from turnstate.schemas.errors import CorruptDataError, FencedError
from turnstate.storage.frames.header import decode_header
from turnstate.storage.stored_head import StoredHead
from turnstate.storage.tier import SessionChange
from turnstate.storage.warm.batch import Batch
from turnstate.storage.warm.tables import (
    FRAMES,
    HEADS,
    INDEX,
    SEGMENTS,
    after_prefix,
    session_prefix,
)

FROM_BACKUP = "restore from a backup: turnstate restore"


class OneSession:
    """One session's rows in memory, as a store would keep them.

    What a session is folded into before anything stored is touched. Takes
    changes as every tier does: each must start from the version that is here,
    so that nothing is applied twice or skipped.

    Args:
        key: The session key.
    """

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.stored: StoredHead | None = None
        self.changes: list[SessionChange] = []
        self._ids: dict[str, IdEntry] = {}

    def heads(self, keys: Sequence[bytes]) -> list[StoredHead | None]:
        """Return the head, where it is asked for."""
        return [self.stored if key == self.key else None for key in keys]

    def ids(self, lookups: Sequence[tuple[bytes, int, str]]) -> list[IdEntry | None]:
        """Return what the turn index says."""
        life = self.stored.head.incarnation if self.stored else 1
        return [
            self._ids.get(turn_id) if incarnation == life else None
            for _, incarnation, turn_id in lookups
        ]

    def frames(
        self, key: bytes, incarnation: int, after_version: int
    ) -> Iterator[bytes]:
        """Yield the frames that lead above a version."""
        del key, incarnation
        for change in self.changes:
            frame = change.frame
            if frame is not None and decode_header(frame).to_version > after_version:
                yield frame

    def base(self, key: bytes, incarnation: int, sealed_version: int) -> bytes | None:
        """Return None: nothing here is sealed yet."""
        del key, incarnation, sealed_version
        return None

    def commit(self, changes: Iterable[SessionChange]) -> None:
        """Take changes that start from where this session stands.

        Raises:
            FencedError: one starts from another version.
        """
        for change in changes:
            here = self.stored.head if self.stored else None
            there = change.before.head
            if (here.version if here else 0) != there.version:
                raise FencedError("a change starts from another version")
            if change.erased:
                self.changes.clear()
                self._ids.clear()
            self.stored = change.after
            self.changes.append(change)
            self._ids.update(change.ids)


def stage_swap(batch: Batch, rebuilt: OneSession) -> None:
    """Put a rebuilt session in the place of whatever is stored of it."""
    prefix = session_prefix(rebuilt.key)
    batch.delete(HEADS, rebuilt.key)
    for table in (FRAMES, SEGMENTS, INDEX):
        batch.delete_range(table, prefix, after_prefix(prefix))
    for change in rebuilt.changes:
        # The rows of older lives are gone already.
        batch.stage(change._replace(erased=0))


def check_same(rebuilt: StoredHead | None, stored: StoredHead) -> None:
    """Check a rebuilt session against the head that it is to stand for.

    Raises:
        CorruptDataError: the log does not give what the head says was folded.
    """
    if rebuilt is not None and digest(rebuilt.head) == digest(stored.head):
        return
    raise CorruptDataError(
        f"the log gives another state than the head at version"
        f" {stored.head.version} says",
        hint=FROM_BACKUP,
    )


def contiguous(
    entries: Iterable[tuple[int, bytes]], begin: int, end: int
) -> Iterator[tuple[int, bytes]]:
    """Yield log entries, each offset once, in order and none left out.

    Raises:
        CorruptDataError: the log does not hold them all.

    Example:
        >>> [offset for offset, _ in contiguous([(3, b""), (4, b"")], 3, 5)]
        [3, 4]
    """
    wanted = begin
    for offset, record in entries:
        if offset >= end:
            break
        if offset != wanted:
            raise _hole(wanted, offset)
        yield offset, record
        wanted += 1
    if wanted < end:
        raise _hole(wanted, end)


def _hole(wanted: int, found: int) -> CorruptDataError:
    return CorruptDataError(
        f"the log holds no offset {wanted}, the next one is {found}", hint=FROM_BACKUP
    )
