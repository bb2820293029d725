"""The owner of a store: the one process that has it open and answers the others."""

import socket
from pathlib import Path
from typing import Any, Final, Self

from turnstate.agents.ports import Clock
from turnstate.schemas.errors import UnavailableError
from turnstate.streams.embedded.calls import StoreCalls
from turnstate.streams.embedded.feed import Feed
from turnstate.streams.embedded.lock import OwnerLock
from turnstate.streams.embedded.methods import METHODS, method_named
from turnstate.streams.embedded.owner_card import OWNER_FILE, socket_path, write_card
from turnstate.streams.embedded.serving import Limits, RequestServer
from turnstate.streams.embedded.store import EmbeddedStore
from turnstate.streams.settings import Settings

LIMITS: Final = Limits()
"""Other processes of this user are trusted with memory and time."""


class OwnedStore(EmbeddedStore, StoreCalls):
    """A store that this process owns, with every method by its name.

    Args:
        settings: Where it is, and its sizes.
        clock: For arrival times; the machine's where None.
        serving: Whether other processes may ask through the socket.

    Raises:
        UnavailableError: another process owns the store (code `owned`).
    """

    def __init__(
        self,
        settings: Settings,
        clock: Clock | None = None,
        *,
        serving: bool = True,
    ) -> None:
        self._owner_lock = OwnerLock(settings.data)
        try:
            super().__init__(settings, clock)
        except BaseException:
            self._owner_lock.release()
            raise
        self.feed = Feed(self)
        self._server: StoreServer | None = None
        if serving:
            try:
                self._server = StoreServer(self)
            except BaseException:
                self.close()
                raise

    def __enter__(self) -> Self:
        return self

    def call(self, method: str, **arguments: Any) -> Any:
        """Perform a method by name.

        Raises:
            InvalidInputError: there is no such method.
            TurnstateError: what it raises.
        """
        return method_named(method).call(self, **arguments)

    def close(self) -> None:
        """Answer what others have asked, then let the store go."""
        if self._server is not None:
            self._server.close()
        self.feed.close()
        super().close()
        self._owner_lock.release()


class StoreServer(RequestServer):
    """Answer other processes at a Unix socket in the data folder.

    Only who holds the lock of the folder makes one, so a socket that is there already
    was left by an owner that died.

    Args:
        store: The store, owned by this process.
    """

    def __init__(self, store: OwnedStore) -> None:
        data = store.settings.data
        self._path = socket_path(data)
        self._card = data / OWNER_FILE
        self._feed = store.feed
        super().__init__(_listening(self._path), store, METHODS, limits=LIMITS)
        write_card(self._card, self._path)
        self.start()

    def leave(self) -> None:
        """Take both names away before the store's lock goes.

        Who finds neither opens the store.
        """
        self._card.unlink(missing_ok=True)
        Path(self._path).unlink(missing_ok=True)
        self._feed.close()


def _listening(path: str) -> socket.socket:
    Path(path).unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(path)
        # Nobody can connect before it listens, so nobody is let in by mistake.
        Path(path).chmod(0o600)
        listener.listen(LIMITS.connections)
    except OSError as error:
        listener.close()
        raise UnavailableError(
            f"the socket {path} cannot be made: {error}",
            hint="the data folder has to be on a file system with sockets",
        ) from error
    return listener
