"""Count what is asked of an object store, by kind: for tests, metrics and the bill."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Final

from turnstate.storage.cold.objects import ObjectInfo, ObjectStore

KINDS: Final = ("create", "read", "list", "delete")
"""What S3 bills apart; reading the end of an object is reading."""

_PAGE: Final = 1_000
"""Objects that S3 lists or deletes in one request."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """What was asked of one kind.

    Attributes:
        requests: How many requests it takes at S3 when nothing fails; a large
            object that is sent in parts counts as one.
        failures: How many calls raised.
        data_bytes: Of the objects that were created or read, in bytes.
    """

    requests: int = 0
    failures: int = 0
    data_bytes: int = 0


class CountingObjects:
    """An `ObjectStore` that passes everything on to another one, and counts.

    Thread-safe as what it wraps. `S3Objects.requests` counts what goes over
    the wire, with every attempt and part; this counts what callers asked for,
    alike for every store.

    Args:
        objects: The store itself.

    Example:
        >>> import tempfile, pathlib
        >>> from turnstate.storage.cold.directory import DirectoryObjects
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> objects = CountingObjects(DirectoryObjects(folder))
        >>> objects.create("a", b"four"), objects.read("a", 1, 2)
        (True, b'ou')
        >>> objects.traffic()["read"]
        Traffic(requests=1, failures=0, data_bytes=2)
    """

    def __init__(self, objects: ObjectStore) -> None:
        self.objects = objects
        self._lock = Lock()
        self._traffic: dict[str, Traffic] = {kind: Traffic() for kind in KINDS}

    def traffic(self) -> dict[str, Traffic]:
        """Return what was asked so far, for each of `KINDS`."""
        with self._lock:
            return dict(self._traffic)

    def create(self, name: str, data: bytes) -> bool:
        """Create an object; its bytes count where the name was free."""
        with self._failures("create"):
            created = self.objects.create(name, data)
        self._add("create", data_bytes=len(data) if created else 0)
        return created

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """Return an object's bytes, or a range of them."""
        with self._failures("read"):
            data = self.objects.read(name, start, length)
        self._add("read", data_bytes=len(data))
        return data

    def read_end(self, name: str, length: int) -> bytes:
        """Return the last bytes of an object."""
        with self._failures("read"):
            data = self.objects.read_end(name, length)
        self._add("read", data_bytes=len(data))
        return data

    def list(self, prefix: str = "", after: str = "") -> Iterator[ObjectInfo]:
        """Yield objects; a page of a thousand is a request, the first at once."""
        found = 0
        listed = self.objects.list(prefix, after)
        self._add("list")
        while True:
            with self._failures("list"):
                info = next(listed, None)
            if info is None:
                return
            found += 1
            if found % _PAGE == 1 and found > 1:
                self._add("list")
            yield info

    def delete(self, names: Sequence[str]) -> None:
        """Remove objects; a thousand names are a request."""
        with self._failures("delete"):
            self.objects.delete(names)
        self._add("delete", requests=-(-len(names) // _PAGE))

    def _add(
        self, kind: str, *, requests: int = 1, failures: int = 0, data_bytes: int = 0
    ) -> None:
        with self._lock:
            so_far = self._traffic[kind]
            self._traffic[kind] = Traffic(
                so_far.requests + requests,
                so_far.failures + failures,
                so_far.data_bytes + data_bytes,
            )

    @contextmanager
    def _failures(self, kind: str) -> Generator[None]:
        try:
            yield
        except Exception:
            # A list has counted its request before it fails.
            self._add(kind, requests=0 if kind == "list" else 1, failures=1)
            raise
