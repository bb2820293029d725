"""The chain of links that makes a cut, swap, reorder, forgery or rollback show."""

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Final

from turnstate.schemas.errors import BrokenChainError, CorruptDataError
from turnstate.storage.frames.header import (
    CHECKED_BYTES,
    HEADER_BYTES,
    Header,
    decode_header,
)

LINK_BYTES: Final = 16

START_LINK: Final = bytes(LINK_BYTES)
"""What the first frame of a session's incarnation names as the one before."""

NO_KEYS: Final[Mapping[int, bytes | None]] = {0: None}
"""Key id → key where no key is set. A store with keys leaves 0 out, so that
a forger cannot pass by claiming that there was no key."""

_PERSON: Final = b"turnstate.chain"
"""So that no other hash of ours is ever a link."""


def link_of(frame: bytes, key: bytes | None = None) -> bytes:
    """Return a frame's chain link: what the next frame has to name.

    BLAKE2b-128, keyed where a key is set, over the header without its
    checksum, then the body. The header holds the link of the frame before, so
    a link stands for everything up to it.

    Args:
        frame: A whole frame.
        key: At most 64 bytes; the one that the header's key id names.
    """
    digest = blake2b(
        frame[:CHECKED_BYTES], digest_size=LINK_BYTES, key=key or b"", person=_PERSON
    )
    digest.update(frame[HEADER_BYTES:])
    return digest.digest()


def verify_chain(
    frames: Iterable[bytes],
    start_link: bytes = START_LINK,
    *,
    newest_link: bytes | None = None,
    keys: Mapping[int, bytes | None] = NO_KEYS,
) -> bytes:
    """Return the last link of an unbroken chain, or say where it breaks.

    A cut at the end and a rollback (an old chain put back whole) can only be
    seen against `newest_link`, which is therefore kept away from the chain.

    Args:
        frames: All frames in order, from the one that follows `start_link`.
        start_link: The link that the first one has to name.
        newest_link: The link that the last one has to have.
        keys: Key id → key.

    Raises:
        BrokenChainError: a frame does not follow; `field` is its version.

    Example:
        >>> verify_chain([]) == START_LINK
        True
    """
    link = start_link
    first: Header | None = None
    version = 0
    for frame in frames:
        try:
            header = decode_header(frame)
        except CorruptDataError as error:
            raise _broken(version, f"what follows is no frame: {error}") from error
        version = header.to_version
        if first is None:
            first = header
        wrong = _departure(first, header, link, keys)
        if wrong:
            raise _broken(version, wrong)
        link = link_of(frame, keys[header.key_id])
    if newest_link is not None and link != newest_link:
        raise _broken(version, "it is not the newest: frames after it are missing")
    return link


def _departure(
    first: Header,
    header: Header,
    link: bytes,
    keys: Mapping[int, bytes | None],
) -> str | None:
    if header.previous_link != link:
        return "it does not follow the frame before it"
    if header.key_id not in keys:
        return f"key {header.key_id} is not known"
    if (header.session_hash, header.incarnation) != (
        first.session_hash,
        first.incarnation,
    ):
        return "it belongs to another session"
    return None


def _broken(version: int, why: str) -> BrokenChainError:
    return BrokenChainError(
        f"the chain breaks at version {version}: {why}", field=f"version {version}"
    )
