"""Marks of erases in a store: what one is about, whose files have to be rewritten."""

from collections.abc import Iterator
from hashlib import blake2b
from typing import Final

import msgspec
from msgspec import Struct

from turnstate.schemas.errors import CorruptDataError
from turnstate.storage.warm.rows import RocksTables
from turnstate.storage.warm.tables import META

ERASED_KEY: Final = b"erased\0"
"""Rows of `META`, behind it a session key: the mark of its last erase. It comes
with the changelog, so whoever restores a partition has it, too."""

PURGED_KEY: Final = b"purged\0"
"""Rows of `META` of this store alone, likewise: the mark for which its files were
rewritten."""

JOB_BYTES: Final = 8
_WHO_BYTES: Final = 8


class Mark(Struct, array_like=True, frozen=True, gc=False):
    """How far the erase of a session has come.

    Attributes:
        job: Which erase; random.
        who: Hash of the user who is erased, empty where a session is.
        life: The life of the session that ends, or 0 where it goes on without
            what that user said.
        is_done: Whether every copy was cleaned.
    """

    job: bytes
    who: bytes
    life: int
    is_done: bool = False


_decode: Final = msgspec.msgpack.Decoder(Mark).decode
encode_mark: Final = msgspec.msgpack.Encoder().encode


def who_of(tenant: str, user: str | None) -> bytes:
    """Return what a mark says of a user: enough to find the erase again, no name.

    Example:
        >>> who_of("acme", None)
        b''
        >>> len(who_of("acme", "u-9"))
        8
    """
    if user is None:
        return b""
    told = f"{len(tenant)} {tenant}{user}".encode()
    return blake2b(told, digest_size=_WHO_BYTES, usedforsecurity=False).digest()


def marks(
    store: RocksTables, prefix: bytes = b""
) -> Iterator[tuple[bytes, bytes, Mark]]:
    """Yield (session key, row, mark) of every erase that a store knows of.

    Args:
        store: The store.
        prefix: What the session keys begin with.

    Raises:
        CorruptDataError: a row is damaged.
    """
    for at, row in store.rows(META, ERASED_KEY + prefix):
        try:
            yield at[len(ERASED_KEY) :], row, _decode(row)
        except msgspec.MsgspecError as error:
            raise CorruptDataError(f"the row {ERASED_KEY!r}: {error}") from error


def unpurged(store: RocksTables) -> dict[bytes, bytes]:
    """Return the sessions whose files were not rewritten yet: key → row of the mark."""
    return {
        key: row
        for key, row, _ in marks(store)
        if store.get(META, PURGED_KEY + key) != row
    }
