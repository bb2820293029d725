"""What an agent may ask for; doors and tests provide it."""

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Protocol

from msgspec import Struct

from turnstate.schemas.dialogue.turn_index import IdEntry
from turnstate.schemas.errors import InvalidInputError, TurnstateError
from turnstate.schemas.position import Position
from turnstate.storage.session_image import SessionImage
from turnstate.storage.stored_head import StoredHead


class Record(Struct, frozen=True, gc=False):
    """One record of a log: bytes that may or may not be a turn.

    Attributes:
        raw: A turn as JSON or protobuf, or a recorded operation (first byte 0x93).
        position: Where it lies.
        attempt: How often it was redriven.
        refusal: The door could not even pass it on whole: why.
        trusted: It comes through one of our own doors, which may bring recorded
            operations; a producer's bytes of that form are no turn.
        key: The key of the record, where its log has keys.
        content_type: What the sender says that `raw` is; None = its first byte
            tells (see `draft_from_bytes`).
    """

    raw: bytes
    position: Position
    attempt: int = 0
    refusal: InvalidInputError | None = None
    trusted: bool = False
    key: bytes | None = None
    content_type: str | None = None


class Clock(Protocol):
    """Tell the time; only doors own a real one."""

    def now_ms(self) -> int:
        """Return epoch milliseconds."""
        ...


class Store(Protocol):
    """What the session agent reads; everything it writes it gives back."""

    def heads(self, keys: Sequence[bytes]) -> list[StoredHead | None]:
        """Return the heads of many sessions."""
        ...

    def ids(self, lookups: Sequence[tuple[bytes, int, str]]) -> list[IdEntry | None]:
        """Return turn index entries of (session key, incarnation, turn id)s."""
        ...

    def frames(
        self, key: bytes, incarnation: int, after_version: int
    ) -> Iterator[bytes]:
        """Yield segments and frames that lead above a version."""
        ...

    def base(self, key: bytes, incarnation: int, sealed_version: int) -> bytes | None:
        """Return the state that the frames since the last seal start from."""
        ...


class Colder(Protocol):
    """Where sessions lie that the store has only a pointer of."""

    def images(
        self, keys: Sequence[bytes]
    ) -> tuple[dict[bytes, SessionImage], dict[bytes, TurnstateError]]:
        """Return those of the sessions that are cold, and what cannot be had."""
        ...


Batches = AsyncIterator[Sequence[Record]]
"""Where records come from: Faust feeds a topic, replay a recording, a test a list."""
