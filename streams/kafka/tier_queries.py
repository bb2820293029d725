"""What a job asks of a worker to move sessions: arguments with types and bounds."""

from typing import Annotated

from msgspec import Meta, Struct

from turnstate.storage.cold.pointer import Pointer
from turnstate.storage.moves.journal import Plan
from turnstate.storage.moves.owner import Copied

ITEMS_MAX = 64
"""Of one request: each one is done between two rounds."""

_Partition = Annotated[int, Meta(ge=0)]
_Token = Annotated[int, Meta(ge=0)]


class _TierQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    partition: _Partition


class FillsQuery(_TierQuery, kw_only=True):
    """For how full the tiers of a partition's worker are."""


class FactsQuery(_TierQuery, kw_only=True):
    """For a page of what the policy is told.

    Attributes:
        after: The `next` of the page before.
    """

    after: bytes = b""


class FactQuery(_TierQuery, kw_only=True):
    """For what the policy is told of one session."""

    key: bytes


class PlansQuery(_TierQuery, kw_only=True):
    """About some moves."""

    plans: Annotated[list[Plan], Meta(max_length=ITEMS_MAX)]


class FlipQuery(_TierQuery, kw_only=True):
    """To point to copies.

    Attributes:
        copied: They, verified.
        token: The fencing token of the job.
    """

    copied: Annotated[list[Copied], Meta(max_length=ITEMS_MAX)]
    token: _Token


class KeysQuery(_TierQuery, kw_only=True):
    """About some sessions."""

    keys: Annotated[list[bytes], Meta(max_length=ITEMS_MAX)]


class ArchiveQuery(KeysQuery, kw_only=True):
    """To archive sessions before they are erased.

    Attributes:
        wanted: The job is set to archive: a worker that is not has to say so.
    """

    wanted: bool = False


class RepointQuery(_TierQuery, kw_only=True):
    """To point to copies that a compaction made."""

    moved: Annotated[
        list[tuple[bytes, Pointer, Pointer]], Meta(max_length=ITEMS_MAX)
    ]
    token: _Token


class PointersQuery(FactsQuery, kw_only=True):
    """For a page of pointers.

    Attributes:
        token: Of a job that acts on them: no earlier one changes any from here on.
    """

    token: _Token | None = None


class UnfinishedQuery(_TierQuery, kw_only=True):
    """For moves that were planned before a moment and are not done."""

    before_ms: int
