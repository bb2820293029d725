"""One service for all workers of a test run: the first starts it, the last ends it."""

import fcntl
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

import pytest

from turnstate.infra.services.failures import MissingProgramError
from turnstate.infra.services.folder import held


class Stops(Protocol):
    """A service, or some that belong together."""

    def stop(self) -> bool: ...


AnyServer = TypeVar("AnyServer", bound=Stops)

WAIT_S = 700.0
"""The first one may have to fetch Kafka."""


def shared_root(factory: pytest.TempPathFactory) -> Path:
    """Return the folder that all workers of this run have in common."""
    base = factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@contextmanager
def shared(
    root: Path, name: str, start: Callable[[Path], AnyServer]
) -> Generator[AnyServer]:
    """Give a running service; skip with the reason where it cannot be.

    Each user holds a lock that others may hold too, and that the system takes
    back from a worker that was killed: who can have it alone is the last.
    """
    folder = root / "services" / name
    folder.mkdir(parents=True, exist_ok=True)
    gate = folder / "gate"
    with (folder / "users").open("ab") as users:
        with held(gate, within_s=WAIT_S) as taken:
            assert taken, f"{gate} is held for too long"
            fcntl.flock(users, fcntl.LOCK_SH)
            server = started(start, folder)
        try:
            yield server
        finally:
            with held(gate, within_s=WAIT_S):
                try:
                    fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    pass
                else:
                    server.stop()


def started(start: Callable[[Path], AnyServer], folder: Path) -> AnyServer:
    """Start a service; skip where a program is missing, or fail if it may not."""
    try:
        return start(folder)
    except MissingProgramError as error:
        reason = f"{error.message} ({error.hint})"
        if os.environ.get("TURNSTATE_REQUIRE_SERVICES") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
