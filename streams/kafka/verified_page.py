"""Verify a few sessions of a partition while it is in use, and say where to go on."""

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from turnstate.schemas.errors import (
    CorruptDataError,
    InvalidInputError,
    TurnstateError,
    UnavailableError,
)
from turnstate.schemas.ids import checked_id, tenant_prefix
from turnstate.storage.session_keys import owners
from turnstate.storage.stored_head import (
    StoredHead,
    decode_stored_head,
    encode_stored_head,
)
from turnstate.storage.verify import COLD, WARM, Fault, Verified, verify_session
from turnstate.storage.warm.cold_rows import ColdHead, cold_head
from turnstate.storage.warm.tables import (
    FRAMES,
    HEADS,
    INDEX,
    SEGMENTS,
    session_prefix,
)
from turnstate.streams.documents import Document
from turnstate.streams.embedded.verification import fault_document
from turnstate.streams.kafka.partition import Partition
from turnstate.streams.kafka.queries import VerifyQuery

WALK: Final = (HEADS, FRAMES, SEGMENTS, INDEX)
"""The order of the tables; in all but the first only a lost head is looked for."""

_TRIES: Final = 4
_PAUSE_S: Final = 0.005

Calmly = Callable[[Callable[[], Any]], Any]
"""Does something while nothing is folded, and returns what it returns."""


class VerifiedPage:
    """Check sessions of one partition until the page is over.

    Args:
        partition: Whose they are.
        calmly: Does something while nothing is folded.
        is_over: Asked after each session.
    """

    def __init__(
        self, partition: Partition, calmly: Calmly, is_over: Callable[[], bool]
    ) -> None:
        self._partition = partition
        self._calmly = calmly
        self._is_over = is_over
        self._sessions = self._frames = self._versions = 0
        self._faults: list[Fault] = []

    def run(self, query: VerifyQuery) -> Document:
        """Check from where the query says.

        Raises:
            InvalidInputError: there is no such table.
        """
        if query.table not in WALK:
            raise InvalidInputError(f"there is no table {query.table!r}", field="table")
        prefix = b""
        if query.tenant is not None:
            prefix = tenant_prefix(checked_id(query.tenant, "tenant"))
        following = self._walk(query.table, prefix, query.after)
        return {
            "sessions": self._sessions,
            "frames": self._frames,
            "versions": self._versions,
            "bad": list(map(fault_document, self._faults)),
            "next": following,
        }

    def _walk(
        self, table: str, prefix: bytes, after: bytes
    ) -> tuple[str, bytes] | None:
        """Check; return the table and the key to go on after."""
        for key in self._keys(table, prefix, after):
            if table == HEADS or self._is_lost(table, key):
                self._session(key)
            if self._is_over():
                return table, key
        place = WALK.index(table) + 1
        return (WALK[place], b"") if place < len(WALK) else None

    def _is_lost(self, table: str, key: bytes) -> bool:
        """Say whether a session has no head, and no rows in a table before this."""
        store, prefix = self._partition.store, session_prefix(key)
        return store.stored(HEADS, key) is None and not any(
            next(store.stored_rows(before, prefix), None)
            for before in WALK[1 : WALK.index(table)]
        )

    def _keys(self, table: str, prefix: bytes, after: bytes) -> Iterator[bytes]:
        store = self._partition.store
        try:
            if table == HEADS:
                yield from store.keys(prefix, after)
                return
            for key in owners(store, table, self._unreadable, after):
                if key.startswith(prefix):
                    yield key
        except CorruptDataError as error:
            self._unreadable(table, error)

    def _unreadable(self, table: str, error: CorruptDataError) -> None:
        self._faults.append(Fault(None, table, None, str(error)))

    def _session(self, key: bytes) -> None:
        found = self._verified(key)
        self._sessions += 1
        self._frames += found.frames
        self._versions += found.versions
        self._faults += found.faults

    def _verified(self, key: bytes) -> Verified:
        """Verify one session; where a checkpoint came between, again."""
        try:
            (found_at,) = self._partition.store.located([key])
        except TurnstateError as error:
            return Verified(0, 0, [Fault(key, WARM, None, str(error))])
        if isinstance(found_at, ColdHead):
            return self._cold(key, found_at)
        for _ in range(_TRIES):
            found = self._as_it_stands(key)
            if not found.faults:
                return found
            time.sleep(_PAUSE_S)
        # What is still wrong while nothing is folded is wrong.
        last: Verified = self._calmly(lambda: self._as_it_stands(key))
        return last

    def _cold(self, key: bytes, cold: ColdHead) -> Verified:
        """Verify a session that lies in a pack, and what its pointer says of it.

        Raises:
            UnavailableError: the cold tier is away: that says nothing of what is
                there.
        """
        partition = self._partition
        found, failed = partition.store.images([key])
        (now,) = partition.store.located([key])
        if now != cold:
            return self._verified(key)  # it has come back, or gone elsewhere
        if isinstance(failed.get(key), UnavailableError):
            raise failed[key]
        image = found.get(key)
        if image is None:
            why = str(failed.get(key, "its image is not there"))
            return Verified(0, 0, [Fault(key, COLD, cold.version, why)])
        stored = decode_stored_head(image.row)
        checked = verify_session(partition.store, key, stored, partition.graph, image)
        if cold_head(stored, cold.pointer, cold.cooled_ms) != cold:
            why = "its pointer says other things than its image"
            checked.faults.append(Fault(key, COLD, cold.version, why))
        return checked

    def _as_it_stands(self, key: bytes) -> Verified:
        partition = self._partition
        try:
            (stored,) = partition.store.located([key])
        except TurnstateError as error:
            return Verified(0, 0, [Fault(key, WARM, None, str(error))])
        if stored is None:
            why = "there are rows of the session and no head"
            return Verified(0, 0, [Fault(key, WARM, None, why)])
        if isinstance(stored, ColdHead):
            # On the worker's loop it is not looked at: the tier may be away.
            return Verified(0, 0, [])
        found = verify_session(partition.store, key, stored, partition.graph)
        held = partition.hot.peek(key)
        if held is not None and not _agree(held, stored):
            why = "the hot tier holds another state than the warm one"
            found.faults.append(Fault(key, "hot", held.head.version, why))
        return found


def _agree(held: StoredHead, stored: StoredHead) -> bool:
    return held is stored or encode_stored_head(held) == encode_stored_head(stored)
