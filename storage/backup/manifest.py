"""The manifest of a backup, and the names of objects beside it."""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from turnstate.schemas.errors import (
    CorruptDataError,
    NotFoundError,
    UnknownVersionError,
)
from turnstate.storage.backup.content import checked_line, hashed_line
from turnstate.storage.cold.names import pack_time_ms
from turnstate.storage.cold.objects import ObjectStore

FORMAT: Final = 1
"""The format that is written; a higher one is refused."""

FILES: Final = "files/"
"""Where the store's files lie, each under its content's hash and length."""

MANIFESTS: Final = "manifests/"
"""Where manifests lie, each under its number: `latest` is the highest."""

_DIGITS: Final = 20
"""Of a number in a name, so that names are in the order of numbers."""



class BackupFile(Struct, frozen=True, gc=False):
    """One file of a store.

    Attributes:
        name: In the store's folder.
        bytes: Its length.
        hash: BLAKE2b-256 of its content, hexadecimal.
    """

    name: str
    bytes: int
    hash: str

    @property
    def object_name(self) -> str:
        """Return the name of the object that holds its content."""
        return f"{FILES}{self.hash}-{self.bytes}"


class PackCopy(Struct, frozen=True, gc=False):
    """A pack of the cold tier to which sessions of the backup point.

    Attributes:
        pack: Its name in the cold tier.
        order: How new what it says of a session is; 0 where nobody knows.
        bytes: Its length.
        hash: BLAKE2b-256 of its content, hexadecimal.
    """

    pack: str
    order: int
    bytes: int
    hash: str

    @property
    def object_name(self) -> str:
        """Return the name of the object that holds its content."""
        return f"{FILES}{self.hash}-{self.bytes}"


class StoreFacts(Struct, frozen=True):
    """What a store is, as far as it decides about a backup of it.

    Attributes:
        store: Identity of the store's log, hexadecimal.
        log_name: The name that is set for its log.
        names: The names under which it stamped, the last one now: each restore
            adds one.
        position: The log's end: the offset of the first record that is not in it.
        sessions: How many sessions there are, about.
    """

    store: str
    log_name: str
    names: list[str]
    position: int
    sessions: int = 0


class PartitionFacts(Struct, frozen=True):
    """What the store of a cluster's partition was: how far, and of which changelog.

    Attributes:
        number: Which partition.
        partitions: How many there were; with another number sessions lie elsewhere.
        changelog: The topic id of the changelog, hexadecimal.
        offset: Of the changelog's record that was applied last, -1 = none.
        epoch: Of the owner: its number and the generation of the group.
    """

    number: int
    partitions: int
    changelog: str
    offset: int
    epoch: tuple[int, int]


class Manifest(Struct, frozen=True):
    """One backup: everything that is needed to have the store back.

    Attributes:
        format: Of the manifest.
        number: From 1, each one more than the one before.
        facts: What the store was.
        time_ms: When the checkpoint was made, epoch milliseconds.
        files: Every file of it, in the order of their names.
        packs: The packs in which its cold sessions lie.
        partition: Of a cluster, where the store is the one of a partition.
    """

    format: int
    number: int
    facts: StoreFacts
    time_ms: int
    files: list[BackupFile]
    packs: list[PackCopy] = []
    partition: PartitionFacts | None = None

    @property
    def bytes(self) -> int:
        """Return the bytes of all its files and packs."""
        return sum(each.bytes for each in self.contents)

    @property
    def contents(self) -> list[BackupFile | PackCopy]:
        """Return everything that lies in objects beside the manifest."""
        return [*self.files, *self.packs]


_encoder: Final = msgspec.json.Encoder(order="deterministic")
_decoder: Final = msgspec.json.Decoder(Manifest)


def manifest_name(number: int) -> str:
    """Return the name of a manifest's object.

    Example:
        >>> manifest_name(7)
        'manifests/00000000000000000007.json'
    """
    return f"{MANIFESTS}{number:0{_DIGITS}}.json"


def encode_manifest(manifest: Manifest) -> bytes:
    """Return a manifest as one line of JSON and the hash of that line."""
    return hashed_line(_encoder.encode(manifest))


def decode_manifest(data: bytes, name: str) -> Manifest:
    """Invert `encode_manifest`.

    Args:
        data: The object.
        name: Its name, for errors.

    Raises:
        UnknownVersionError: a newer turnstate wrote it.
        CorruptDataError: it is cut, damaged, or names files outside its folder.
    """
    line = checked_line(data, f"the manifest {name}")
    try:
        manifest = _decoder.decode(line)
    except (msgspec.MsgspecError, ValueError) as error:
        raise CorruptDataError(f"the manifest {name}: {error}") from error
    if manifest.format > FORMAT:
        raise UnknownVersionError(
            f"the manifest {name} has format {manifest.format}, this is {FORMAT}",
            hint="use a newer turnstate; nothing was changed",
        )
    for file in manifest.files:
        if file.name in ("", ".", "..") or "/" in file.name or "\0" in file.name:
            raise CorruptDataError(f"the manifest {name} names a file {file.name!r}")
    for copy in manifest.packs:
        pack_time_ms(copy.pack)  # raises where it is no pack's name
    return manifest


def numbers(objects: ObjectStore) -> list[int]:
    """Return the numbers of the backups that are there, ascending."""
    found: list[int] = []
    for info in objects.list(MANIFESTS):
        digits = info.name[len(MANIFESTS) :].removesuffix(".json")
        if len(digits) == _DIGITS and digits.isdecimal():
            found.append(int(digits))
    return found


def read_manifest(objects: ObjectStore, number: int | None = None) -> Manifest:
    """Return a backup's manifest; the latest one where no number is given.

    Raises:
        NotFoundError: there is no such backup.
        CorruptDataError: it is damaged.
    """
    there = numbers(objects)
    if number is None:
        if not there:
            raise NotFoundError("there is no backup", hint="turnstate backup makes one")
        number = there[-1]
    elif number not in there:
        raise NotFoundError(
            f"there is no backup {number}",
            field="number",
            hint=f"there are {', '.join(map(str, there[-10:]))}" if there else None,
        )
    name = manifest_name(number)
    manifest = decode_manifest(objects.read(name), name)
    if manifest.number != number:
        raise CorruptDataError(f"the manifest {name} is that of {manifest.number}")
    return manifest


def manifests(objects: ObjectStore, which: Sequence[int]) -> Iterator[Manifest]:
    """Yield the manifests with some numbers."""
    for number in which:
        yield read_manifest_named(objects, number)


def read_manifest_named(objects: ObjectStore, number: int) -> Manifest:
    """Return the manifest with a number that a list has just shown."""
    name = manifest_name(number)
    return decode_manifest(objects.read(name), name)
