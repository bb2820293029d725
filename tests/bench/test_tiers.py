"""Reads of each tier where it is a service: S3, Redis, a cluster; and B3."""

import asyncio
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from support.hot_sessions import changes, opened, settings
from support.joint_write import Load, Result, spoken_sessions
from support.kafka_rates import end_count, latencies_ms, prepared, send_all, worker
from support.redis_nodes import ForgetfulRedis
from support.shared_services import started
from turnstate.agents.tiering.budget import RunBudget
from turnstate.infra.services.kafka import start_kafka
from turnstate.infra.services.s3 import BUCKET, S3Server, start_s3
from turnstate.schemas.ids import SessionName
from turnstate.storage.cold.counting import CountingObjects
from turnstate.storage.cold.sessions import ColdSessions
from turnstate.storage.hot.redis import RedisTier
from turnstate.storage.hot.redis_cache import HotCache
from turnstate.storage.tier import SessionChange
from turnstate.storage.warm.rocksdb import WarmStore
from turnstate.streams.bench.flat import TENANT, Spoken, filled
from turnstate.streams.bench.tier_reads import measured_reads
from turnstate.streams.embedded.owner import OwnedStore
from turnstate.streams.kafka.cluster_reader import ClusterReader
from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.topics import Topics, create_topics
from turnstate.streams.places import ENDPOINT_VARIABLE
from turnstate.streams.reading import StoreReader
from turnstate.streams.settings import Settings
from turnstate.streams.tiers.opening import OpenedTiers

pytestmark = pytest.mark.bench

LENGTHS: Final = (10, 10_000)
READS: Final = 1_000
WRITES_A_SECOND: Final = 5_000
WRITTEN_SESSIONS: Final = 500
WRITTEN_TURNS: Final = 200
WRITTEN_AT_ONCE: Final = 50

CLUSTER_WRITES_A_SECOND: Final = 1_000
"""Broker, worker and reader share this machine."""

LAST_ROUNDS: Final = 20
"""The last turns come one at a time, as in life: a backlog makes long frames."""

RUNS: Final = 3
RUN_S: Final = 12.0
TTL_S: Final = 2

Show = Callable[..., None]


@pytest.fixture(name="show")
def fixture_show(capsys: pytest.CaptureFixture[str]) -> Show:
    """Give what prints a figure past pytest."""

    def show(*words: object) -> None:
        with capsys.disabled():
            print(*words)

    return show


@pytest.fixture(name="s3", scope="module")
def fixture_s3(tmp_path_factory: pytest.TempPathFactory) -> Generator[S3Server]:
    server = started(start_s3, tmp_path_factory.mktemp("s3"))
    yield server
    server.stop()


@pytest.fixture(name="redis", scope="module")
def fixture_redis(
    tmp_path_factory: pytest.TempPathFactory,
) -> Generator[ForgetfulRedis]:
    def begin(at: Path) -> ForgetfulRedis:
        server = ForgetfulRedis(at)
        server.start()
        return server

    server = started(begin, tmp_path_factory.mktemp("redis"))
    yield server
    server.stop()


