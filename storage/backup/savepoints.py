"""Savepoints: named exports that stay until someone deletes them by name."""

import io
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from turnstate.schemas.errors import (
    ChecksumError,
    ConflictError,
    CorruptDataError,
    InvalidInputError,
    NotFoundError,
    UnknownVersionError,
)
from turnstate.storage.backup.content import checked_line, content_hash, hashed_line
from turnstate.storage.backup.manifest import StoreFacts
from turnstate.storage.cold.objects import ObjectStore

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

SAVEPOINTS: Final = "savepoints/"
"""Where they lie: a folder each, and in it the parts and, last, the card."""

PART_BYTES: Final = 8 << 20
"""Of the export in one object."""

FORMAT: Final = 1

_CARD: Final = "card.json"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)


class Part(Struct, frozen=True, gc=False):
    """One piece of an export: its length, and the BLAKE2b-256 that names it."""

    bytes: int
    hash: str


class Savepoint(Struct, frozen=True):
    """What a savepoint's card says.

    Attributes:
        format: Of the card.
        name: Of the savepoint.
        facts: What the store was.
        time_ms: When it was begun, epoch milliseconds.
        parts: The pieces of the export, in order.
        operations: How many operations the export holds.
    """

    format: int
    name: str
    facts: StoreFacts
    time_ms: int
    parts: list[Part]
    operations: int

    @property
    def bytes(self) -> int:
        """Return the length of the export."""
        return sum(part.bytes for part in self.parts)


_encoder: Final = msgspec.json.Encoder(order="deterministic")
_decoder: Final = msgspec.json.Decoder(Savepoint)


def checked_savepoint_name(name: str) -> str:
    """Return a name that every object store can hold.

    Raises:
        InvalidInputError: it has other characters, or too many.

    Example:
        >>> checked_savepoint_name("before-upgrade")
        'before-upgrade'
    """
    if _NAME.fullmatch(name) is None:
        raise InvalidInputError(
            f"{name!r} is no name of a savepoint",
            field="savepoint",
            hint="1 to 128 of A-Z a-z 0-9 . _ - with a letter or digit first",
        )
    return name


class SavepointWriter:
    """Take an export piece by piece; `commit` makes it a savepoint.

    A file-like object: whoever makes the export writes to it. Without
    `commit` there is no savepoint, only parts that `delete_savepoint` removes.

    Args:
        objects: Where to.
        name: Of the savepoint.

    Raises:
        InvalidInputError: it is no name of a savepoint.
        ConflictError: there is one of that name.
    """

    def __init__(self, objects: ObjectStore, name: str) -> None:
        self._objects = objects
        self._name = checked_savepoint_name(name)
        self._parts: list[Part] = []
        self._buffer = bytearray()
        if any(info.name == _card_name(name) for info in objects.list(_folder(name))):
            raise _taken(name)

    def write(self, data: bytes) -> int:
        """Take more of the export."""
        self._buffer += data
        while len(self._buffer) >= PART_BYTES:
            piece = bytes(self._buffer[:PART_BYTES])
            del self._buffer[:PART_BYTES]
            self._send(piece)
        return len(data)

    def commit(self, facts: StoreFacts, time_ms: int, operations: int) -> Savepoint:
        """Write what is left, then the card.

        Raises:
            ConflictError: another process made one of that name meanwhile.
        """
        if self._buffer:
            self._send(bytes(self._buffer))
            self._buffer.clear()
        card = Savepoint(FORMAT, self._name, facts, time_ms, self._parts, operations)
        data = hashed_line(_encoder.encode(card))
        if not self._objects.create(_card_name(self._name), data):
            raise _taken(self._name)
        return card

    def _send(self, piece: bytes) -> None:
        part = Part(len(piece), content_hash(piece))
        name = _part_name(self._name, part)
        self._objects.create(name, piece)
        if not _holds(self._objects.read(name), part):
            raise ChecksumError(f"the object {name} is not what was sent")
        self._parts.append(part)


def savepoints(objects: ObjectStore) -> Iterator[Savepoint]:
    """Yield all savepoints in the order of their names.

    Raises:
        CorruptDataError: a card is damaged.
    """
    for info in objects.list(SAVEPOINTS):
        name, _, last = info.name[len(SAVEPOINTS) :].partition("/")
        if last == _CARD:
            yield read_savepoint(objects, name)


def read_savepoint(objects: ObjectStore, name: str) -> Savepoint:
    """Return what a savepoint's card says.

    Raises:
        NotFoundError: there is none of that name.
        CorruptDataError: the card is damaged.
    """
    try:
        data = objects.read(_card_name(checked_savepoint_name(name)))
    except NotFoundError:
        raise _not_there(name) from None
    line = checked_line(data, f"the card of savepoint {name!r}")
    try:
        card = _decoder.decode(line)
    except (msgspec.MsgspecError, ValueError) as error:
        raise CorruptDataError(f"the card of savepoint {name!r}: {error}") from error
    if card.format > FORMAT:
        raise UnknownVersionError(
            f"savepoint {name!r} has format {card.format}, this is {FORMAT}",
            hint="use a newer turnstate; nothing was changed",
        )
    return card


def open_savepoint(objects: ObjectStore, card: Savepoint) -> io.BufferedReader:
    """Return the export as a file to read from; each part is verified.

    Reading raises `CorruptDataError` where a part is missing or damaged; it is
    named.
    """
    return io.BufferedReader(_Parts(objects, card), buffer_size=1 << 20)


def delete_savepoint(objects: ObjectStore, name: str) -> int:
    """Delete a savepoint, or the parts of one that was broken off.

    The card goes first: what is half deleted is no savepoint any more.

    Returns:
        How many objects were deleted.

    Raises:
        NotFoundError: there is nothing of that name.
    """
    names = [info.name for info in objects.list(_folder(checked_savepoint_name(name)))]
    if not names:
        raise _not_there(name)
    card = _card_name(name)
    if card in names:
        objects.delete([card])
    objects.delete([each for each in names if each != card])
    return len(names)


class _Parts(io.RawIOBase):
    """The parts of a savepoint, one after another."""

    def __init__(self, objects: ObjectStore, card: Savepoint) -> None:
        super().__init__()
        self._objects = objects
        self._card = card
        self._next = 0
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        into = memoryview(buffer).cast("B")
        while not self._rest and self._next < len(self._card.parts):
            part = self._card.parts[self._next]
            self._rest = memoryview(self._read(part))
            self._next += 1
        count = min(len(into), len(self._rest))
        into[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count

    def _read(self, part: Part) -> bytes:
        name = _part_name(self._card.name, part)
        try:
            data = self._objects.read(name)
        except NotFoundError:
            raise CorruptDataError(f"the part {name} is missing") from None
        if not _holds(data, part):
            raise ChecksumError(f"the part {name} is damaged")
        return data


def _holds(data: bytes, part: Part) -> bool:
    return len(data) == part.bytes and content_hash(data) == part.hash


def _folder(name: str) -> str:
    return f"{SAVEPOINTS}{name}/"


def _card_name(name: str) -> str:
    return _folder(name) + _CARD


def _part_name(name: str, part: Part) -> str:
    return f"{_folder(name)}{part.hash}-{part.bytes}"


def _not_there(name: str) -> NotFoundError:
    return NotFoundError(f"there is no savepoint {name!r}", field="savepoint")


def _taken(name: str) -> ConflictError:
    return ConflictError(
        f"there is a savepoint {name!r}",
        field="savepoint",
        hint="give another name, or delete that one",
    )
