"""A worker that runs on topics of its own, for tests without a loop of their own."""

import asyncio
import json
from collections.abc import Generator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from support.cluster import Cluster, cluster_on
from turnstate.streams.documents import Document
from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.deltas import Deltas
from turnstate.streams.kafka.sync_producer import LoopThread


@dataclass(frozen=True)
class Running:
    """A worker on topics of its own, and the loop that its cluster lives in."""

    settings: ClusterSettings
    folder: Path
    cluster: Cluster
    thread: LoopThread

    async def quiet(self) -> None:
        """Wait until all that was published is folded."""
        await asyncio.wrap_future(self.thread.submit(self.cluster.quiet()))


@contextmanager
def running_worker(bootstrap: str, folder: Path) -> Generator[Running]:
    """Start a worker on a Kafka; end it when it is over."""
    thread = LoopThread("cluster")
    opened = AsyncExitStack()
    try:
        entered = cluster_on(bootstrap, folder, f"running-{uuid4().hex[:8]}")
        cluster = thread.run(opened.enter_async_context(entered))
        cluster.worker("one").start()
        yield Running(cluster.settings, folder, cluster, thread)
    finally:
        thread.run(opened.aclose())
        thread.close()


def line(**fields: Any) -> bytes:
    """Return a turn as JSON."""
    return json.dumps({"tenant": "acme", "role": "user", **fields}).encode()


async def no_gap(tenant: str, session: str) -> Document:
    """Stand for the state where none is to be asked for."""
    raise AssertionError(f"no gap was expected in {tenant} {session}")


async def told_of(running: Running, session: str, token: str) -> list[Document]:
    """Return what the feed tells of a session after a token."""
    feed = Deltas(running.settings, state_of=no_gap)
    return [event async for event in feed.session("acme", session, token, follow=False)]
