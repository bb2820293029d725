"""Let sessions go whose time is over: archive what law wants kept, erase the rest."""

import asyncio
import os
import secrets
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Final

from turnstate.agents.archive.archiving import ArchiveAgent, ArchiveBatch, ToArchive
from turnstate.agents.archive.phones import default_deidentifier
from turnstate.agents.archive.summary import SummaryRules, phases_along
from turnstate.schemas.errors import UnavailableError
from turnstate.schemas.ids import SessionName
from turnstate.storage.archive import Archive
from turnstate.storage.session_reader import fold_all, operations
from turnstate.streams.documents import Document
from turnstate.streams.embedded.erase import erase_sessions
from turnstate.streams.places import access_of, opened_place

if TYPE_CHECKING:
    from turnstate.streams.embedded.store import EmbeddedStore

KEY_FILE: Final = "archive.key"
"""In the data folder: the secret under which archives name sessions and users."""

BATCH_SESSIONS: Final = 500
"""Summaries that come in together or not at all."""

_KEY_BYTES: Final = 32
_DAY_MS: Final = 86_400_000


def expire(store: "EmbeddedStore", keys: Sequence[bytes]) -> Document:
    """Erase sessions, each archived before where the settings name an archive.

    Repeating it changes nothing: the same sessions are the same batch.

    Raises:
        UnavailableError: the archive is away; nothing of that part is erased.
        CorruptDataError: a session cannot be read: repair it first.
    """
    by_tenant: dict[str, list[bytes]] = {}
    for key in keys:
        by_tenant.setdefault(SessionName.from_key(key).tenant, []).append(key)
    archived = erased = 0
    for tenant, mine in by_tenant.items():
        for begin in range(0, len(mine), BATCH_SESSIONS):
            part = mine[begin : begin + BATCH_SESSIONS]
            if store.settings.archive:
                archived += _archived(store, part)
            erased += erase_sessions(store, tenant, part)["sessions"]
    return {"erased": erased, "archived": archived}


def forget_archived(store: "EmbeddedStore") -> Document:
    """Remove archived batches whose time is over, and what crashes have left.

    Raises:
        UnavailableError: the archive is away.
    """
    if not store.settings.archive:
        return {"archived_batches": 0}
    with opened_place(store.settings.archive, access_of(os.environ)) as objects:
        archive = Archive(objects, secrets.token_bytes)
        gone = archive.expire(store.clock.now_ms())
        archive.sweep(store.clock.now_ms())
    return {"archived_batches": len(gone)}


def _archived(store: "EmbeddedStore", keys: Sequence[bytes]) -> int:
    sessions = [each for key in keys if (each := _to_archive(store, key)) is not None]
    if not sessions:
        return 0
    keep_days = store.settings.archive_keep_days
    with opened_place(store.settings.archive, access_of(os.environ)) as objects:
        agent = ArchiveAgent(
            Archive(objects, secrets.token_bytes),
            rules=SummaryRules(_key(store.settings.data / KEY_FILE)),
            deidentifier=default_deidentifier(),
            clock=store.clock,
            keep_ms=keep_days * _DAY_MS if keep_days else None,
        )
        made = asyncio.run(agent.archive(ArchiveBatch(_batch_id(sessions), sessions)))
    if made.error is not None:
        raise made.error
    return made.sessions


def _to_archive(store: "EmbeddedStore", key: bytes) -> ToArchive | None:
    stored = store.engine.head(key)
    if stored is None or stored.is_tombstone:
        return None
    ops = [op for _, op in operations(store.warm, key, stored)]
    states = fold_all(store.warm, key, stored, store.graph).states
    name = SessionName.from_key(key)
    return ToArchive(name, stored, ops, phases_along(ops, states))


def _batch_id(sessions: Sequence[ToArchive]) -> str:
    hashed = blake2b(digest_size=16)
    for each in sessions:
        head = each.stored.head
        key = each.name.key()
        hashed.update(len(key).to_bytes(2, "big") + key)
        hashed.update(b"%d %d;" % (head.incarnation, head.version))
    return hashed.hexdigest()


def _key(path: Path) -> bytes:
    """Return the secret of a data folder; made the first time, for its owner only."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        pass
    except OSError as error:
        raise UnavailableError(
            f"the key of the archive, {path}, cannot be read: {error.strerror}",
            field="archive",
        ) from error
    made = secrets.token_bytes(_KEY_BYTES)
    at = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(at, "wb") as file:
        file.write(made)
        file.flush()
        os.fsync(file.fileno())
    return made
