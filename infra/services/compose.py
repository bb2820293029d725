"""Run the services by Docker Compose, where its daemon answers."""

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

from turnstate.infra.services import programs, redis, s3
from turnstate.infra.services.failures import MissingProgramError, ServiceError
from turnstate.infra.services.folder import write_whole
from turnstate.infra.services.kafka_protocol import metadata
from turnstate.infra.services.ports import HOST, free_ports, is_free
from turnstate.infra.services.ran import ran
from turnstate.infra.services.reports import SERVICES, Report

COMPOSE_FILE: Final = Path(__file__).parents[1] / "compose.yaml"

_COMMAND_S: Final = 600.0
"""Images may have to be fetched."""

_ANSWER_S: Final = 90.0
_POLL_S: Final = 0.1


class ComposeCluster:
    """The services of one folder as containers; their data are Docker's volumes.

    Args:
        folder: Where ports and keys are kept.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        named = hashlib.sha256(str(self.folder).encode()).hexdigest()[:10]
        self.project = f"turnstate-{named}"

    @property
    def is_used(self) -> bool:
        """Say whether this folder's services were started so, and not ended."""
        return self._record.exists()

    def up(self, names: Sequence[str] = SERVICES) -> list[Report]:
        """Start services, unless they run; return when they answer, or do not.

        Raises:
            MissingProgramError: no daemon answers, or Compose is not there.
            ServiceError: Compose failed; its last line is told.
        """
        if not programs.docker_answers():
            raise MissingProgramError(
                "docker", "Docker does not answer", hint=programs.HINTS["docker"]
            )
        kept = self._ports()
        ports = {name: self._port(name, kept.get(name, 0)) for name in SERVICES}
        write_whole(self._record, json.dumps({"ports": ports}))
        self._compose("up", "-d", *names)
        deadline = time.monotonic() + _ANSWER_S
        waiting = set(names)
        while waiting and time.monotonic() < deadline:
            waiting = {name for name in waiting if not self._answers(name, ports)}
            time.sleep(_POLL_S if waiting else 0)
        return self.status()

    def down(self) -> list[Report]:
        """Remove the containers; the data stay in their volumes."""
        if self.is_used:
            self._compose("down")
            self._record.unlink()
        return self.status()

    def status(self) -> list[Report]:
        """Return what each service does."""
        ports = self._ports()
        return [
            Report(
                name,
                "running" if self._answers(name, ports) else "stopped",
                log=f"docker compose -p {self.project} logs {name}",
                connection=self._connection(name, ports[name]) if ports else {},
            )
            for name in SERVICES
        ]

    @property
    def _record(self) -> Path:
        return self.folder / "compose.json"

    def _ports(self) -> dict[str, int]:
        try:
            found: Any = json.loads(self._record.read_text(encoding="utf-8"))
            ports = cast("Mapping[str, Any]", found["ports"])
            return {name: int(ports[name]) for name in SERVICES}
        except (OSError, ValueError, KeyError, TypeError):
            return {}

    def _port(self, name: str, kept: int) -> int:
        """Return the port a service has or had, where nobody else took it."""
        if kept and (is_free(kept) or self._answers(name, {name: kept})):
            return kept
        return free_ports(1)[0]

    def _answers(self, name: str, ports: Mapping[str, int]) -> bool:
        asks: Mapping[str, Callable[[int], bool]] = {
            "kafka": _names_itself,
            "redis": redis.pongs,
            "s3": lambda port: s3.has_bucket(port, s3.keys_of(self._keys)),
        }
        return name in ports and asks[name](ports[name])

    def _connection(self, name: str, port: int) -> dict[str, str]:
        if name == "kafka":
            return {"bootstrap": f"{HOST}:{port}"}
        if name == "redis":
            return {"url": redis.url(port)}
        return s3.connection(port, s3.keys_of(self._keys))

    @property
    def _keys(self) -> Path:
        return self.folder / "s3"

    def _compose(self, *words: str) -> None:
        ports = self._ports()
        keys = s3.keys_of(self._keys)
        environment = {
            **os.environ,
            "TURNSTATE_S3_ACCESS_KEY": keys.access_key,
            "TURNSTATE_S3_SECRET_KEY": keys.secret_key,
            **{f"TURNSTATE_{name.upper()}_PORT": str(ports[name]) for name in ports},
        }
        argv = ["docker", "compose", "-p", self.project, "-f", str(COMPOSE_FILE)]
        try:
            done = ran([*argv, *words], within_s=_COMMAND_S, environment=environment)
        except OSError as error:
            raise ServiceError("docker", f"docker compose failed: {error}") from error
        if done.returncode:
            said = done.stderr.strip().splitlines() or ["no words"]
            raise ServiceError("docker", f"docker compose failed: {said[-1]}")


def _names_itself(port: int) -> bool:
    answer = metadata(port)
    return answer is not None and (HOST, port) in answer.brokers
