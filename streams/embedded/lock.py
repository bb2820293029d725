"""The lock of a data folder: who holds it may open the store."""

import fcntl
import os
from pathlib import Path
from typing import Final

from turnstate.schemas.errors import UnavailableError

LOCK_FILE: Final = "owner.lock"


class OwnerLock:
    """Hold the lock of a data folder, until it is let go or the process ends.

    RocksDB has a lock of its own, but moves and removes its info logs before
    it takes it: of several processes that open one store at once some fail
    with a missing file. So this one is taken first.

    Args:
        data: The data folder.

    Raises:
        UnavailableError: someone else holds it (code `owned`), or the folder
            cannot be written.
    """

    def __init__(self, data: Path) -> None:
        path = data / LOCK_FILE
        try:
            data.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise UnavailableError(
                f"the data folder {data} cannot be used: {error.strerror}",
                field="data",
                hint="name a folder that may be written",
            ) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._file)
            raise UnavailableError(
                f"another process owns the store {data}",
                hint="it does not answer at its socket: see what it does",
                code="owned",
            ) from error
        _held.add(self._file)

    def release(self) -> None:
        """Let it go; twice is once."""
        if self._file in _held:
            _held.remove(self._file)
            os.close(self._file)


_held: Final[set[int]] = set()


def _forget_in_child() -> None:
    """Close a forked child's copies: else it would hold the lock for the dead."""
    for file in _held:
        os.close(file)
    _held.clear()


os.register_at_fork(after_in_child=_forget_in_child)
