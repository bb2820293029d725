"""Keep objects as files of one local folder, each created once, whole and durable."""

import errno
import os
import stat
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from uuid import uuid4

from turnstate.schemas.errors import (
    InvalidInputError,
    NotFoundError,
    UnavailableError,
)
from turnstate.storage.cold.object_names import checked_name, file_name, part_of
from turnstate.storage.cold.objects import ObjectInfo

STALE_MS: Final = 3_600_000
"""A temporary file that nobody wrote to for so long belongs to nobody."""

_TEMPORARY: Final = ".writing"
"""The folder of files that are being written; no object name begins with a dot."""

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_REFUSED: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_NO_LINKS: Final = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS})


class DirectoryObjects:
    """An `ObjectStore` in a folder, with the semantics of one in a bucket.

    An object is written under a temporary name, brought to the disk, then
    linked to its own name, which fails where that name is taken; so it is
    there whole or not at all, whenever the process or the machine ends, and
    of many that create one name, in any number of processes, one wins.

    The parts of a name are folders and a file, as `file_name` writes them.
    No object's name may be a folder in the name of another: the file system
    has one or the other. Files that are no objects are not listed.

    Args:
        path: The folder; made if it is not there.

    Raises:
        UnavailableError: the folder cannot be made or read.

    Example:
        >>> import tempfile
        >>> objects = DirectoryObjects(Path(tempfile.mkdtemp()))
        >>> objects.create("packs/1", b"first"), objects.create("packs/1", b"second")
        (True, False)
        >>> objects.read("packs/1", 1, 3), objects.read_end("packs/1", 2)
        (b'irs', b'st')
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._temporary = path / _TEMPORARY
        self._durable: set[Path] = set()
        with _told(path):
            path.mkdir(parents=True, exist_ok=True)
            _sync_folder(path.parent)
            self._make_folder(self._temporary)
        self.sweep(time.time_ns() // 1_000_000)

    def create(self, name: str, data: bytes) -> bool:
        """Create an object durably; False where the name is taken.

        Raises:
            InvalidInputError: no store could hold the name, or a part of it is
                an object and a folder at once.
            UnavailableError: the disk is full or refuses; there is no object,
                or a whole one.
        """
        path = self._path(name)
        with _told(self.path):
            created = not os.path.lexists(path) and self._created(path, data)
            if not created and path.is_dir():
                raise InvalidInputError(
                    f"the object name {name!r} is a folder of other objects",
                    field="name",
                )
            # Also where another one won: what follows from its object must
            # not outlive it.
            _sync_folder(path.parent)
        return created

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """Return an object's bytes, or a range of them.

        Raises:
            NotFoundError: there is no such object.
            UnavailableError: the disk does not give it.
        """
        assert start >= 0
        assert length is None or length >= 0
        with self._opened(name) as file:
            left = max(0, os.fstat(file).st_size - start)
            return _read(file, start, left if length is None else min(left, length))

    def read_end(self, name: str, length: int) -> bytes:
        """Return the last bytes of an object, all of it where it is shorter.

        Raises:
            NotFoundError: there is no such object.
            UnavailableError: the disk does not give it.
        """
        assert length >= 0
        with self._opened(name) as file:
            size = os.fstat(file).st_size
            start = max(0, size - length)
            return _read(file, start, size - start)

    def list(self, prefix: str = "", after: str = "") -> Iterator[ObjectInfo]:
        """Yield objects whose names start with a prefix, in name order.

        Folders are read one by one as the caller goes on.

        Raises:
            UnavailableError: the disk does not give them.
        """
        return self._listed(self.path, "", prefix, after)

    def delete(self, names: Sequence[str]) -> None:
        """Remove objects durably; those that are not there count as removed.

        Raises:
            InvalidInputError: no store could hold a name.
            UnavailableError: the disk refuses; some may be removed.
        """
        paths = [self._path(name) for name in names]
        with _told(self.path):
            folders: set[Path] = set()
            for path in paths:
                try:
                    path.unlink()
                except (FileNotFoundError, NotADirectoryError):
                    continue
                except OSError:
                    if path.is_dir():  # the system says EISDIR or EPERM
                        continue
                    raise
                finally:
                    folders.add(path.parent)
            for folder in folders:
                # Gone already is durable too, where another call removed it.
                if folder.is_dir():
                    _sync_folder(folder)

    def sweep(self, now_ms: int, *, min_age_ms: int = STALE_MS) -> int:
        """Remove what writers left that were killed; say how many files.

        Opening the folder does it. A write that is under way is younger.

        Args:
            now_ms: The time by the system's clock, which also dates files.
            min_age_ms: How long ago one was written to last, at least.

        Raises:
            UnavailableError: the disk refuses.
        """
        swept = 0
        with _told(self.path):
            for path in self._temporary.iterdir():
                try:
                    written_ms = path.stat().st_mtime_ns // 1_000_000
                    if now_ms - written_ms >= min_age_ms:
                        path.unlink()
                        swept += 1
                except FileNotFoundError:  # its writer, or another sweep
                    continue
        return swept

    def _created(self, path: Path, data: bytes) -> bool:
        self._make_folder(path.parent)
        temporary = self._temporary / uuid4().hex
        try:
            _write(temporary, data)
            return _link(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        parts = checked_name(name).split("/")
        return self.path.joinpath(*map(file_name, parts))

    def _make_folder(self, folder: Path) -> None:
        """Make a folder whose own entry is durable; once a process is enough."""
        if folder == self.path or folder in self._durable:
            return
        self._make_folder(folder.parent)
        try:
            folder.mkdir()
        except FileExistsError:
            if not folder.is_dir():
                raise InvalidInputError(
                    f"{folder.relative_to(self.path)} is an object, and cannot be a"
                    " folder of others",
                    field="name",
                ) from None
        _sync_folder(folder.parent)
        self._durable.add(folder)

    @contextmanager
    def _opened(self, name: str) -> Generator[int]:
        path = self._path(name)
        with _told(self.path):
            try:
                file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except (FileNotFoundError, NotADirectoryError):
                raise _not_found(name) from None
            try:
                if stat.S_ISDIR(os.fstat(file).st_mode):
                    raise _not_found(name)
                yield file
            finally:
                os.close(file)

    def _listed(
        self, folder: Path, above: str, prefix: str, after: str
    ) -> Iterator[ObjectInfo]:
        """Yield what lies in a folder whose names all begin with `above`."""
        # A folder stands where its names do, all of which have the slash.
        entries: list[tuple[str, os.DirEntry[str]]] = []
        with _told(self.path):
            try:
                with os.scandir(folder) as found:
                    for entry in found:
                        part = part_of(entry.name)
                        if part is not None:
                            slash = "/" if entry.is_dir(follow_symlinks=False) else ""
                            entries.append((f"{above}{part}{slash}", entry))
            except FileNotFoundError:
                return
        for name, entry in sorted(entries, key=lambda each: each[0]):
            if name.endswith("/"):
                if _may_hold(name, prefix, after):
                    yield from self._listed(Path(entry.path), name, prefix, after)
            elif name > after and name.startswith(prefix):
                info = self._info(name, entry)
                if info is not None:
                    yield info

    def _info(self, name: str, entry: "os.DirEntry[str]") -> ObjectInfo | None:
        """Return what a list says of a file; None where it is no object, or gone."""
        with _told(self.path):
            try:
                if not entry.is_file(follow_symlinks=False):
                    return None
                found = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                return None
        return ObjectInfo(name, found.st_size, found.st_mtime_ns // 1_000_000)


def _may_hold(folder: str, prefix: str, after: str) -> bool:
    """Say whether a name below a folder can have the prefix and come after."""
    if not (folder.startswith(prefix) or prefix.startswith(folder)):
        return False
    return folder > after or after.startswith(folder)


def _not_found(name: str) -> NotFoundError:
    return NotFoundError(f"there is no object {name!r}", field="name")


def _write(path: Path, data: bytes) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(file, view) :]
        os.fsync(file)
    finally:
        os.close(file)


def _link(temporary: Path, path: Path) -> bool:
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        raise UnavailableError(
            f"{path.parent} takes no hard links: {error.strerror}",
            hint="put the folder of cold objects on a file system that has them",
        ) from error
    return True


def _read(file: int, start: int, length: int) -> bytes:
    """Return so many bytes, or fewer where the file is cut meanwhile."""
    data = os.pread(file, length, start)
    while len(data) < length:  # the system gives at most 2 GiB at once
        more = os.pread(file, length - len(data), start + len(data))
        if not more:
            break
        data += more
    return data


def _sync_folder(folder: Path) -> None:
    """Bring the entries of a folder to the disk."""
    file = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


@contextmanager
def _told(folder: Path) -> Generator[None]:
    """Say the system's failures in our words."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            hint = f"make room on the disk of {folder}, or raise its limit"
        elif error.errno in _REFUSED:
            hint = f"let the user of this process read and write {folder}"
        elif error.errno == errno.ENOENT:
            hint = f"{folder} or a part of it was removed: open it again"
        else:
            hint = f"look at the disk of {folder}"
        raise UnavailableError(
            f"the folder of cold objects {folder}: {error.strerror or error}", hint=hint
        ) from error
