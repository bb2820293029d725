"""Verify a whole embedded store, while it is in use, past any damage."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from turnstate.agents.dead_letters import decode_dead_letter
from turnstate.schemas.errors import (
    InvalidInputError,
    TurnstateError,
    UnavailableError,
)
from turnstate.schemas.ids import SessionName, tenant_prefix
from turnstate.storage.session_keys import every_key
from turnstate.storage.stored_head import (
    StoredHead,
    decode_stored_head,
    encode_stored_head,
)
from turnstate.storage.verify import Fault, Verified, verify_session
from turnstate.storage.warm.cold_rows import ColdHead, cold_head
from turnstate.storage.warm.tables import DEAD, LOG
from turnstate.streams.documents import Document
from turnstate.streams.embedded.fell_behind import behind

if TYPE_CHECKING:
    from turnstate.streams.embedded.store import EmbeddedStore

_READ_TRIES: Final = 4

Progress = Callable[[int], None]
"""Is told how many sessions are done."""


class Checked:
    """One verification of a store, and what came of it.

    Attributes:
        sessions: Sessions that were looked at.
        frames: Frames and segments that were read.
        versions: Operations that were folded again.
        faults: What is wrong.
        late: Sessions that are whole but fell behind the log: key → offset.
        erased: Sessions that are here in ciphertext alone: their key is destroyed.
        erased_records: Records of the log of which the same holds.
    """

    def __init__(self, store: "EmbeddedStore", tenant: str | None) -> None:
        self.store = store
        self.tenant = tenant
        self.sessions = self.frames = self.versions = 0
        self.erased = self.erased_records = 0
        self.faults: list[Fault] = []
        self.late: dict[bytes, int] = {}

    def run(self) -> Iterator[int]:
        """Verify; yield the number of sessions that are done."""
        prefix = b"" if self.tenant is None else tenant_prefix(self.tenant)
        for key in every_key(self.store.warm, prefix, self._unreadable):
            found = self._session(key)
            self.erased += self._is_erased(key)
            self.sessions += 1
            self.frames += found.frames
            self.versions += found.versions
            self.faults += found.faults
            yield self.sessions
        self._behind()
        if self.tenant is None:
            self._others()

    def _is_erased(self, key: bytes) -> bool:
        try:
            return self.store.warm.is_erased(key)
        except TurnstateError:
            return False  # what is damaged was told where the session was read

    def _unreadable(self, table: str, error: TurnstateError) -> None:
        self.faults.append(Fault(None, table, None, str(error)))

    def _session(self, key: bytes) -> Verified:
        """Verify one session; where a commit came between, again."""
        for _ in range(_READ_TRIES):
            found, stored = self._as_it_stands(key)
            if not found.faults:
                return found
            if self._head(key) == stored:
                break
        # What is still wrong while nobody writes is wrong.
        last: tuple[Verified, StoredHead | None] = self.store.engine.call(
            partial(self._as_it_stands, key)
        ).result()
        return last[0]

    def _head(self, key: bytes) -> StoredHead | None:
        try:
            return self.store.warm.heads([key])[0]
        except TurnstateError:
            return None

    def _as_it_stands(self, key: bytes) -> tuple[Verified, StoredHead | None]:
        warm, hot = self.store.warm, self.store.engine.hot
        try:
            (located,) = warm.located([key])
        except TurnstateError as error:
            return Verified(0, 0, [Fault(key, "warm", None, str(error))]), None
        if located is None:
            why = "there are rows of the session and no head"
            return Verified(0, 0, [Fault(key, "warm", None, why)]), None
        if isinstance(located, ColdHead):
            return self._cold(key, located)
        stored = located
        found = verify_session(warm, key, stored, self.store.graph)
        held = hot.peek(key)
        if held is not None and held is not stored and not _agree(held, stored):
            why = "the hot tier holds another state than the warm one"
            found.faults.append(Fault(key, "hot", held.head.version, why))
        return found, stored

    def _cold(self, key: bytes, cold: ColdHead) -> tuple[Verified, StoredHead | None]:
        """Verify a session that lies in a pack, and what its pointer says of it."""
        found, failed = self.store.warm.images([key])
        if isinstance(failed.get(key), UnavailableError):
            # That it cannot be looked at says nothing of what is there.
            raise failed[key]
        if key in failed:
            return Verified(0, 0, [Fault(key, "cold", None, str(failed[key]))]), None
        image = found.get(key)
        if image is None:
            return Verified(0, 0, []), None
        stored = decode_stored_head(image.row)
        checked = verify_session(self.store.warm, key, stored, self.store.graph, image)
        if cold_head(stored, cold.pointer, cold.cooled_ms) != cold:
            why = "its pointer says other things than its image"
            checked.faults.append(Fault(key, "cold", cold.version, why))
        return checked, stored

    def _behind(self) -> None:
        """Look for sessions to which the log would still add something."""
        store, engine = self.store, self.store.engine
        prefix = b"" if self.tenant is None else tenant_prefix(self.tenant)
        damaged = [fault.key for fault in self.faults if fault.key is not None]

        def lacking(keys: Sequence[bytes] | None) -> dict[bytes, int]:
            return behind(
                store.warm,
                engine.log,
                store.graph,
                store.clock,
                wanted=keys,
                skipped=damaged,
            )

        try:
            found = lacking(None)
            if found:
                # A turn that came meanwhile is no loss: look while nobody writes.
                found = engine.call(partial(lacking, list(found))).result()
        except TurnstateError as error:
            self.faults.append(
                Fault(None, LOG, None, f"it cannot be folded again: {error}")
            )
            return
        for key, offset in sorted(found.items()):
            if key.startswith(prefix):
                self.late[key] = offset
                why = f"the log goes on for it at offset {offset}: it fell behind"
                self.faults.append(Fault(key, "warm", None, why))

    def _others(self) -> None:
        """Check the tables that are no session's: log and dead letters."""
        for why in self.store.engine.log.faults():
            self.faults.append(Fault(None, LOG, None, why))
        try:
            self.erased_records = self.store.engine.log.erased()
            for at, row in self.store.warm.rows(DEAD):
                self._letter(at, row)
        except TurnstateError as error:
            self._unreadable(DEAD, error)

    def _letter(self, at: bytes, row: bytes) -> None:
        try:
            decode_dead_letter(row)
        except TurnstateError as error:
            why = f"dead letter {int.from_bytes(at, 'big')}: {error}"
            self.faults.append(Fault(None, DEAD, None, why))


def fault_document(fault: Fault) -> Document:
    """Return a row of `bad`; one that is no session's has no names."""
    name: SessionName | None = None
    if fault.key is not None:
        try:
            name = SessionName.from_key(fault.key)
        except InvalidInputError:
            name = None
    return {
        "tenant": name and name.tenant,
        "session": name and name.session,
        "tier": fault.tier,
        "version": fault.version,
        "why": fault.why,
    }


def _agree(held: StoredHead, stored: StoredHead) -> bool:
    return encode_stored_head(held) == encode_stored_head(stored)
