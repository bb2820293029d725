"""A service in its folder: start it once, ask it, end it, start it again."""

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final, NamedTuple

from turnstate.infra.services import process as processes
from turnstate.infra.services.failures import ServiceError
from turnstate.infra.services.folder import Folder, Record
from turnstate.infra.services.ports import any_taken, free_ports
from turnstate.infra.services.process import Process

START_S: Final = 60.0
"""Kafka takes 13 s after a kill on an idle machine; tests load it."""

_PORT_S: Final = 10.0
_POLL_S: Final = 0.03
_ATTEMPTS: Final = 3


class Command(NamedTuple):
    """What starts a service: the program, its arguments, its variables."""

    argv: Sequence[str]
    environment: Mapping[str, str]


class Server(ABC):
    """Look after one service; all it knows is in the folder.

    Two objects on one folder, in one process or two, are the same service.

    Args:
        path: The folder of the service.
    """

    name: ClassVar[str]
    port_names: ClassVar[tuple[str, ...]]
    port_distance: ClassVar[int] = 0
    """Where a second port for each must be free too; 0 = none."""
    grace_s: ClassVar[float] = 20.0
    """How long it may take to end in order."""

    def __init__(self, path: Path) -> None:
        self.folder = Folder(self.name, path)

    @property
    def pid(self) -> int | None:
        """The id of its process; None where none runs."""
        process = self._running()
        return None if process is None else process.pid

    @property
    def state(self) -> str:
        """`running`, `silent` (runs, does not answer), `crashed` or `stopped`."""
        record = self.folder.record()
        if record.process is None:
            return "stopped"
        if not processes.is_running(record.process):
            return "crashed"
        return "running" if self.answers(record.ports) else "silent"

    @property
    def was_started(self) -> bool:
        """Say whether it ever was, so that its ports are known."""
        return bool(self.folder.record().ports)

    def port(self, name: str) -> int:
        """Return the port of a purpose.

        Raises:
            ServiceError: it was never started.
        """
        try:
            return self.folder.record().ports[name]
        except KeyError:
            raise ServiceError(
                self.name, f"{self.name} was never started in {self.folder.path}"
            ) from None

    def start(self) -> None:
        """Start it, unless it runs; return when it answers.

        After a crash it takes up the data again, and the ports if they are
        free.

        Raises:
            MissingProgramError: with the command that brings what is missing.
            ServiceError: it ended or does not answer; the log is named.
        """
        with self.folder.locked(within_s=2 * START_S):
            process = self._running()
            if process is None:
                self._start_anew()
            else:
                self._await(process, self.folder.record().ports)

    def stop(self) -> bool:
        """End it (SIGTERM, later SIGKILL); say whether it did so in order."""
        if not self.folder.path.exists():
            return True
        with self.folder.locked(within_s=2 * START_S):
            return self._stop()

    def kill(self) -> None:
        """End it as a crash does (SIGKILL); `start` or `restart` takes it up."""
        process = self._running()
        if process is not None:
            processes.kill(process)
            self._clear(self.folder.record().ports)

    def restart(self) -> None:
        """Start it again on the very same ports and data, ended or not.

        Raises:
            ServiceError: a port went to somebody else, or it does not answer.
        """
        with self.folder.locked(within_s=2 * START_S):
            self._stop()
            ports = self.folder.record().ports
            deadline = time.monotonic() + _PORT_S
            while any_taken(self.all_ports(ports)):
                if time.monotonic() > deadline:
                    raise ServiceError(
                        self.name,
                        f"a port of {self.name} is taken: {dict(ports)}",
                        hint="end what listens there",
                    )
                time.sleep(_POLL_S)
            self._run(ports)

    @property
    @abstractmethod
    def connection(self) -> dict[str, str]:
        """What a client is given, by name; the service was started before.

        Raises:
            ServiceError: it never was.
        """

    @abstractmethod
    def answers(self, ports: Mapping[str, int]) -> bool:
        """Say whether the service itself answers as a ready one does."""

    @abstractmethod
    def command(self, ports: Mapping[str, int]) -> Command:
        """Prepare its files and return the command.

        Raises:
            MissingProgramError: with the command that brings what is missing.
        """

    def leftovers(self, ports: Mapping[str, int]) -> list[Path]:
        """Return what an ended service leaves outside its folder."""
        del ports
        return []

    def all_ports(self, ports: Mapping[str, int]) -> list[int]:
        """Return the numbers that it binds, the second of each one too."""
        distances = sorted({0, self.port_distance})
        return [port + each for port in ports.values() for each in distances]

    def _running(self) -> Process | None:
        process = self.folder.record().process
        return process if process and processes.is_running(process) else None

    def _stop(self) -> bool:
        record = self.folder.record()
        if record.process is None:
            return True
        in_order = processes.end(record.process, grace_s=self.grace_s)
        self._clear(record.ports)
        self.folder.keep(Record(None, record.ports))
        return in_order

    def _clear(self, ports: Mapping[str, int]) -> None:
        for path in self.leftovers(ports):
            path.unlink(missing_ok=True)

    def _start_anew(self) -> None:
        ports = self.folder.record().ports
        for attempt in range(1, _ATTEMPTS + 1):
            if set(ports) != set(self.port_names) or any_taken(self.all_ports(ports)):
                found = free_ports(len(self.port_names), beside=self.port_distance)
                ports = dict(zip(self.port_names, found, strict=True))
            try:
                self._run(ports)
                return
            except ServiceError:
                # Somebody may have taken a port between the look and the start.
                if attempt == _ATTEMPTS or not any_taken(self.all_ports(ports)):
                    raise

    def _run(self, ports: Mapping[str, int]) -> None:
        command = self.command(ports)
        process = processes.spawn(
            command.argv,
            folder=self.folder.path,
            log=self.folder.log,
            environment=command.environment,
        )
        self.folder.keep(Record(process, ports))
        try:
            self._await(process, ports)
        except BaseException:
            processes.kill(process)
            self._clear(ports)
            self.folder.keep(Record(None, ports))
            raise

    def _await(self, process: Process, ports: Mapping[str, int]) -> None:
        deadline = time.monotonic() + START_S
        while processes.is_running(process):
            if self.answers(ports):
                return
            if time.monotonic() > deadline:
                raise self._failed(f"{self.name} does not answer for {START_S:.0f} s")
            time.sleep(_POLL_S)
        raise self._failed(f"{self.name} ended while it started")

    def _failed(self, message: str) -> ServiceError:
        words = self.folder.last_words()
        said = f": {words}" if words else ""
        return ServiceError(
            self.name, f"{message}{said}", hint=f"read {self.folder.log}"
        )
