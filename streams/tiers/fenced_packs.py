"""The packs that an owner of sessions reads, and which job may move them."""

import threading
from collections.abc import Callable

from turnstate.schemas.errors import FencedError
from turnstate.storage.cold.pointer import Pointer
from turnstate.storage.cold.store import PackStore


class FencedPacks:
    """Read packs, opened when that is first asked for; and know the newest job.

    So a store that never cools needs no place for it. Safe from any thread.

    Args:
        open_packs: Opens them.
    """

    def __init__(self, open_packs: Callable[[], PackStore]) -> None:
        self._open_packs = open_packs
        self._lock = threading.RLock()
        self._opened: PackStore | None = None
        self._token = 0

    @property
    def packs(self) -> PackStore:
        """Return the packs; opened once.

        Raises:
            UnavailableError: there is no cold tier, or it cannot be opened.
        """
        with self._lock:
            if self._opened is None:
                self._opened = self._open_packs()
            return self._opened

    def read(self, pointer: Pointer) -> bytes:
        """Return a whole image; see `PackStore.read`."""
        return self.packs.read(pointer)

    def read_front(self, pointer: Pointer) -> bytes:
        """Return the front of an image; see `PackStore.read_front`."""
        return self.packs.read_front(pointer)

    def read_range(self, pointer: Pointer, offset: int, length: int) -> bytes:
        """Return a part of an image; see `PackStore.read_range`."""
        return self.packs.read_range(pointer, offset, length)

    def admit(self, token: int) -> None:
        """Let a job change pointers, unless a later one has taken over.

        One that this owner does not know yet is looked up in the manifest, so
        that a job outlived by an earlier owner, or by the one that a partition
        came from, is refused as well. Asks the cold tier: not on an event loop.

        Raises:
            FencedError: another job has taken over since.
        """
        with self._lock:
            if token > self._token:
                self._token = max(self._token, self.packs.manifests.latest().epoch)
            if token < self._token:
                raise FencedError(
                    f"another job (token {self._token}) has taken over from this one"
                    f" (token {token})",
                    hint="nothing is lost: run it again",
                )
            self._token = max(token, self._token)
