"""The folder of one service: its record, its lock, its log and its data."""

import fcntl
import json
import os
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from turnstate.infra.services.failures import ServiceError
from turnstate.infra.services.process import Process

RECORD_FILE: Final = "record.json"

_POLL_S: Final = 0.05
_TAIL_BYTES: Final = 4096
_TAIL_LINES: Final = 3


@dataclass(frozen=True, slots=True)
class Record:
    """What is known of a service between two commands.

    Attributes:
        process: The one that was started last, running or not; None after an
            orderly end.
        ports: Purpose → number; kept after the end, to be taken again.
    """

    process: Process | None = None
    ports: Mapping[str, int] = field(default_factory=dict[str, int])


class Folder:
    """Keep all that belongs to one service in one place.

    Args:
        service: Its name, for messages.
        path: The folder; it is made when something is written.
    """

    def __init__(self, service: str, path: Path) -> None:
        self.service = service
        self.path = path.absolute()
        self.data = self.path / "data"
        self.log = self.path / "server.log"

    def record(self) -> Record:
        """Return what is known; nothing where the record is torn or not there."""
        try:
            found: Any = json.loads(self._record.read_text(encoding="utf-8"))
            ports = {
                str(name): int(port)
                for name, port in cast("dict[str, Any]", found["ports"]).items()
            }
            process = found["process"]
            if process is not None:
                process = Process(int(process["pid"]), str(process["started"]))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return Record()
        return Record(process, ports)

    def keep(self, record: Record) -> None:
        """Write the record; a reader sees the old one or the new one."""
        process = record.process
        document = {
            "process": None
            if process is None
            else {"pid": process.pid, "started": process.started},
            "ports": dict(record.ports),
        }
        write_whole(self._record, json.dumps(document))

    @contextmanager
    def locked(self, *, within_s: float) -> Generator[None]:
        """Hold the folder alone: one launcher starts or ends its service.

        Raises:
            ServiceError: another one holds it for longer than that.
        """
        self.data.mkdir(parents=True, exist_ok=True)
        with held(self.path / "lock", within_s=within_s) as taken:
            if not taken:
                raise ServiceError(
                    self.service,
                    f"another command is at work in {self.path}",
                    hint="wait for it, or end it",
                )
            yield

    def last_words(self) -> str:
        """Return the last lines of the log, as one."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
                text = file.read().decode("utf-8", "replace")
        except OSError:
            return ""
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return " | ".join(lines[-_TAIL_LINES:])

    @property
    def _record(self) -> Path:
        return self.path / RECORD_FILE


@contextmanager
def held(path: Path, *, within_s: float) -> Generator[bool]:
    """Hold the lock of a file, given whether it was to be had in time.

    The system lets go of it when the holder ends, however it ends.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + within_s
    with path.open("ab") as file:
        taken = _take(file.fileno())
        while not taken and time.monotonic() < deadline:
            time.sleep(_POLL_S)
            taken = _take(file.fileno())
        yield taken


def _take(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def write_whole(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Write a file so that a reader, or a crash, sees all of it or the old one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.unlink(missing_ok=True)
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
