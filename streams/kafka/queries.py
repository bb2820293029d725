"""What may be asked of a worker: each method, its arguments with types and bounds."""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta, Struct

from turnstate.schemas.errors import InvalidInputError
from turnstate.schemas.operation import MAIN
from turnstate.storage.session_image import EncodedImage
from turnstate.streams.embedded.methods import (
    DOCUMENT,
    FACT,
    HEAD,
    KEYS,
    PLANS,
    Form,
    Method,
)
from turnstate.streams.kafka.backup_queries import BackupQuery, BackupStateQuery
from turnstate.streams.kafka.erase_queries import (
    EraseBuryQuery,
    EraseFoldersQuery,
    EraseHotQuery,
    EraseKeysQuery,
    EraseMarkQuery,
    ErasePlanQuery,
    ErasePurgeQuery,
    EraseRewriteQuery,
    EraseScanQuery,
)
from turnstate.streams.kafka.tier_queries import (
    ArchiveQuery,
    FactQuery,
    FactsQuery,
    FillsQuery,
    FlipQuery,
    KeysQuery,
    PlansQuery,
    PointersQuery,
    RepointQuery,
    UnfinishedQuery,
)

SCHEME: Final = "turnstate"
"""Of a worker's address in the group's metadata."""

PAGE_ROWS: Final = 1000

Count = Annotated[int, Meta(ge=0, le=1 << 62)]
Limit = Annotated[int, Meta(ge=1, le=1 << 40)]

_Query = TypeVar("_Query", bound=Struct)


class SessionQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    """About one session."""

    tenant: str
    session: str


class HeadQuery(SessionQuery, kw_only=True):
    """About a session at a version."""

    version: Count | None = None


class BranchQuery(HeadQuery, kw_only=True):
    """About a branch of a session at a version."""

    branch: str = MAIN


class StateQuery(BranchQuery, kw_only=True):
    """For the state of a branch.

    Attributes:
        hot_hits: Hot was asked in vain before; since it last told, this reader
            was answered there so often. None = it was not asked.
    """

    hot_hits: Count | None = None


class TurnsQuery(BranchQuery, kw_only=True):
    """For a page of turns."""

    at: Count = 0
    limit: Limit = PAGE_ROWS


class ContextQuery(BranchQuery, kw_only=True):
    """For messages that fit a budget."""

    budget_tokens: int
    complete_open_calls: bool = False


class ReachQuery(SessionQuery, kw_only=True):
    """For an answer once the session, or the log, is as far as said."""

    at_least: Count | str
    timeout_ms: Count = 5000


class PageQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    """For a page of what a partition has.

    Attributes:
        partition: Which one.
        tenant: Only this tenant's sessions.
        after: The `next` of the page before.
    """

    partition: Count
    tenant: str | None = None
    after: bytes = b""


class SessionsQuery(PageQuery, kw_only=True):
    """For a page of the list of sessions."""

    tier: str | None = None
    prefix: str = ""
    limit: Limit = PAGE_ROWS


class VerifyQuery(PageQuery, kw_only=True):
    """For a page of a verification; after the heads come the other tables."""

    table: str = "heads"


class NoQuery(Struct, forbid_unknown_fields=True):
    """For what has no arguments."""


_IMAGES: Final = list[tuple[bytes, EncodedImage | None]]


def _same(value: Any) -> Any:
    return value


PAGE: Final = Form(_same, _same)
"""Plain values and bytes, as MessagePack carries them."""

IMAGES: Final = Form(
    _same, partial(msgspec.convert, type=_IMAGES, builtin_types=(bytes,))
)


def _asked(name: str, kind: type[_Query]) -> Callable[..., Any]:
    def call(reads: Any, **arguments: Any) -> Any:
        return getattr(reads, name)(_query(name, kind, arguments))

    return call


def _moved(name: str, kind: type[_Query]) -> Callable[..., Any]:
    def call(reads: Any, **arguments: Any) -> Any:
        return reads.tier(name, _query(f"tier_{name}", kind, arguments))

    return call


def _backed_up(name: str, kind: type[_Query]) -> Callable[..., Any]:
    def call(reads: Any, **arguments: Any) -> Any:
        return reads.backup(name, _query(f"backup_{name}", kind, arguments))

    return call


def _erased(name: str, kind: type[_Query]) -> Callable[..., Any]:
    def call(reads: Any, **arguments: Any) -> Any:
        return reads.erase(name, _query(f"erase_{name}", kind, arguments))

    return call


def _query(name: str, kind: type[_Query], arguments: dict[str, Any]) -> _Query:
    try:
        return msgspec.convert(arguments, kind, builtin_types=(bytes,))
    except msgspec.ValidationError as error:
        raise InvalidInputError(
            f"{name} cannot be asked so: {error}", code="bad_request"
        ) from error


QUERIES: Final[dict[str, Method]] = {
    "state": Method(_asked("state", StateQuery), DOCUMENT),
    "turns": Method(_asked("turns", TurnsQuery), DOCUMENT),
    "history": Method(_asked("history", SessionQuery), DOCUMENT),
    "context": Method(_asked("context", ContextQuery), DOCUMENT),
    "head": Method(_asked("head", HeadQuery), HEAD),
    "reach": Method(_asked("reach", ReachQuery), DOCUMENT),
    "sessions": Method(_asked("sessions", SessionsQuery), PAGE),
    "stats": Method(_asked("stats", PageQuery), PAGE),
    "verify": Method(_asked("verify", VerifyQuery), PAGE),
    "positions": Method(_asked("positions", NoQuery), PAGE),
    "tier_facts": Method(_moved("facts", FactsQuery), PAGE),
    "tier_facts_of": Method(_moved("facts_of", FactQuery), FACT),
    "tier_fills": Method(_moved("fills", FillsQuery), PAGE),
    "tier_pointers": Method(_moved("pointers", PointersQuery), PAGE),
    "tier_unfinished": Method(_moved("unfinished", UnfinishedQuery), PLANS),
    "tier_plan": Method(_moved("plan", PlansQuery), DOCUMENT),
    "tier_images": Method(_moved("images", PlansQuery), IMAGES),
    "tier_flip": Method(_moved("flip", FlipQuery), KEYS),
    "tier_release": Method(_moved("release", PlansQuery), KEYS),
    "tier_fill": Method(_moved("fill", PlansQuery), KEYS),
    "tier_warm": Method(_moved("warm", KeysQuery), KEYS),
    "tier_repoint": Method(_moved("repoint", RepointQuery), KEYS),
    "tier_archive": Method(_moved("archive", ArchiveQuery), PAGE),
    "tier_give_up": Method(_moved("give_up", PlansQuery), DOCUMENT),
    "erase_plan": Method(_erased("plan", ErasePlanQuery), PAGE),
    "erase_mark": Method(_erased("mark", EraseMarkQuery), PAGE),
    "erase_rewrite": Method(_erased("rewrite", EraseRewriteQuery), PAGE),
    "erase_hot": Method(_erased("hot", EraseHotQuery), PAGE),
    "erase_keys": Method(_erased("keys", EraseKeysQuery), PAGE),
    "erase_bury": Method(_erased("bury", EraseBuryQuery), PAGE),
    "erase_purge": Method(_erased("purge", ErasePurgeQuery), PAGE),
    "erase_scan": Method(_erased("scan", EraseScanQuery), PAGE),
    "erase_folders": Method(_erased("folders", EraseFoldersQuery), PAGE),
    "backup_start": Method(_backed_up("start", BackupQuery), PAGE),
    "backup_state": Method(_backed_up("state", BackupStateQuery), PAGE),
}
"""Every method by the name under which both sides know it."""
