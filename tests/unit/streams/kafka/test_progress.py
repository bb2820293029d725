"""Health is progress: what is stuck, what only waits, what is being restored."""

import asyncio
import socket
import urllib.request
from urllib.error import HTTPError

import pytest

from turnstate.schemas.errors import UnavailableError
from turnstate.streams.documents import from_json
from turnstate.streams.kafka.metrics_server import MetricsServer
from turnstate.streams.kafka.progress import Reading, WorkerProgress


class Watched:
    """A progress whose clock is told."""

    def __init__(self) -> None:
        self.now = 0.0
        self.progress = WorkerProgress(30.0, lambda: self.now)

    def note(
        self, folded: int | None, end: int, restored: int = 0, *, fresh: bool = True
    ) -> bool:
        self.progress.note({0: Reading(folded, restored, fresh)}, {0: end})
        return self.progress.is_well


def test_a_partition_with_lag_has_to_move() -> None:
    watched = Watched()
    assert watched.note(None, 10)
    for at in range(1, 10):
        watched.now += 20
        assert watched.note(at, 10 + at)
    watched.now += 31
    assert not watched.note(9, 20)
    assert watched.note(10, 20)


def test_what_has_nothing_to_do_is_well_and_has_its_time_when_something_comes() -> None:
    watched = Watched()
    for _ in range(10):
        watched.now += 20
        assert watched.note(9, 10)
    assert watched.note(9, 11)
    watched.now += 29
    assert watched.note(9, 11)
    watched.now += 2
    assert not watched.note(9, 11)


def test_a_restore_is_progress_and_one_that_stands_is_not() -> None:
    watched = Watched()
    for restored in range(0, 100, 10):
        watched.now += 20
        assert watched.note(None, 0, restored, fresh=False)
    watched.now += 31
    assert not watched.note(None, 0, 90, fresh=False)


def test_a_partition_that_went_is_forgotten() -> None:
    watched = Watched()
    watched.note(1, 10)
    watched.now += 31
    assert not watched.note(1, 10)
    watched.progress.note({}, {0: 10})
    assert watched.progress.document() == {"ok": True, "partitions": []}


async def _answers(watched: Watched) -> list[tuple[int, bytes]]:
    server = MetricsServer(lambda: "turnstate_turns_total 3.0\n", watched.progress)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with pytest.raises(UnavailableError, match="cannot be listened at"):
            await server.start("127.0.0.1", taken.getsockname()[1])
        port = taken.getsockname()[1]
    await server.start("127.0.0.1", port)
    found: list[tuple[int, bytes]] = []

    def read(path: str) -> None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as answer:
                found.append((answer.status, answer.read()))
        except HTTPError as error:
            with error:
                found.append((error.code, error.read()))

    try:
        await asyncio.to_thread(read, "/metrics")
        await asyncio.to_thread(read, "/health")
        watched.now += 31
        await asyncio.to_thread(read, "/health")
        await asyncio.to_thread(read, "/state")
    finally:
        await server.close()
    return found


def test_the_endpoint_says_503_for_what_is_stuck() -> None:
    watched = Watched()
    watched.note(1, 10)
    metrics, well, stuck, other = asyncio.run(_answers(watched))
    assert metrics == (200, b"turnstate_turns_total 3.0\n")
    assert well[0] == 200
    assert stuck[0] == 503
    (row,) = from_json(stuck[1])["partitions"]
    assert (row["lag"], row["stuck"], row["still_s"]) == (8, True, 31.0)
    assert other[0] == 404
