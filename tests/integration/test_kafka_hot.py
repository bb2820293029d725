"""Workers with Redis above them: reads come from there, and nothing waits for it."""

import time
import urllib.request
from collections.abc import Generator
from typing import Any

import pytest

from support.both_ways import Running, both_ways, plain
from support.cluster import PARTITIONS
from support.told import turn
from turnstate.infra.services.redis import RedisServer, start_redis
from turnstate.streams.kafka.cluster_reader import ClusterReader
from turnstate.streams.kafka.partitioning import partition_of_session

LIMIT_S = 1.0
"""What Redis may take of a round here: the machine is small, and shared."""


@pytest.fixture(name="redis", scope="module")
def fixture_redis(
    tmp_path_factory: pytest.TempPathFactory,
) -> Generator[RedisServer]:
    """A Redis of one's own, to be killed."""
    server = start_redis(tmp_path_factory.mktemp("redis"))
    yield server
    server.stop()


@pytest.fixture(name="running", scope="module")
def fixture_running(
    kafka: str, redis: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Running]:
    folder = tmp_path_factory.mktemp("hot")
    told = {
        "TURNSTATE_REDIS": redis.url,
        "TURNSTATE_HOT_TIMEOUT_MS": str(int(LIMIT_S * 1000)),
    }
    with both_ways(kafka, folder, **told) as running:
        running.quiet()
        yield running


EVERY = 8
"""Of the sessions that are read again until hot has them."""


def from_hot(reader: ClusterReader, name: tuple[str, str], within_s: float = 10) -> Any:
    """Return the state of a session once hot answers for it."""
    end = time.monotonic() + within_s
    while True:
        state = reader.state(*name)
        if state["tier"] == "hot":
            return state
        assert time.monotonic() < end, f"{name} does not come from hot"
        time.sleep(0.05)


def hot_sessions(running: Running) -> int:
    with running.reader() as reader:
        found: int = reader.stats()["tiers"]["hot"]["sessions"]
        return found


def test_every_session_reads_from_hot_as_in_one_process(running: Running) -> None:
    rows = list(running.embedded.sessions())
    names = [(row["tenant"], row["session"]) for row in rows]
    with running.reader() as reader:
        wanted = {name: plain(running.embedded.state(*name)) for name in names}
        for name in names:
            assert plain(reader.state(*name)) == wanted[name]
        # What came in many rounds is there; what is not whole is filled when asked.
        for name in names[::EVERY]:
            state = from_hot(reader, name)
            assert plain(state) == wanted[name]
            log, partition, offset = state["reflects"].split(":")
            assert bytes.fromhex(log) == running.log
            assert int(partition) == partition_of_session(*name, PARTITIONS)
            assert int(offset) >= 0
        assert reader.hot is not None
        assert reader.hot.hits >= len(names[::EVERY])
        # What hot does not have goes to the owner.
        version = running.embedded.state(*names[0])["version"]
        if version > 1:
            then = reader.state(*names[0], version=1)
            assert (then["version"], then["tier"]) == (1, "warm")
        # On a busy machine a round may have gone on without Redis.
        listed = list(reader.sessions(tier="hot"))
        assert len(listed) == hot_sessions(running) >= len(names[::EVERY])
        assert {row["tier"] for row in listed} == {"hot"}


def test_a_reader_reads_its_own_writes_and_never_goes_back(running: Running) -> None:
    with running.reader() as reader:
        log = running.log.hex()
        versions: list[int] = []
        for number in range(1, 30):
            data = turn(number, "w", "own", time=1_700_000_000_000 + number)
            ack = running.publish(data)
            token = f"{log}:{ack.partition}:{ack.offset}"
            assert reader.reach(tenant="own", session="w", at_least=token)["reached"]
            state = reader.state("own", "w")
            assert state["version"] == number
            versions.append(state["version"])
        assert versions == sorted(versions)
        assert plain(from_hot(reader, ("own", "w"))) == plain(
            running.embedded.state("own", "w")
        )


