"""Objects that are known to be whole by the hash of what is in them."""

from hashlib import blake2b
from typing import Final

from turnstate.schemas.errors import ChecksumError, ConflictError
from turnstate.storage.cold.objects import ObjectStore

HASH_BYTES: Final = 32


def content_hash(data: bytes) -> str:
    """Return the hash by which contents are named.

    Example:
        >>> content_hash(b"")[:12]
        '0e5751c026e5'
    """
    return blake2b(data, digest_size=HASH_BYTES).hexdigest()


def hashed_line(data: bytes) -> bytes:
    """Return a line and, on the next one, the hash of it."""
    line = data + b"\n"
    return line + content_hash(line).encode() + b"\n"


def checked_line(data: bytes, what: str) -> bytes:
    r"""Invert `hashed_line`; the line keeps its end.

    Args:
        data: The object.
        what: Names it in the error.

    Raises:
        ChecksumError: it is cut or damaged.

    Example:
        >>> checked_line(hashed_line(b"{}"), "this")
        b'{}\n'
    """
    line, _, rest = data.partition(b"\n")
    line += b"\n"
    if rest.strip() != content_hash(line).encode():
        raise ChecksumError(f"{what} does not match its checksum")
    return line


def create_alone(objects: ObjectStore, name: str, data: bytes, again: str) -> None:
    """Create an object that nobody else may make, and read it back.

    Args:
        objects: Where to.
        name: Of the object.
        data: What is in it.
        again: What to do where somebody was first.

    Raises:
        ConflictError: another process made it (code `backup_beside`).
        ChecksumError: it is not what was sent.
    """
    if not objects.create(name, data):
        raise ConflictError(
            f"{name} was made by another process meanwhile",
            field="where",
            hint=again,
            code="backup_beside",
        )
    if objects.read(name) != data:
        raise ChecksumError(f"the object {name} is not what was sent", field="where")
