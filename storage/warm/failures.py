"""Say RocksDB's failures in our words."""

from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from turnstate.schemas.errors import CorruptDataError, UnavailableError


def guarded(call: Any, *arguments: Any) -> Any:
    """Call RocksDB and say its failures in our words.

    Raises:
        CorruptDataError: it read bytes that are wrong.
        UnavailableError: anything else.
    """
    try:
        return call(*arguments)
    except Exception as error:
        # A traceback would hold the iterator, and through it the store's lock.
        del call, arguments
        raise _translated(error) from error


class Closable(Protocol):
    """What holds files until it is closed."""

    def close(self) -> None:
        """Let them go."""
        ...


@contextmanager
def closed_on_failure(store: Closable) -> Generator[None]:
    """Close a store that proves useless while it opens: nobody else can.

    Raises:
        CorruptDataError: what was met first.
    """
    try:
        yield
    except CorruptDataError:
        with suppress(CorruptDataError):
            store.close()
        raise


def _translated(error: Exception) -> Exception:
    text = str(error)
    if "Corruption" in text:
        return CorruptDataError(f"RocksDB: {text}", hint="run turnstate verify")
    return UnavailableError(f"RocksDB: {text}")


def opening_failed(path: Path, error: Exception) -> Exception:
    """Return why a store cannot be opened: owned, damaged, or out of reach."""
    text = str(error)
    # Not just "lock": a corrupt file is reported by its "block checksum".
    if "While lock file" in text or "lock hold by" in text:
        return UnavailableError(
            f"another process owns the store {path}",
            hint="its owner answers through the socket in the data folder",
            code="owned",
        )
    if "Corruption" in text or ("No such file" in text and (path / "CURRENT").exists()):
        return CorruptDataError(
            f"the store {path} cannot be opened: {text}",
            hint="restore from a backup: turnstate restore",
        )
    return UnavailableError(f"the store {path} cannot be opened: {text}")