def test_an_erased_session_is_not_read_from_hot(running: Running) -> None:
    running.publish(turn(1, "gone", "own", content="4711", time=1_700_000_000_001))
    running.quiet()
    with running.reader() as reader:
        from_hot(reader, ("own", "gone"))
        running.publish(b'{"tenant":"own","session":"gone","role":"system","op":"erase"}')
        running.publish(turn(1, "gone", "own", content="new", time=1_700_000_000_002))
        running.quiet()
        state = from_hot(reader, ("own", "gone"))
        assert (state["incarnation"], state["version"]) == (2, 1)
        assert [each["content"] for each in state["turns"]] == ["new"]


def test_without_redis_turns_are_folded_and_read(
    running: Running, redis: RedisServer
) -> None:
    name = ("own", "away")
    running.publish(turn(1, "away", "own", time=1_700_000_000_001))
    running.quiet()
    with running.reader() as reader:
        from_hot(reader, name)
        before = len(_said(running, "hot.away"))
        redis.kill()
        began = time.monotonic()
        for number in range(2, 12):
            running.publish(turn(number, "away", "own", time=1_700_000_000_000))
        running.quiet()
        assert time.monotonic() - began < 10
        assert reader.state(*name)["version"] == 11
        assert reader.state(*name)["tier"] == "warm"
        assert 1 <= len(_said(running, "hot.away")) - before <= 2
        # It comes back empty: nothing of before is an answer.
        for path in redis.folder.data.rglob("*"):
            if path.is_file():
                path.unlink()
        redis.restart()
        assert reader.state(*name)["version"] == 11
        for number in range(12, 16):
            running.publish(turn(number, "away", "own", time=1_700_000_000_000))
        running.quiet()
        for _ in range(2):
            assert reader.state(*name)["version"] == 15
        assert plain(from_hot(reader, name)) == plain(running.embedded.state(*name))
        some = running.some_session()
        for _ in range(2):
            reader.state(*some)
        assert plain(from_hot(reader, some)) == plain(running.embedded.state(*some))


def test_what_redis_lost_is_not_served_though_it_looks_whole(
    running: Running, redis: RedisServer
) -> None:
    """A server that went back in time, as after a failover: old heads, old marks."""
    name = ("own", "back")
    running.publish(turn(1, "back", "own", time=1_700_000_000_001))
    running.quiet()
    with running.reader() as reader:
        from_hot(reader, name)
    time.sleep(1.1)
    kept = {
        path: path.read_bytes()
        for path in redis.folder.data.rglob("*")
        if path.is_file()
    }
    running.publish(turn(2, "back", "own", time=1_700_000_000_002))
    running.quiet()
    redis.kill()
    for path in redis.folder.data.rglob("*"):
        if path.is_file():
            path.unlink()
    for path, data in kept.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    time.sleep(2.5)  # the mark that it has is old by then, by the TTL it shows
    redis.restart()
    end = time.monotonic() + 6
    while time.monotonic() < end:
        with running.reader() as reader:
            assert reader.state(*name)["version"] == 2
        time.sleep(0.1)


def test_a_partition_that_moves_begins_anew_in_hot(running: Running) -> None:
    number = partition_of_session("own", "moves", PARTITIONS)
    running.publish(turn(1, "moves", "own", time=1_700_000_000_001))
    running.quiet()
    with running.reader() as reader:
        from_hot(reader, ("own", "moves"))
        worker = running.worker_of(number)
        worker.kill()
        try:
            running.publish(turn(2, "moves", "own", time=1_700_000_000_002))
            running.quiet()
            assert reader.state("own", "moves")["version"] == 2
            state = from_hot(reader, ("own", "moves"))
            assert plain(state) == plain(running.embedded.state("own", "moves"))
        finally:
            worker.start()
    running.routes()
    assert not _said(running, "hot.ahead")


def _said(running: Running, event: str) -> list[Any]:
    workers = running.cluster.workers.values()
    said = [line for worker in workers for line in worker.said()]
    return [line for line in said if line.get("event") == event]


def _metrics(running: Running) -> str:
    url = f"http://127.0.0.1:{running.metrics_port}/metrics"
    with urllib.request.urlopen(url, timeout=5) as answer:
        text: str = answer.read().decode()
    return text


def test_metrics_tell_of_hot(running: Running) -> None:
    text = _metrics(running)
    for name in ("turnstate_hot_reads_total", "turnstate_hot_filled_sessions_total"):
        assert name in text


