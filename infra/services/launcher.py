"""Start, end and look at all services of one folder."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from turnstate.infra.services import kafka_jars, programs
from turnstate.infra.services.compose import ComposeCluster
from turnstate.infra.services.failures import MissingProgramError, ServiceError
from turnstate.infra.services.kafka import KafkaServer
from turnstate.infra.services.redis import RedisServer
from turnstate.infra.services.reports import SERVICES, Report
from turnstate.infra.services.s3 import S3Server
from turnstate.infra.services.server import Server

__all__ = ["SERVICES", "Cluster", "ComposeCluster", "Report", "cluster_in"]

_RUNS: Final = ("running", "silent")


class Cluster:
    """The services of one folder as processes, each in a folder of its own.

    They outlive who started them; `down` ends them. Their data stay.

    Args:
        folder: Where their folders are.
        fast: See KafkaServer.

    Example:
        ```
        cluster = Cluster(tmp_path)
        cluster.up(["kafka"])
        cluster.kafka.kill()  # as a crash does
        cluster.kafka.restart()
        cluster.down()
        ```
    """

    def __init__(self, folder: Path, *, fast: bool = False) -> None:
        self.folder = folder.absolute()
        self.kafka = KafkaServer(self.folder / "kafka", fast=fast)
        self.redis = RedisServer(self.folder / "redis")
        self.s3 = S3Server(self.folder / "s3")

    def up(self, names: Sequence[str] = SERVICES) -> list[Report]:
        """Start services, unless they run; return when they answer, or do not.

        One that cannot start does not hold up the others: its report has the
        error.
        """
        servers = [server for server in self._servers() if server.name in names]
        failed: dict[str, ServiceError] = {}
        with ThreadPoolExecutor(max_workers=len(SERVICES)) as pool:
            begun = [(server, pool.submit(server.start)) for server in servers]
        for server, end in begun:
            error = end.exception()
            if isinstance(error, OSError):
                error = ServiceError(server.name, f"{server.name}: {error}")
            if isinstance(error, ServiceError):
                failed[server.name] = error
            elif error is not None:
                raise error
        return [
            self._failed(server, failed[server.name])
            if server.name in failed
            else self._report(server)
            for server in self._servers()
        ]

    def down(self) -> list[Report]:
        """End all services that run: asked first, killed where that is not heard."""
        with ThreadPoolExecutor(max_workers=len(SERVICES)) as pool:
            list(pool.map(Server.stop, self._servers()))
        return self.status()

    def status(self) -> list[Report]:
        """Return what each service does."""
        return [self._report(server) for server in self._servers()]

    def _servers(self) -> tuple[Server, ...]:
        return (self.kafka, self.redis, self.s3)

    def _report(self, server: Server) -> Report:
        return Report(
            server.name,
            server.state,
            server.pid,
            str(server.folder.log),
            server.connection if server.was_started else {},
        )

    def _failed(self, server: Server, error: ServiceError) -> Report:
        return Report(
            server.name, "failed", server.pid, str(server.folder.log), error=error
        )


def cluster_in(
    folder: Path, names: Sequence[str] = SERVICES, *, docker: bool = False
) -> Cluster | ComposeCluster:
    """Return a folder's services: by Docker if asked for, or if nothing else can.

    What runs is left as it is: processes stay processes.

    Args:
        folder: Where their folders are.
        names: Which of them are wanted.
        docker: Take Docker, though processes would do.

    Raises:
        ServiceError: Docker is asked for while processes run.
    """
    processes, containers = Cluster(folder), ComposeCluster(folder)
    if containers.is_used:
        return containers
    if any(report.state in _RUNS for report in processes.status()):
        if docker:
            raise ServiceError(
                "docker",
                "the services run as processes",
                hint="turnstate cluster down, then up --docker",
            )
        return processes
    if docker or ("kafka" in names and _only_docker_can()):
        return containers
    return processes


def _only_docker_can() -> bool:
    try:
        programs.java()
        if not kafka_jars.are_fetched():
            programs.maven()
    except MissingProgramError:
        return programs.docker_answers()
    return False
