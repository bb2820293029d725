"""A checkpoint of a warm store: its files, hard-linked as of one moment."""

import shutil
from pathlib import Path
from typing import Final

from turnstate.schemas.errors import UnavailableError
from turnstate.storage.warm.rows import RocksTables

CHECKPOINT_ENDING: Final = ".checkpoint"
"""Of the folder beside the store in which a checkpoint lies."""


def checkpoint_folder(store: Path) -> Path:
    """Return where the checkpoint of a store lies while it is copied.

    Example:
        >>> str(checkpoint_folder(Path("data/store")))
        'data/store.checkpoint'
    """
    return store.with_name(store.name + CHECKPOINT_ENDING)


def make_checkpoint(store: RocksTables) -> Path:
    """Link the files of an open store as of now; return the folder.

    Called in the owner's thread, so that it is of the moment between two
    commits. Takes the time of a flush, whatever the size of the store, and
    no space until the store drops what it links to. One that a crash left
    is removed first.

    Raises:
        UnavailableError: the files cannot be linked.
    """
    folder = checkpoint_folder(store.path)
    remove_checkpoint(folder)
    store.checkpoint(folder)
    return folder


def remove_checkpoint(folder: Path) -> bool:
    """Remove a checkpoint; say whether there was one.

    While it is there it holds bytes that the store may have erased.

    Raises:
        UnavailableError: it cannot be removed.
    """
    if not folder.exists():
        return False
    try:
        shutil.rmtree(folder)
    except OSError as error:
        raise UnavailableError(
            f"the checkpoint {folder} cannot be removed: {error.strerror}",
            hint="remove that folder by hand",
        ) from error
    return True


def files_of(folder: Path) -> list[Path]:
    """Return the files of a checkpoint in the order of their names."""
    return sorted(path for path in folder.iterdir() if path.is_file())
