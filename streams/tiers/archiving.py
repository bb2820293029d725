"""Archive what expires where the settings say so: as a store does, and a worker."""

import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from turnstate.agents.archive.archiving import Archiver, ToArchive
from turnstate.agents.archive.phones import default_deidentifier
from turnstate.agents.archive.summary import SummaryRules
from turnstate.agents.ports import Clock
from turnstate.schemas.errors import UnavailableError
from turnstate.storage.archive import Archive
from turnstate.streams.documents import Document
from turnstate.streams.places import access_of, opened_place
from turnstate.streams.settings import Settings

KEY_FILE: Final = "archive.key"
"""In the data folder: the secret under which archives name sessions and users.
Machines that are to name them alike have the same file."""

_KEY_BYTES: Final = 32
_DAY_MS: Final = 86_400_000


def archived(settings: Settings, clock: Clock, sessions: Sequence[ToArchive]) -> int:
    """Archive sessions as one batch, all or none; return how many.

    Args:
        settings: Say where, for how long, and where the secret is.
        clock: For the times in summaries.
        sessions: They; the same ones again are archived once.

    Raises:
        UnavailableError: the archive is away; nothing of it is archived.
    """
    if not sessions:
        return 0
    keep_days = settings.archive_keep_days
    with opened_place(settings.archive, access_of(os.environ)) as objects:
        archiver = Archiver(
            Archive(objects, secrets.token_bytes),
            rules=SummaryRules(archive_key(settings.data / KEY_FILE)),
            deidentifier=default_deidentifier(),
            clock=clock,
            keep_ms=keep_days * _DAY_MS if keep_days else None,
        )
        return archiver.archive(sessions).sessions


def forget_archived(settings: Settings, clock: Clock) -> Document:
    """Remove archived batches whose time is over, and what crashes have left.

    Raises:
        UnavailableError: the archive is away.
    """
    if not settings.archive:
        return {"archived_batches": 0}
    with opened_place(settings.archive, access_of(os.environ)) as objects:
        archive = Archive(objects, secrets.token_bytes)
        gone = archive.expire(clock.now_ms())
        archive.sweep(clock.now_ms())
    return {"archived_batches": len(gone)}


def archive_key(path: Path) -> bytes:
    """Return the secret of a data folder; made the first time, for its owner only.

    Of several processes that share the folder one makes it, whole.

    Raises:
        UnavailableError: it cannot be read or made.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError:
        pass
    except OSError as error:
        raise _no_key(path, error) from error
    aside = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        at = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(at, "wb") as file:
                file.write(secrets.token_bytes(_KEY_BYTES))
                file.flush()
                os.fsync(file.fileno())
            with suppress(FileExistsError):  # another process was first
                path.hardlink_to(aside)
        finally:
            aside.unlink()
        return path.read_bytes()
    except OSError as error:
        raise _no_key(path, error) from error


def _no_key(path: Path, error: OSError) -> UnavailableError:
    return UnavailableError(
        f"the key of the archive, {path}, cannot be had: {error.strerror}",
        field="archive",
    )
