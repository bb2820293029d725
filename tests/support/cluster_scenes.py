"""Scenes with workers on a Kafka: topics of one's own, turns, and a comparison."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from itertools import islice
from pathlib import Path

from support.cluster import Cluster, Sent, Taken, WorkerProcess, cluster_on
from support.cluster_checks import Checked, check_cluster
from support.dialogues import endless_turns
from turnstate.schemas.wire.json import draft_from_json

Scenario = Callable[[Cluster], Awaitable[None]]


def play(
    bootstrap: str, folder: Path, scenario: Scenario, *, partitions: int = 2
) -> None:
    """Run a scenario with topics and a group of its own."""
    name = f"w{uuid.uuid4().hex[:10]}"

    async def run() -> None:
        async with cluster_on(bootstrap, folder, name, partitions=partitions) as it:
            await scenario(it)

    asyncio.run(run())


def dialogue(seed: int, count: int) -> list[Sent]:
    """Return turns of real dialogues, keyed as producers key them."""
    lines = islice(endless_turns(seed), count)
    return [Sent(line, draft_from_json(line).key) for line in lines]


async def published(cluster: Cluster, records: list[Sent]) -> list[Taken]:
    """Publish good turns; return what the brokers acknowledged."""
    taken: list[Taken] = []
    for sent, place in zip(records, await cluster.send(records), strict=True):
        assert sent.value is not None
        draft = draft_from_json(sent.value)
        taken.append(Taken(*place, *draft.name, str(draft.turn_id)))
    return taken


async def ended(worker: WorkerProcess, timeout_s: float = 60) -> int:
    """Wait for the end of a worker; return its exit code."""
    return await asyncio.to_thread(worker.wait, timeout_s)


async def stopped(worker: WorkerProcess, timeout_s: float = 60) -> None:
    """Tell a worker to end; it must do so in order."""
    code = await asyncio.to_thread(worker.stop, timeout_s)
    assert code == 0, f"{code}: {worker.last_words()}"


async def finished(
    cluster: Cluster, worker: WorkerProcess, taken: list[Taken]
) -> Checked:
    """Wait until all is folded, end the worker in order, compare everything."""
    await cluster.quiet()
    await stopped(worker)
    return await check_cluster(cluster, taken)
