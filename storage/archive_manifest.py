"""What the manifest of an archive says of its batches, and how it changes."""

import re
from collections.abc import Callable
from hashlib import blake2b
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from turnstate.schemas.errors import InvalidInputError, UnavailableError
from turnstate.storage.cold.numbered import FORMAT

BATCHES: Final = "archive/"
"""Where the parts lie, a folder a batch."""

COLLECTED: Final = "collected"
"""Code of the error of a batch that took too long to be committed."""

_BATCH_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)


class Part(Struct, frozen=True, gc=False):
    """One object of a batch: its length, and the BLAKE2b-256 of its bytes."""

    bytes: int
    hash: str


class Batch(Struct, frozen=True):
    """What the manifest says of a batch.

    Attributes:
        attempt: Chance in the names of its objects.
        parts: Its objects, in order.
        records: How many records are in them.
        committed_ms: When it was begun; it is committed soon after.
        expires_ms: When it may go; None = never.
    """

    attempt: str
    parts: list[Part]
    records: int
    committed_ms: int
    expires_ms: int | None = None


class Manifest(Struct, frozen=True):
    """Every batch that is in the archive, as of one transaction.

    Attributes:
        format: Of the manifest.
        number: Its own; 0 = nothing was ever archived.
        batches: By id.
        boundary_ms: Batches that were begun before this cannot be committed any
            more: their parts may be swept.
        recent: Tokens of this manifest and of those before it, newest last: so
            a writer can tell whether its own is among them.
    """

    format: int = FORMAT
    number: int = 0
    batches: dict[str, Batch] = {}
    boundary_ms: int = 0
    recent: list[str] = []


Change = Callable[[Manifest], Manifest]
"""Makes the next manifest of the newest one; asked again after a lost race."""



def expired(manifest: Manifest, now_ms: int) -> list[str]:
    """Return the ids of the batches whose time is over. Pure."""
    return sorted(
        batch_id
        for batch_id, batch in manifest.batches.items()
        if batch.expires_ms is not None and batch.expires_ms <= now_ms
    )


def part_names(batch_id: str, batch: Batch) -> list[str]:
    """Return the names of a batch's objects, in order.

    The attempt is in them: two writers of one batch do not share an object
    that one of them may delete.

    Example:
        >>> part_names("b", Batch("0f", [Part(1, "")], 1, 0))
        ['archive/b/part-00000-0f']
    """
    return [
        f"{BATCHES}{batch_id}/part-{at:05}-{batch.attempt}"
        for at in range(len(batch.parts))
    ]


def checked_batch_id(batch_id: str) -> str:
    """Return an id that every object store can hold.

    Raises:
        InvalidInputError: it has other characters, or too many.
    """
    if _BATCH_ID.fullmatch(batch_id) is None:
        raise InvalidInputError(
            f"{batch_id!r} is no id of a batch",
            field="batch",
            hint="1 to 128 of A-Z a-z 0-9 . _ - with a letter or digit first",
        )
    return batch_id


def with_batch(batch_id: str, batch: Batch) -> Change:
    """Return the change that takes a batch in, unless one of its id is there.

    It refuses a batch that a sweep has passed: its parts may be gone.
    """

    def change(manifest: Manifest) -> Manifest:
        if batch_id in manifest.batches:
            return manifest
        if batch.committed_ms < manifest.boundary_ms:
            raise UnavailableError(
                f"the batch {batch_id} took so long that its parts may be swept",
                hint="archive it again; compare the clocks of both machines",
                code=COLLECTED,
            )
        return replace(manifest, batches={**manifest.batches, batch_id: batch})

    return change


def holds(manifest: Manifest, batch_id: str, batch: Batch) -> bool:
    """Say whether a manifest has a batch, from this attempt and no other."""
    found = manifest.batches.get(batch_id)
    return found is not None and found.attempt == batch.attempt


def hash_of(data: bytes) -> str:
    """Return the hash by which a part is known, hexadecimal."""
    return blake2b(data, digest_size=32).hexdigest()
