"""What lists say of a session, wherever it lies, without reading it."""

from typing import Literal, NamedTuple

from turnstate.schemas.dialogue.head import digest
from turnstate.schemas.position import Position
from turnstate.storage.stored_head import StoredHead
from turnstate.storage.warm.cold_rows import ColdHead


class SessionRow(NamedTuple):
    """The facts of one session.

    Attributes:
        tier: hot, warm or cold.
        incarnation: Which life of the session.
        version: Of its head.
        turn_count: Of its state.
        digest: Of its state.
        text_bytes: UTF-8 bytes of content and tool arguments.
        arrived_ms: When its last operation arrived.
        moved_ms: When it was moved to where it is, 0 = it began there.
        position: The log position folded last.
        owner: The first user that it named.
        is_sealed: Whether all of it lies in segments.
        is_tombstone: Whether nothing was said since an erase.
    """

    tier: Literal["hot", "warm", "cold"]
    incarnation: int
    version: int
    turn_count: int
    digest: bytes
    text_bytes: int
    arrived_ms: int
    moved_ms: int
    position: Position | None
    owner: str | None
    is_sealed: bool
    is_tombstone: bool


def session_row(found: StoredHead | ColdHead, *, is_hot: bool = False) -> SessionRow:
    """Return the facts of a session out of its head, or of its pointer."""
    if isinstance(found, ColdHead):
        return SessionRow(
            "cold",
            found.incarnation,
            found.version,
            found.turn_count,
            found.digest,
            found.text_bytes,
            found.arrived_ms,
            found.cooled_ms,
            found.position,
            found.owner,
            is_sealed=True,
            is_tombstone=False,
        )
    return SessionRow(
        "hot" if is_hot else "warm",
        found.head.incarnation,
        found.head.version,
        found.head.turn_count,
        digest(found.head),
        found.text_bytes,
        found.arrived_ms,
        found.woken_ms,
        found.position,
        found.owner,
        is_sealed=found.sealed_version == found.head.version,
        is_tombstone=found.is_tombstone,
    )
