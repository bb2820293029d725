"""The samples folded by two workers of a cluster and by one process, to compare."""

import os
import socket
import subprocess
import time
from collections.abc import Generator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.cluster import PARTITIONS, Cluster, WorkerProcess, cluster_on
from support.commands import COMMAND, TIMEOUT_S
from turnstate.infra.services.ports import free_ports
from turnstate.replay.samples import sample_paths
from turnstate.streams.documents import Document, from_json, to_json
from turnstate.streams.embedded import messages
from turnstate.streams.embedded.access import open_store
from turnstate.streams.embedded.messages import Inbox, packed
from turnstate.streams.embedded.owner import OwnedStore
from turnstate.streams.kafka.cluster_reader import ClusterReader
from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.partitioning import partition_of_session
from turnstate.streams.kafka.receipts import Ack
from turnstate.streams.kafka.routing import Address, Routes
from turnstate.streams.kafka.sync_producer import LoopThread, SyncTurnProducer
from turnstate.streams.settings import Settings


@dataclass(frozen=True)
class Running:
    """Two workers with the samples folded, and the same in an embedded store."""

    cluster: Cluster
    thread: LoopThread
    environment: dict[str, str]
    embedded: OwnedStore
    metrics_port: int

    def reader(self, wait_s: float | None = None) -> ClusterReader:
        """Return a reader."""
        return ClusterReader(self.settings, wait_s=wait_s)

    @property
    def settings(self) -> ClusterSettings:
        """Of the cluster, as its workers have them."""
        return ClusterSettings.load(self.cluster.folder, self.environment)

    def routes(self) -> Routes:
        """Return who owns what, once both workers own something."""
        with self.reader() as reader:
            end = time.monotonic() + 40
            while True:
                routes = reader.routes()
                owners = routes.owners.values()
                if len(set(owners)) == 2 and len(owners) == PARTITIONS:
                    return routes
                assert time.monotonic() < end, routes
                time.sleep(0.1)

    def publish(self, data: bytes) -> Ack:
        """Publish one turn to both; return once Kafka has it."""
        self.embedded.publish([data])
        with SyncTurnProducer(self.cluster.settings) as producer:
            return producer.publish(data).result(20)

    @property
    def log(self) -> bytes:
        """The topic id of turns."""
        with self.reader() as reader:
            state = reader.state(*self.some_session())
        return bytes.fromhex(state["reflects"].split(":")[0])

    def sessions(self) -> int:
        """Return how many sessions there are."""
        return sum(1 for _ in self.embedded.sessions())

    def some_session(self, partition: int | None = None) -> tuple[str, str]:
        """Return a session that lies in a partition, or anywhere."""
        for row in self.embedded.sessions():
            name = row["tenant"], row["session"]
            if partition in (None, partition_of_session(*name, PARTITIONS)):
                return name
        raise AssertionError(f"no session in partition {partition}")

    def worker_of(self, partition: int) -> WorkerProcess:
        """Return the worker that has a partition open."""
        for worker in self.cluster.workers.values():
            if partition in worker.partitions():
                return worker
        raise AssertionError(f"nobody has partition {partition}")

    def quiet(self) -> None:
        """Wait until all that was published is folded."""
        self.thread.run(self.cluster.quiet())

    def cli(self, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
        """Run the command on the cluster."""
        return subprocess.run(
            [*COMMAND, *arguments, "--profile", "cluster"],
            capture_output=True,
            check=False,
            cwd=self.cluster.folder,
            timeout=TIMEOUT_S,
            env=self.environment,
        )


@contextmanager
def both_ways(kafka: str, folder: Path, **environment: str) -> Generator[Running]:
    """Fold the samples by two workers on a Kafka, and embedded; both stay open.

    Args:
        kafka: Where it is.
        folder: Where everything is kept.
        environment: More settings of the workers, and of their readers.
    """
    paths = [str(path) for path in sample_paths()]
    with ExitStack() as stack:
        thread = LoopThread("cluster")
        stack.callback(thread.close)
        opened = AsyncExitStack()
        stack.callback(lambda: thread.run(opened.aclose()))
        entered = opened.enter_async_context(cluster_on(kafka, folder, folder.name))
        cluster = thread.run(entered)
        (port,) = free_ports(1)
        metrics = {"TURNSTATE_METRICS_PORT": str(port)}
        first = cluster.worker("one", **environment, **metrics)
        second = cluster.worker("two", **environment)
        first.start()
        second.start()
        own = dict(second.environment)
        done = subprocess.run(
            [*COMMAND, "publish", *paths, "--format", "corpus", "--data", "embedded"],
            check=False,
            cwd=folder,
            timeout=TIMEOUT_S,
            env={k: v for k, v in os.environ.items() if not k.startswith("TURNSTATE")},
        )
        assert done.returncode == 0
        embedded = stack.enter_context(open_store(Settings(data=folder / "embedded")))
        assert isinstance(embedded, OwnedStore)
        running = Running(cluster, thread, own, embedded, port)
        done = running.cli("publish", *paths, "--format", "corpus")
        assert done.returncode == 0, done.stderr
        running.routes()
        yield running


def plain(document: Document) -> Document:
    """Return a document without what may differ between two ways to run."""
    left_out = {"reflects", "tier"}
    kept = {name: value for name, value in document.items() if name not in left_out}
    return from_json(to_json(kept))


def talking_to(address: Address) -> socket.socket:
    """Connect to a worker's query port."""
    return socket.create_connection(address, timeout=20)


def hello(running: Running, connection: socket.socket, **more: Any) -> Any:
    """Say hello as a reader does; return the error, if that is the answer."""
    arguments = {"protocol": messages.PROTOCOL, "log": running.log, **more}
    return asked(connection, messages.HELLO, arguments)


def asked(connection: socket.socket, name: Any, arguments: Any) -> Any:
    """Send one request; return what came, an error as itself."""
    connection.sendall(packed([1, name, arguments]))
    inbox = Inbox(connection)
    found: Any = None
    while True:
        _, kind, parts = inbox.next()
        if kind == messages.ERROR:
            return messages.error_of(parts)
        if kind == messages.END:
            return found
        found = parts


def hung_up(connection: socket.socket) -> bool:
    """Say whether the other side closes, whatever it says before."""
    try:
        while connection.recv(65536):
            pass
    except ConnectionResetError:
        pass
    return True
