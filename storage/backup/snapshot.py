"""Upload a checkpoint: what is new of it, then the manifest that makes it a backup."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from turnstate.schemas.errors import (
    ChecksumError,
    ConflictError,
    CorruptDataError,
    NotFoundError,
    UnavailableError,
)
from turnstate.storage.backup.checkpoint import files_of
from turnstate.storage.backup.content import content_hash, create_alone
from turnstate.storage.backup.manifest import (
    FILES,
    FORMAT,
    BackupFile,
    Manifest,
    PackCopy,
    PartitionFacts,
    StoreFacts,
    encode_manifest,
    manifest_name,
    manifests,
    numbers,
    read_manifest,
)
from turnstate.storage.backup.packs import ColdSource
from turnstate.storage.cold.objects import ObjectStore

UPLOADS_AT_ONCE: Final = 4
"""Files in memory and under way at a time; RocksDB's have 64 MB at most."""

UNUSED_AGE_MS: Final = 3_600_000
"""A file that no manifest names is collected when it is older: a younger one may
belong to a backup that is under way."""

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

Progress = Callable[[int, int], None]
"""Is told how many files are done, and of how many."""


class Taken(NamedTuple):
    """What a backup did.

    Attributes:
        manifest: What was committed.
        files_new: Files that were uploaded.
        bytes_new: Their bytes.
    """

    manifest: Manifest
    files_new: int
    bytes_new: int


class Collected(NamedTuple):
    """What a collection removed.

    Attributes:
        backups: Numbers of the backups that went.
        files: How many files went with them.
        bytes: Their bytes.
    """

    backups: list[int]
    files: int
    bytes: int


def take_backup(
    objects: ObjectStore,
    folder: Path,
    facts: StoreFacts,
    now_ms: int,
    *,
    cold: ColdSource | None = None,
    partition: PartitionFacts | None = None,
    progress: Progress | None = None,
) -> Taken:
    """Make a backup of a checkpoint's files; only the new ones are uploaded.

    A file is new if the latest backup does not name its content. What is
    uploaded is read back, and the manifest is created last: a crash at any
    moment leaves the earlier backups whole, and files that the next collection
    removes. One backup at a time writes to a place; the caller sees to it.

    Args:
        objects: Where to.
        folder: The checkpoint.
        facts: What the store is.
        now_ms: When the checkpoint was made.
        cold: The packs to which its sessions point; they are copied, too.
        partition: Of a cluster, where the store is that of a partition.
        progress: Is told how far it is.

    Raises:
        ConflictError: the place holds backups of another store, or another
            backup was made meanwhile.
        ChecksumError: an object that was read back is not what was sent.
        UnavailableError: the place, or the checkpoint, cannot be reached.
    """
    latest = _latest(objects)
    if latest is not None:
        check_same_store(latest.facts, facts)
    upload = _Upload(objects, latest, cold)
    work = [*files_of(folder), *(cold.orders if cold is not None else ())]
    for done, _ in enumerate(_in_parallel(upload.send, work), start=1):
        if progress is not None:
            progress(done, len(work))
    number = latest.number + 1 if latest else 1
    manifest = Manifest(
        FORMAT,
        number,
        facts,
        now_ms,
        sorted(upload.files, key=lambda file: file.name),
        sorted(upload.packs, key=lambda copy: copy.pack),
        partition,
    )
    _commit(objects, manifest)
    return Taken(manifest, upload.new, upload.bytes_new)


def check_same_store(before: StoreFacts, now: StoreFacts) -> None:
    """Refuse to put the backup of one store among those of another.

    A store that was restored from a backup goes on in the same place; the
    one that it was restored from has then to use another.

    Raises:
        ConflictError: they are two stores.
    """
    if before.store == now.store and before.names[-1] in now.names:
        return
    raise ConflictError(
        "this place holds backups of another store"
        if before.store != now.store
        else f"this place is used by a store that was restored as {before.names[-1]!r}",
        field="where",
        hint="name another folder or prefix",
        code="other_store",
    )


def collect(
    objects: ObjectStore,
    *,
    keep: int,
    now_ms: int,
    unused_age_ms: int = UNUSED_AGE_MS,
) -> Collected:
    """Remove all but the last backups, then the files that no backup names.

    Manifests go first: a crash between leaves files, never a backup without
    them. Savepoints are not looked at.

    Args:
        objects: Where the backups are.
        keep: How many backups stay, at least 1.
        now_ms: The present.
        unused_age_ms: How old a file without a backup must be; 0 where it is
            known that no other backup is under way.

    Raises:
        CorruptDataError: a manifest is damaged: nobody knows which files it
            needs, so nothing is removed.
    """
    assert keep >= 1, "the caller checks it"
    there = numbers(objects)
    gone, kept = there[:-keep], there[-keep:]
    needed: set[str] = set()
    for manifest in manifests(objects, kept):
        needed.update(each.object_name for each in manifest.contents)
    released: set[str] = set()
    for manifest in _readable(objects, gone):
        released.update(each.object_name for each in manifest.contents)
    objects.delete([manifest_name(number) for number in gone])
    unused = [
        info
        for info in objects.list(FILES)
        if info.name not in needed
        and (info.name in released or now_ms - info.modified_ms >= unused_age_ms)
    ]
    objects.delete([info.name for info in unused])
    return Collected(gone, len(unused), sum(info.size for info in unused))


