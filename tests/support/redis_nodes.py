"""Redis servers as the hot tier meets them: in memory only, small, watched."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar

from turnstate.infra.services import programs
from turnstate.infra.services.ports import HOST
from turnstate.infra.services.redis import RedisServer, pongs
from turnstate.infra.services.redis_cluster import ask
from turnstate.infra.services.server import Command, Server

WITHIN_S = 30.0


def until(holds: Callable[[], bool], within_s: float = WITHIN_S) -> None:
    """Ask again until it is so."""
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, "it did not come to be in time"
        time.sleep(0.02)


class ForgetfulRedis(RedisServer):
    """One that writes nothing down: killed and started again, it is empty.

    Args:
        path: Its folder.
        words: More arguments of its command.
    """

    def __init__(self, path: Path, *words: str) -> None:
        super().__init__(path)
        self.words = words

    def command(self, ports: Mapping[str, int]) -> Command:
        alone = super().command(ports)
        return alone._replace(argv=[*alone.argv, "--appendonly", "no", *self.words])

    def ask(self, *words: str) -> str:
        """Return what it answers to a command."""
        return ask(self.port("redis"), *words)


class RedisSentinel(Server):
    """One that watches a master."""

    name: ClassVar[str] = "redis-sentinel"
    port_names: ClassVar[tuple[str, ...]] = ("sentinel",)
    master_port = 0

    @property
    def connection(self) -> dict[str, str]:
        return {"address": f"{HOST}:{self.port('sentinel')}"}

    def answers(self, ports: Mapping[str, int]) -> bool:
        return pongs(ports["sentinel"])

    def command(self, ports: Mapping[str, int]) -> Command:
        path = self.folder.data / "sentinel.conf"
        path.write_text(
            f"port {ports['sentinel']}\nbind {HOST}\n"
            f"sentinel monitor main {HOST} {self.master_port} 2\n"
            "sentinel down-after-milliseconds main 1000\n"
            "sentinel failover-timeout main 10000\n"
        )
        return Command([str(programs.redis()), str(path), "--sentinel"], {})


class Watched:
    """A master with one replica, and three Sentinels that watch over them."""

    def __init__(self, folder: Path) -> None:
        quick = ("--repl-diskless-sync-delay", "0")
        self.master = ForgetfulRedis(folder / "master", *quick)
        self.replica = ForgetfulRedis(folder / "replica", *quick)
        self.sentinels = [RedisSentinel(folder / f"sentinel-{at}") for at in range(3)]

    @property
    def url(self) -> str:
        hosts = ",".join(each.connection["address"] for each in self.sentinels)
        return f"redis+sentinel://{hosts}/main"

    def start(self) -> None:
        """Start all; return when each Sentinel knows the replica and the others."""
        self.master.start()
        port = self.master.port("redis")
        self.replica.words += ("--replicaof", f"{HOST} {port}")
        self.replica.start()
        until(
            lambda: "master_link_status:up" in self.replica.ask("INFO", "replication")
        )
        for sentinel in self.sentinels:
            sentinel.master_port = port
            sentinel.start()
        until(lambda: all(map(self._knows_all, self.sentinels)))

    def stop(self) -> bool:
        servers = (*self.sentinels, self.replica, self.master)
        in_order = [each.stop() for each in servers]
        return all(in_order)

    def _knows_all(self, sentinel: RedisSentinel) -> bool:
        told = ask(sentinel.port("sentinel"), "INFO", "sentinel")
        return "status=ok" in told and "slaves=1,sentinels=3" in told
