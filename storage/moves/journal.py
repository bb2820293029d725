"""What is planned of moves, kept until they are done, so that none is half made."""

import hashlib
from collections.abc import Iterator
from typing import Final

import msgspec
from msgspec import Struct

from turnstate.schemas.errors import CorruptDataError
from turnstate.storage.warm.batch import Batch
from turnstate.storage.warm.rows import RocksTables
from turnstate.storage.warm.tables import MOVES

HOT: Final = "hot"
WARM: Final = "warm"
COLD: Final = "cold"


class Plan(Struct, array_like=True, frozen=True, gc=False):
    """One session that is to go from one tier to another.

    Attributes:
        key: The session key.
        incarnation: Which life of the session.
        version: The version that goes; one that has moved on stays.
        source: The tier that it leaves.
        target: The tier that it goes to.
        planned_ms: When.
        why: What the policy says of it.
        size: About how many bytes go.
    """

    key: bytes
    incarnation: int
    version: int
    source: str
    target: str
    planned_ms: int
    why: str = ""
    size: int = 0

    @property
    def id(self) -> bytes:
        """Return what names it: the same move planned twice is one.

        Example:
            >>> Plan(b"k", 1, 7, WARM, COLD, 1).id == Plan(b"k", 1, 7, WARM, COLD, 2).id
            True
        """
        named = _encode((self.key, self.incarnation, self.version, self.source))
        return hashlib.blake2b(
            named + self.target.encode(), digest_size=16, usedforsecurity=False
        ).digest()

    @property
    def path(self) -> str:
        """Return from where to where, as reports name it."""
        return f"{self.source}>{self.target}"


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Plan).decode


def stage_plan(batch: Batch, plan: Plan) -> None:
    """Put in that a move is planned; only this store needs to know."""
    batch.put_local(MOVES, plan.id, _encode(plan))


def stage_done(batch: Batch, plan: Plan) -> None:
    """Put in that a move is done, or given up."""
    batch.delete_local(MOVES, plan.id)


def pending(store: RocksTables) -> Iterator[Plan]:
    """Yield the moves that are planned and not done.

    Raises:
        CorruptDataError: a row is damaged.
    """
    for _, row in store.rows(MOVES):
        try:
            yield _decode(row)
        except msgspec.MsgspecError as error:
            raise CorruptDataError(f"the journal of moves: {error}") from error
