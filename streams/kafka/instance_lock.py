"""The lock of a worker's folder: one process at a time runs an instance."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from turnstate.schemas.errors import UnavailableError
from turnstate.streams.embedded.lock import OwnerLock


@contextmanager
def instance_lock(data: Path, instance: str) -> Generator[None]:
    """Hold a worker's folder: two members of one name would loop for ever.

    It needs nothing of what a worker runs on, so that a start in vain ends
    before that is loaded.

    Args:
        data: The data folder that holds the worker's folder.
        instance: Its name.

    Raises:
        UnavailableError: another process runs this instance (code `owned`),
            or the folder cannot be written.
    """
    try:
        lock = OwnerLock(data / instance)
    except UnavailableError as error:
        if error.code != "owned":
            raise
        raise UnavailableError(
            f"another process runs the instance {instance!r}",
            field="instance",
            hint="give each worker a name of its own: --instance",
            code="owned",
        ) from error
    try:
        yield
    finally:
        lock.release()
