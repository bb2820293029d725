"""What an erase asks of a worker, and is told: with types and bounds."""

from typing import Annotated

from msgspec import Meta, Struct

from turnstate.schemas.clocks import Dot
from turnstate.storage.warm.erase_marks import Mark

KEYS_MAX = 64
"""Sessions of one request: what is asked is done between two rounds."""

RECORDS_MAX = 4096
"""Records of a changelog that one request buries."""

_Partition = Annotated[int, Meta(ge=0)]
_Life = Annotated[int, Meta(ge=0, le=1 << 55)]
_Lives = Annotated[list[tuple[bytes, _Life]], Meta(max_length=KEYS_MAX)]
_Keys = Annotated[list[bytes], Meta(max_length=KEYS_MAX)]


class _EraseQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    partition: _Partition


class ErasePlanQuery(_EraseQuery, kw_only=True):
    """For a page of the sessions that an erase is about.

    Attributes:
        tenant: Of them.
        user: Who is erased; None = the sessions `keys` are.
        keys: Sessions by name.
        after: The `next` of the page before.
    """

    tenant: str
    user: str | None = None
    keys: _Keys = []
    after: bytes = b""


class Found(Struct, array_like=True):
    """A session that an erase is about.

    Attributes:
        key: The session key.
        incarnation: The life that it is in.
        is_over: Whether that life began by an erase and nothing was said since.
        is_whole: Whether all of it goes; otherwise what the user said in it.
        turn_count: Of its state.
        spoken: Turns of the user that are not redacted yet.
        is_left: An earlier erase has not come to its end with it.
    """

    key: bytes
    incarnation: int
    is_over: bool
    is_whole: bool
    turn_count: int = 0
    spoken: list[Dot] = []
    is_left: bool = False


class EraseMarkQuery(_EraseQuery, kw_only=True):
    """To note how far the erase of some sessions has come."""

    marks: Annotated[list[tuple[bytes, Mark]], Meta(max_length=KEYS_MAX)]


class EraseRewriteQuery(_EraseQuery, kw_only=True):
    """To take out of a session what is redacted, and what a user said."""

    key: bytes
    user: str | None = None


class EraseHotQuery(_EraseQuery, kw_only=True):
    """To end lives in the hot tier, and to forget other sessions there.

    Attributes:
        lives: (session key, its last life that is over).
        rewritten: Sessions that go on.
    """

    lives: _Lives = []
    rewritten: _Keys = []


class EraseKeysQuery(_EraseQuery, kw_only=True):
    """To destroy the data keys of ended lives.

    Attributes:
        job: Of the erase.
        lives: (session key, its last life that is over).
    """

    job: bytes
    lives: _Lives


class EraseBuryQuery(_EraseQuery, kw_only=True):
    """To bury records of the changelog that nobody needs."""

    records: Annotated[list[bytes], Meta(max_length=RECORDS_MAX)]


class ErasePurgeQuery(_EraseQuery, kw_only=True):
    """To rewrite the files that held what an erase took out."""

    job: bytes


class EraseScanQuery(EraseHotQuery, kw_only=True):
    """To count the rows of sessions, and those that have to be gone."""

    user: str | None = None


class EraseFoldersQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    """To remove what a worker still has of partitions that are others'."""

    partitions: list[_Partition]