def check_backup(
    objects: ObjectStore,
    number: int | None = None,
    progress: Progress | None = None,
) -> tuple[Manifest, list[str]]:
    """Read a whole backup and say what is missing or damaged, by name.

    Raises:
        NotFoundError: there is no such backup.
        CorruptDataError: its manifest is damaged.
    """
    manifest = read_manifest(objects, number)

    def fault(content: BackupFile | PackCopy) -> str | None:
        name = content.name if isinstance(content, BackupFile) else content.pack
        try:
            data = objects.read(content.object_name)
        except NotFoundError:
            return f"{content.object_name} ({name}) is missing"
        if len(data) != content.bytes or content_hash(data) != content.hash:
            return f"{content.object_name} ({name}) is damaged"
        return None

    faults: list[str] = []
    for done, found in enumerate(_in_parallel(fault, manifest.contents), start=1):
        if found is not None:
            faults.append(found)
        if progress is not None:
            progress(done, len(manifest.contents))
    return manifest, faults


def _latest(objects: ObjectStore) -> Manifest | None:
    try:
        return read_manifest(objects)
    except NotFoundError:
        return None


def _readable(objects: ObjectStore, which: Sequence[int]) -> Iterator[Manifest]:
    """Yield those manifests that can be read; a damaged one goes all the same."""
    for number in which:
        try:
            yield from manifests(objects, [number])
        except (CorruptDataError, NotFoundError):
            continue


def _in_parallel(
    call: Callable[[_Item], _Result], items: Sequence[_Item]
) -> Iterator[_Result]:
    """Yield results in order; the first failure stops what has not begun."""
    with ThreadPoolExecutor(UPLOADS_AT_ONCE, "turnstate-backup") as pool:
        waiting = [pool.submit(call, item) for item in items]
        try:
            for future in waiting:
                yield future.result()
        finally:
            for future in waiting:
                future.cancel()


class _Upload:
    """Send what a place lacks, from several threads at once."""

    def __init__(
        self, objects: ObjectStore, latest: Manifest | None, cold: ColdSource | None
    ) -> None:
        self._objects = objects
        self._cold = cold
        there = {info.name: info.size for info in objects.list(FILES)}
        # What the latest backup names was read back when it was made.
        verified = [
            each
            for each in (latest.contents if latest else ())
            if there.get(each.object_name) == each.bytes
        ]
        self._known = {each.object_name for each in verified}
        self._copies = {
            each.pack: each for each in verified if isinstance(each, PackCopy)
        }
        self._lock = threading.Lock()
        self.files: list[BackupFile] = []
        self.packs: list[PackCopy] = []
        self.new = self.bytes_new = 0

    def send(self, source: Path | str) -> None:
        """Send a file of the checkpoint, or a pack by its name."""
        if isinstance(source, Path):
            file = self._file(source)
            with self._lock:
                self.files.append(file)
        else:
            copy = self._pack(source)
            with self._lock:
                self.packs.append(copy)

    def _file(self, path: Path) -> BackupFile:
        try:
            data = path.read_bytes()
        except OSError as error:
            raise UnavailableError(
                f"the checkpoint's file {path} cannot be read: {error.strerror}"
            ) from error
        file = BackupFile(path.name, len(data), content_hash(data))
        self._sent(file.object_name, data, file.hash)
        return file

    def _pack(self, name: str) -> PackCopy:
        assert self._cold is not None, "packs are of a cold tier"
        known = self._copies.get(name)
        if known is not None:
            # A pack is never written again: its name says what is in it.
            return known
        data = self._cold.read(name)
        copy = PackCopy(name, self._cold.orders[name], len(data), content_hash(data))
        self._sent(copy.object_name, data, copy.hash)
        return copy

    def _sent(self, name: str, data: bytes, content: str) -> None:
        if name in self._known:
            return
        created = self._objects.create(name, data)
        back = self._objects.read(name)
        if len(back) != len(data) or content_hash(back) != content:
            raise ChecksumError(
                f"the object {name} is not what was sent",
                field="where",
                hint="delete that object and make the backup again",
            )
        with self._lock:
            self.new += created
            self.bytes_new += created * len(data)


def _commit(objects: ObjectStore, manifest: Manifest) -> None:
    """Create the manifest; it is the backup from then on.

    All files are looked for once more after it: a collection that ran beside
    this may have taken one that an older backup had left.
    """
    name, data = manifest_name(manifest.number), encode_manifest(manifest)
    create_alone(objects, name, data, "make the backup again")
    there = {info.name: info.size for info in objects.list(FILES)}
    lost = [
        each.object_name
        for each in manifest.contents
        if there.get(each.object_name) != each.bytes
    ]
    if lost:
        objects.delete([name])
        raise ConflictError(
            f"{len(lost)} files went while they were backed up, as {lost[0]}",
            field="where",
            hint="something else removes objects there: make the backup again",
            code="backup_beside",
        )
