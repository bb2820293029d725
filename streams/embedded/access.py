"""Open a store: become its owner, or ask the one that it has."""

import time

from turnstate.schemas.errors import UnavailableError
from turnstate.streams.embedded.link import Link
from turnstate.streams.embedded.messages import ConnectionLost
from turnstate.streams.embedded.owner import OwnedStore
from turnstate.streams.embedded.owner_card import read_card
from turnstate.streams.embedded.remote import (
    OWNER_WAIT_S,
    PAUSE_S,
    OwnerLink,
    RemoteStore,
)
from turnstate.streams.settings import Settings

OpenStore = OwnedStore | RemoteStore
"""What `open_store` returns; both have the same methods."""


def open_store(settings: Settings) -> OpenStore:
    """Return the store of a data folder, whoever owns it; a context manager.

    Who finds no owner becomes it, and answers others until it closes.

    Raises:
        UnavailableError: another process owns it and does not answer, or is
            another version.
        CorruptDataError: it cannot be opened.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     with open_store(Settings(data=Path(folder))) as store:
        ...         with open_store(store.settings) as beside:
        ...             print(type(store).__name__, type(beside).__name__)
        OwnedStore RemoteStore
    """
    found = reach_owner(settings)
    if isinstance(found, OwnedStore):
        return found
    return RemoteStore(settings, reach_owner, found)


def reach_owner(settings: Settings) -> OwnedStore | Link:
    """Connect to the owner, or open the store where there is none.

    A lock decides between two that open at once; the loser finds the winner's
    socket a moment later. A socket that nobody listens at was left
    by an owner that died.

    Raises:
        UnavailableError: see `open_store`.
    """
    deadline = time.monotonic() + OWNER_WAIT_S
    while True:
        card = read_card(settings.data)
        if card is not None:
            try:
                return OwnerLink(card)
            except ConnectionLost:
                pass
        try:
            return OwnedStore(settings)
        except UnavailableError as error:
            if error.code != "owned" or time.monotonic() > deadline:
                raise
        time.sleep(PAUSE_S)
