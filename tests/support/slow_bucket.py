"""A store whose bucket hangs when it is told to."""

from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final

from support.commands import line
from support.cooling import Cooling
from support.hanging_objects import HangingObjects
from turnstate.agents.session.step import Answer
from turnstate.schemas.errors import TurnstateError
from turnstate.storage.cold.directory import DirectoryObjects

LIMIT_S: Final = 1
"""`cold_wait_s` where a test waits for its end."""


class Slow(Cooling):
    """A store whose bucket hangs when it is told to."""

    def __init__(self, folder: Path, **fields: Any) -> None:
        self.bucket = HangingObjects(DirectoryObjects(folder / "bucket"))
        super().__init__(folder / "data", self.bucket, **fields)

    def send(self, *records: bytes) -> "Future[list[Answer]]":
        """Publish, and do not wait for the answers."""
        return self.store.engine.submit(records)

    def anew(self) -> None:
        """Forget what was read, as a process does that starts."""
        self.use(self.packs())
        self.bucket.reads.clear()

    def cooled(self, *sessions: str, turns: int = 2) -> None:
        """Publish turns of sessions and let all of them go cold; then hang."""
        for session in sessions:
            self.publish([line(session, at) for at in range(turns)])
        self.cool()
        assert self.tiers()["cold"] == len(sessions)
        self.anew()
        self.bucket.hang()


def refused(answer: Answer) -> TurnstateError:
    assert answer.error is not None
    assert answer.version == 0
    return answer.error
