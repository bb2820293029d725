"""Let sessions go whose time is over: archive what law wants kept, erase the rest."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from turnstate.agents.archive.archiving import to_archive
from turnstate.schemas.ids import SessionName
from turnstate.storage.stored_head import StoredHead
from turnstate.streams.documents import Document
from turnstate.streams.embedded.erase import erase_sessions
from turnstate.streams.tiers import archiving

if TYPE_CHECKING:
    from turnstate.streams.embedded.store import EmbeddedStore

BATCH_SESSIONS: Final = 500
"""Summaries that come in together or not at all."""


def expire(
    store: "EmbeddedStore",
    keys: Sequence[bytes],
    versions: Sequence[int] | None = None,
) -> Document:
    """Erase sessions, each archived before where the settings name an archive.

    Repeating it changes nothing: the same sessions are the same batch.

    Args:
        store: The store.
        keys: The sessions.
        versions: What each was at when it was found to have expired; one that
            has gone on since stays. None = whatever it is at.

    Returns:
        `{"erased", "archived", "gone_on"}`, the last one the places of those
        that stayed.

    Raises:
        UnavailableError: the archive is away; nothing of that part is erased.
        CorruptDataError: a session cannot be read: repair it first.
    """
    wanted = dict(zip(keys, versions, strict=True)) if versions is not None else {}
    by_tenant: dict[str, list[bytes]] = {}
    gone_on: list[int] = []
    for place, key in enumerate(keys):
        stored = store.engine.head(key)
        if key in wanted and stored is not None and _went_on(stored, wanted[key]):
            gone_on.append(place)
            continue
        by_tenant.setdefault(SessionName.from_key(key).tenant, []).append(key)
    archived = erased = 0
    for tenant, mine in by_tenant.items():
        for begin in range(0, len(mine), BATCH_SESSIONS):
            part = mine[begin : begin + BATCH_SESSIONS]
            if store.settings.archive:
                archived += _archived(store, part)
            erased += erase_sessions(store, tenant, part)["sessions"]
    return {"erased": erased, "archived": archived, "gone_on": gone_on}


def forget_archived(store: "EmbeddedStore") -> Document:
    """Remove archived batches whose time is over, and what crashes have left.

    Raises:
        UnavailableError: the archive is away.
    """
    return archiving.forget_archived(store.settings, store.clock)


def _went_on(stored: StoredHead, version: int) -> bool:
    return not stored.is_tombstone and stored.head.version != version


def _archived(store: "EmbeddedStore", keys: Sequence[bytes]) -> int:
    found = [(key, store.engine.head(key)) for key in keys]
    sessions = [
        to_archive(store.warm, key, stored, store.graph)
        for key, stored in found
        if stored is not None and not stored.is_tombstone
    ]
    return archiving.archived(store.settings, store.clock, sessions)
