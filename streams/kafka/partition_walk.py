"""Go over the sessions of a partition a page at a time."""

from collections.abc import Iterator

from turnstate.schemas.ids import SessionName, tenant_prefix
from turnstate.storage.session_row import SessionRow
from turnstate.streams.kafka.fresh import Fresh


class Walk:
    """Go over the heads of a partition until a page is over.

    Attributes:
        next: The key to go on after; None once all have been seen.
    """

    def __init__(
        self, fresh: Fresh, tenant: str | None, prefix: str, after: bytes
    ) -> None:
        self._fresh = fresh
        self._prefix = prefix
        self._start = b""
        self._anywhere = tenant is None and bool(prefix)
        if tenant is not None:
            self._start = tenant_prefix(tenant) + prefix.encode()
        self.next: bytes | None = after

    def rows(self) -> Iterator[tuple[bytes, SessionRow]]:
        """Yield (key, facts) of the sessions that are asked for."""
        reader = self._fresh.reader
        for key in reader.warm.keys(self._start, self.next or b""):
            self.next = key
            row = reader.row(key) if self._matches(key) else None
            if row is not None and not row.is_tombstone:
                yield key, row
            if self._fresh.is_over():
                return
        self.next = None

    def _matches(self, key: bytes) -> bool:
        return not self._anywhere or SessionName.from_key(key).session.startswith(
            self._prefix
        )
