"""The contract of every place where session state rests, and its change records."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from turnstate.schemas.dialogue.turn_index import IdEntry
from turnstate.storage.session_image import SessionImage
from turnstate.storage.stored_head import StoredHead

KEEPS_ALL: Final = "keeps_all"
"""Capability: every version can be read, not only the last frames."""

HAS_INDEX: Final = "has_index"
"""Capability: turn ids can be looked up."""


class SessionChange(NamedTuple):
    """One session's part of a commit.

    Attributes:
        key: The session key.
        before: The head that this was decided from; another one in the tier
            means that someone else wrote: `FencedError`.
        after: The new head.
        row: `after` as it is stored, encoded once for every tier.
        frame: The frame with the operations between the two, if any.
        ids: Turn ids to enter, by id.
        asides: Versions of edits and redactions, found again when texts are read.
        base: A frame of kind head with the state that the frames since the
            last seal start from, where this is the first of them.
        erased: Everything up to this incarnation goes first, 0 = nothing.
        woken: All rows of the session as it lay in a colder tier, where it
            comes back with this change.
    """

    key: bytes
    before: StoredHead
    after: StoredHead
    row: bytes
    frame: bytes | None = None
    ids: Mapping[str, IdEntry] = {}
    asides: Sequence[int] = ()
    base: bytes | None = None
    erased: int = 0
    woken: SessionImage | None = None


class Tier(Protocol):
    """A place where session state rests. One suite holds for all of them.

    Keys are session keys; a tier never interprets text. Every method may
    raise `UnavailableError`, reads may raise `CorruptDataError`.
    """

    @property
    def name(self) -> str:
        """Return hot, warm or cold, as answers show it."""
        ...

    @property
    def capabilities(self) -> frozenset[str]:
        """Return which optional parts of the contract it keeps."""
        ...

    def heads(self, keys: Sequence[bytes]) -> list[StoredHead | None]:
        """Return the heads of many sessions at once, None for each unknown."""
        ...

    def frames(
        self, key: bytes, incarnation: int, after_version: int
    ) -> Iterator[bytes]:
        """Yield segments and frames that lead above a version, in order.

        They may overlap after a crash; a reader skips what it has.
        """
        ...

    def commit(self, changes: Sequence[SessionChange]) -> None:
        """Take all of the changes or none.

        Raises:
            FencedError: a head is not the one that a change was decided from.
        """
        ...

    def drop(self, key: bytes) -> None:
        """Forget a session; another tier keeps it or it was erased."""
        ...

    def keys(self, prefix: bytes = b"", after: bytes = b"") -> Iterator[bytes]:
        """Yield session keys in byte order, from above `after`."""
        ...