@pytest.fixture(name="bucket")
def fixture_bucket(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """Say in the environment how the server is reached; give the bucket's name."""
    monkeypatch.setenv(ENDPOINT_VARIABLE, s3.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.keys.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.keys.secret_key)
    return f"s3://{BUCKET}"


def middles(times_ms: Sequence[float]) -> str:
    """Return p50 and p99."""
    ordered = sorted(times_ms)
    p50, p99 = (ordered[int(len(ordered) * part)] for part in (0.5, 0.99))
    return f"{p50:.2f} / {p99:.2f} ms"


# -- cold in S3 ----------------------------------------------------------------


def test_state_reads_with_cold_in_s3(tmp_path: Path, bucket: str, show: Show) -> None:
    """As `turnstate bench tier-reads`, with the packs in a bucket."""
    given = Settings(data=tmp_path, cold=f"{bucket}/reads")
    report = measured_reads(given, "large", lambda done, total: None)
    for tier, at in report["p50_p99_ms"].items():
        for how, by_length in at.items():
            for length, (p50, p99) in by_length.items():
                show(f"{tier}, {how}, {length} turns: {p50:.2f} / {p99:.2f} ms")
    show("writes a second meanwhile:", report["wrote_a_second"])
    for p50, _ in report["p50_p99_ms"]["cold"]["alone"].values():
        assert p50 <= 100


def test_requests_of_a_cold_read(tmp_path: Path, bucket: str, show: Show) -> None:
    """Nothing cached but the manifest and the footers, which all sessions share."""
    asked: dict[str, list[int]] = {}
    given = Settings(data=tmp_path, cold=f"{bucket}/requests")
    with OwnedStore(given, serving=False) as store:
        for length in (10, 1_000, 10_000):
            filled(store, Spoken(), str(length), length)
        tiers = OpenedTiers(given, store, store.clock)
        month_ms = 30 * 86_400_000
        tiers.job.run(RunBudget(), at_ms=store.clock.now_ms() + month_ms)
        counted = CountingObjects(store.tiering.packs.objects)
        store.tiering.packs.objects = counted
        # Nobody is told of it: what it reads stays cold.
        reader = StoreReader(store.warm, store.engine, store.graph)
        reads: dict[str, Callable[[str], Any]] = {
            "state": lambda session: reader.state(TENANT, session),
            "state at the middle": lambda session: reader.state(
                TENANT, session, version=int(session) // 2
            ),
            "first 50 turns": lambda session: reader.turns(TENANT, session, limit=50),
            "whole session": lambda session: reader.turns(
                TENANT, session, limit=int(session)
            ),
        }
        for name, read in reads.items():
            for length in (10, 1_000, 10_000):
                store.warm.below = ColdSessions(store.tiering.packs)
                before = counted.traffic()["read"].requests
                read(str(length))
                took = counted.traffic()["read"].requests - before
                asked.setdefault(name, []).append(took)
    for name, counts in asked.items():
        show(f"{name}: {counts} requests at 10, 1 000 and 10 000 turns")


# -- hot in Redis ----------------------------------------------------------------


def long_session(length: int) -> list[SessionChange]:
    return changes(SessionName("t", str(length)), length)


def written() -> list[list[SessionChange]]:
    """Return groups of changes of many sessions, as a round writes them."""
    each = [
        changes(SessionName("t", f"written-{number}"), WRITTEN_TURNS)
        for number in range(WRITTEN_SESSIONS)
    ]
    flat = [session[at] for at in range(WRITTEN_TURNS) for session in each]
    groups = range(0, len(flat), WRITTEN_AT_ONCE)
    return [flat[at : at + WRITTEN_AT_ONCE] for at in groups]


async def timed_reads(
    read: Callable[[bytes], Any], keys: Sequence[bytes]
) -> list[list[float]]:
    times: list[list[float]] = [[] for _ in keys]
    for _ in range(READS):
        for place, key in enumerate(keys):
            start = time.perf_counter()
            found = await read(key)
            times[place].append(1e3 * (time.perf_counter() - start))
            assert found is not None
        await asyncio.sleep(0)
    return times


async def steadily(
    tier: RedisTier, groups: list[list[SessionChange]], done: list[int]
) -> None:
    """Write at a rate until cancelled; tell how many were written."""
    start = time.perf_counter()
    for number, group in enumerate(groups, 1):
        await tier.commit(group)
        done.append(len(group))
        due = start + number * WRITTEN_AT_ONCE / WRITES_A_SECOND
        await asyncio.sleep(max(due - time.perf_counter(), 0))
    raise AssertionError("there were too few writes for so many reads")


async def redis_reads(url: str, name: str, show: Show) -> None:
    groups = written()
    async with opened(settings(url)) as tier:
        for length in LENGTHS:
            told = long_session(length)
            for at in range(0, length, 500):
                await tier.commit(told[at : at + 500])
        read = tier.read if name == "RedisTier" else HotCache(tier).read
        keys = [SessionName("t", str(length)).key() for length in LENGTHS]
        alone = await timed_reads(read, keys)
        done: list[int] = []
        start = time.perf_counter()
        writing = asyncio.create_task(steadily(tier, groups, done))
        busy = await timed_reads(read, keys)
        rate = sum(done) / (time.perf_counter() - start)
        assert not writing.done()
        writing.cancel()
        await asyncio.wait([writing])
        for length, one, two in zip(LENGTHS, alone, busy, strict=True):
            told_of = f"under {rate:,.0f} writes/s {middles(two)}"
            show(f"{name}.read, {length} turns: alone {middles(one)}, {told_of}")


@pytest.mark.parametrize("name", ["RedisTier", "HotCache"])
def test_state_reads_from_redis(name: str, redis: ForgetfulRedis, show: Show) -> None:
    """One round trip for head and last frames, by the one who writes there."""
    asyncio.run(redis_reads(redis.url, name, show))


@contextmanager
def sending(cluster: ClusterSettings, rows: list[Any]) -> Generator[None]:
    """Send turns at a rate while a block runs."""
    failed: list[BaseException] = []

    def send() -> None:
        try:
            asyncio.run(latencies_ms(cluster, rows, CLUSTER_WRITES_A_SECOND))
        except BaseException as error:  # noqa: BLE001 - told below
            failed.append(error)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        thread.join()
    assert not failed, failed


def test_state_reads_through_a_cluster(
    redis: ForgetfulRedis, tmp_path: Path, show: Show
) -> None:
    """`ClusterReader.state`, answered by Redis and by nobody else."""
    kafka = started(lambda at: start_kafka(at, fast=False), tmp_path / "kafka")
    environment = {
        "TURNSTATE_KAFKA": kafka.bootstrap,
        "TURNSTATE_PARTITIONS": "4",
        "TURNSTATE_PREFIX": "hot.",
        "TURNSTATE_GROUP": "bench-hot",
        "TURNSTATE_REDIS": redis.url,
        "TURNSTATE_HOT_TIMEOUT_MS": "2000",
    }
    cluster = ClusterSettings.load(tmp_path, environment)
    asyncio.run(create_topics(cluster))
    spoken = Spoken()
    turns = [turn for n in LENGTHS for turn in spoken.turns(str(n), 0, n)]
    lasts = [
        [turn for n in LENGTHS for turn in spoken.turns(str(n), n + at, 1)]
        for at in range(LAST_ROUNDS)
    ]
    more = [
        turn
        for at in range(CLUSTER_WRITES_A_SECOND * 8 // WRITTEN_SESSIONS)
        for number in range(WRITTEN_SESSIONS)
        for turn in spoken.turns(f"written-{number}", at, 1)
    ]
    process = worker(tmp_path / "data", "w", environment)
    try:
        asyncio.run(folded(cluster, prepared(turns, 4)))
        for last in lasts:
            asyncio.run(folded(cluster, prepared(last, 4), pause_s=0.1))
        with ClusterReader(cluster) as reader:
            alone = cluster_reads(reader, READS)
            with sending(cluster, prepared(more, 4)):
                busy = cluster_reads(reader, READS)
            assert reader.hot is not None
            show(f"from hot {reader.hot.hits}, from the worker {reader.hot.misses}")
    finally:
        process.terminate()
        process.wait(60)
        kafka.stop()
    for length, one, two in zip(LENGTHS, alone, busy, strict=True):
        told = f"under {CLUSTER_WRITES_A_SECOND} turns/s {middles(two)}"
        show(f"ClusterReader.state, {length} turns: alone {middles(one)}, {told}")


async def folded(
    cluster: ClusterSettings, rows: list[Any], *, pause_s: float = 3.0
) -> None:
    """Send turns; return once no more frames come on `deltas`."""
    await send_all(cluster, rows)
    async with end_count(cluster, Topics.of(cluster).deltas) as count:
        before = -1
        while before != (now := await count()) or not now:
            before = now
            await asyncio.sleep(pause_s)


def cluster_reads(reader: ClusterReader, rounds: int) -> list[list[float]]:
    """Read until all comes from hot, then time it."""
    end = time.monotonic() + 30
    for length in LENGTHS:
        while reader.state(TENANT, str(length))["tier"] != "hot":
            assert time.monotonic() < end, "hot does not answer"
            time.sleep(0.1)
    times: list[list[float]] = [[] for _ in LENGTHS]
    for _ in range(rounds):
        for place, length in enumerate(LENGTHS):
            start = time.perf_counter()
            reader.state(TENANT, str(length))
            times[place].append(1e3 * (time.perf_counter() - start))
    return times


# -- hot and warm together (B3) ---------------------------------------------------


async def one_run(url: str, folder: Path, sessions: Any, *, joint: bool) -> Result:
    warm = WarmStore(folder, log_name="log")
    try:
        async with opened(settings(url, ttl_s=TTL_S)) as tier:
            load = Load(tier, warm, sessions, joint=joint)
            return await load.run(RUN_S, seed=3)
    finally:
        warm.close()


def test_hot_and_warm_written_together(
    redis: ForgetfulRedis, tmp_path: Path, show: Show
) -> None:
    """The third decay point against hot alone, in turn; B3."""
    sessions = spoken_sessions()
    found: dict[bool, list[Result]] = {False: [], True: []}
    for number in range(RUNS):
        for joint in (False, True) if number % 2 else (True, False):
            folder = tmp_path / f"{number}-{joint}"
            run = one_run(redis.url, folder, sessions, joint=joint)
            found[joint].append(asyncio.run(run))
    for joint, results in found.items():
        for each in results:
            reads = len(each.reads_ms)
            show(
                "hot and warm" if joint else "hot alone",
                f"reads p50 {each.quantile(0.5):.2f} p99 {each.quantile(0.99):.2f}"
                f" p99.9 {each.quantile(0.999):.2f} ms,"
                f" {each.writes_a_second:,.0f} writes/s, {reads:,} reads,"
                f" errors {each.errors} = {each.errors / reads:.3%}",
            )
    worst = max(each.errors for each in found[True])
    assert worst < min(each.errors for each in found[False])
