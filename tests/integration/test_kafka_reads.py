"""Reads of a cluster answer as one process does, also while partitions move."""

import json
import signal
import threading
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from support.both_ways import Running, asked, hello, plain, talking_to
from support.cluster import PARTITIONS, cluster_on
from support.told import turn
from turnstate.schemas.errors import (
    InvalidInputError,
    NotFoundError,
    UnavailableError,
)
from turnstate.streams import client
from turnstate.streams.embedded import messages
from turnstate.streams.embedded.messages import Inbox, packed
from turnstate.streams.kafka.cluster_reader import ClusterReader
from turnstate.streams.kafka.partitioning import partition_of_session
from turnstate.streams.kafka.sync_producer import LoopThread, SyncTurnProducer
from turnstate.streams.settings import Settings

SESSION_S = 2.0
"""The session time-out that tests give workers."""

IN_PASSING = {
    "no_owner",
    "not_fresh",
    "not_here",
    "rebalancing",
    "unavailable",
    "worker_lost",
    "worker_silent",
}
"""What a reader without patience may meet while a partition moves."""


@pytest.fixture(name="asked_of")
def fixture_asked_of(
    running: Running, told: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    """Run a command on the cluster, in this process; return code and document."""
    for name, value in running.environment.items():
        if name.startswith("TURNSTATE"):
            monkeypatch.setenv(name, value)

    def asked_of(*arguments: str) -> Any:
        return told(*arguments, "--profile", "cluster")

    return asked_of


# -- the same answers ---------------------------------------------------------------


def test_every_session_reads_as_in_one_process(running: Running) -> None:
    rows = 0
    with running.reader() as reader:
        listed = list(reader.sessions())
        assert [plain(row) for row in listed] == [
            plain(row) for row in running.embedded.sessions()
        ]
        for row in listed:
            name = row["tenant"], row["session"]
            state = reader.state(*name)
            log, partition, offset = state["reflects"].split(":")
            assert len(bytes.fromhex(log)) == 16
            assert int(partition) == partition_of_session(*name, PARTITIONS)
            assert int(offset) >= 0
            assert plain(state) == plain(running.embedded.state(*name))
            rows += 1
            if rows % 20:
                continue
            for version in (1, state["version"] // 2):
                then = reader.state(*name, version=version)
                assert plain(then) == plain(
                    running.embedded.state(*name, version=version)
                )
            assert plain(reader.turns(*name, at=1, limit=5)) == plain(
                running.embedded.turns(*name, at=1, limit=5)
            )
            assert reader.history(*name)["versions"][-1]["to"] == state["version"]
            assert reader.head(*name).version == state["version"]
            context = reader.context(*name, budget_tokens=200)
            assert plain(context) == plain(
                running.embedded.context(*name, budget_tokens=200)
            )
    assert rows == running.sessions()


def test_lists_and_totals_are_of_all_workers(running: Running) -> None:
    with running.reader() as reader:
        for options in (
            {"tenant": "irc"},
            {"tenant": "irc", "prefix": "irc-dev"},
            {"prefix": "m"},
            {"tenant": "nobody"},
        ):
            mine = [plain(row) for row in reader.sessions(**options)]
            assert mine == [
                plain(row) for row in running.embedded.sessions(**options)
            ]
        count = running.sessions()
        tiers = [len(list(reader.sessions(tier=tier))) for tier in ("hot", "warm")]
        assert sum(tiers) == count
        total, here = reader.stats(), running.embedded.stats()
        assert set(total) <= set(here)
        for name in ("sessions", "turns", "text_bytes", "dead_letters"):
            assert total[name] == here[name], name
        assert total["state_bytes"] > 0
        assert total["disk_bytes"] > total["state_bytes"]
        told: list[int] = []
        checked = reader.verify(progress=told.append)
        assert (checked["sessions"], checked["bad"]) == (count, [])
        assert checked["versions"] == total["turns"]
        assert told == sorted(told)
        assert told[-1] == count
        assert reader.verify(tenant="irc")["sessions"] == len(
            list(running.embedded.sessions(tenant="irc"))
        )
        positions = reader.positions()
        assert [row["partition"] for row in positions] == list(range(6))
        assert all(row["fresh"] for row in positions)


def test_the_commands_read_the_cluster(
    running: Running, asked_of: Callable[..., Any]
) -> None:
    def document(*arguments: str) -> Any:
        code, found = asked_of(*arguments)
        assert code == 0, found
        return found

    tenant, session = running.some_session(3)
    here = running.embedded.state(tenant, session)
    assert plain(document("state", tenant, session)) == plain(here)
    turns = document("turns", tenant, session)["turns"]
    assert len(turns) == here["turn_count"]
    assert document("history", tenant, session)["versions"]
    assert document("sessions", "--tenant", tenant)["sessions"]
    assert document("stats")["sessions"] == running.sessions()
    assert document("verify", "--tenant", tenant)["bad"] == []
    assert document("context", tenant, session, "--budget-tokens", "50")["tokens"]
    code, missing = asked_of("state", tenant, "nobody")
    assert (code, missing["error"]["code"]) == (3, "not_found")
    done = running.cli("tail", tenant, session, "--from", "0", "--no-follow", "--json")
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [event["version"] for event in events] == list(range(1, here["version"] + 1))
    assert events[-1]["turn"]["turn_id"] == turns[-1]["turn_id"]


def test_what_does_not_work_on_a_cluster_says_so(
    running: Running, asked_of: Callable[..., Any]
) -> None:
    for arguments in (
        ("rollback", "t", "s", "1"),
        ("fork", "t", "s", "b", "--version", "1"),
        ("end", "t", "s"),
        ("seal",),
        ("export", "all.tsrec"),
    ):
        code, document = asked_of(*arguments)
        assert code == 6
        message = document["error"]["message"]
        assert message == f"{arguments[0]} does not work on a cluster"
    code, document = asked_of("verify", "--repair")
    assert code == 6
    assert "verify --repair does not" in document["error"]["message"]
    with running.reader() as reader:
        with pytest.raises(UnavailableError, match="trim-log does not work"):
            reader.trim_log(1)
        with pytest.raises(UnavailableError, match="TurnProducer"):
            reader.publish([b"{}"])
        with pytest.raises(NotFoundError):
            reader.state("irc", "nobody")
        with pytest.raises(InvalidInputError, match="session is empty"):
            reader.state("irc", "")


def test_a_client_reads_its_own_writes(
    running: Running, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in running.environment.items():
        if name.startswith("TURNSTATE"):
            monkeypatch.setenv(name, value)
    settings = Settings(data=tmp_path, profile="cluster")
    ack = running.publish(timed(1, "w"))
    with client.open(settings=settings) as cluster:
        log = running.log.hex()
        token = f"{log}:{ack.partition}:{ack.offset}"
        state = cluster.state("own", "w", at_least=token)
        assert state["turns"][0]["content"] == "turn 1 of w"
        assert cluster.state("own", "w", at_least=1)["version"] == 1
        with pytest.raises(UnavailableError, match="has not come to"):
            cluster.store.reach(
                tenant="own", session="w", at_least=2, timeout_ms=50
            )
        with pytest.raises(InvalidInputError, match="another log"):
            cluster.state("own", "w", at_least=f"{'0' * 32}:0:1")
        events = cluster.subscribe("own", "w", token="0", follow=False)
        assert [event["version"] for event in events] == [1]
        everything = cluster.subscribe("own", token="0", follow=False)
        assert [event["session"] for event in everything] == ["w"]


def timed(number: int, session: str) -> bytes:
    """Return a turn that is the same whenever it comes."""
    return turn(number, session, "own", time=1_700_000_000_000 + number)


# -- partitions that move -------------------------------------------------------------


def test_a_killed_workers_partitions_answer_elsewhere(running: Running) -> None:
    number = next(iter(running.routes().owners))
    name = running.some_session(number)
    digest = running.embedded.state(*name)["digest"]
    worker = running.worker_of(number)
    seen: list[str] = []
    ended = threading.Event()

    def keep_asking() -> None:
        with running.reader(wait_s=0.3) as reader:
            while not ended.is_set():
                try:
                    answer = reader.state(*name)
                    seen.append("fresh" if answer["digest"] == digest else "stale")
                except UnavailableError as error:
                    seen.append(error.code)

    asking = threading.Thread(target=keep_asking)
    asking.start()
    try:
        with running.reader() as reader:
            assert reader.state(*name)["digest"] == digest
            worker.kill()
            began = time.monotonic()
            # The same reader, which knows the address of the dead one.
            assert reader.state(*name)["digest"] == digest
            assert time.monotonic() - began < SESSION_S + 10
            assert len(list(reader.sessions())) == running.sessions()
    finally:
        ended.set()
        asking.join(30)
        worker.start()
    assert "stale" not in seen
    assert set(seen) <= {"fresh"} | IN_PASSING, set(seen)
    running.routes()


def test_a_worker_that_slept_does_not_answer_as_the_owner(running: Running) -> None:
    routes = running.routes()
    number, address = next(iter(routes.owners.items()))
    worker = running.worker_of(number)
    session = next(
        f"slept-{at}"
        for at in range(1000)
        if partition_of_session("own", f"slept-{at}", PARTITIONS) == number
    )
    running.publish(timed(1, session))
    running.quiet()
    with running.reader() as reader, talking_to(address) as asleep:
        hello(running, asleep)
        worker.signal(signal.SIGSTOP)
        running.publish(timed(2, session))
        end = time.monotonic() + 30
        while reader.state("own", session)["version"] < 2:
            assert time.monotonic() < end
        # In its buffer before it wakes: it is the first thing that it sees.
        arguments = {"tenant": "own", "session": session}
        asleep.sendall(packed([2, "state", arguments]))
        worker.signal(signal.SIGCONT)
        _, kind, parts = Inbox(asleep).next()
        assert kind == messages.ERROR
        assert messages.error_of(parts).code == "not_fresh"
    running.routes()


def test_a_worker_that_does_not_own_says_whose_it_is_not(running: Running) -> None:
    routes = running.routes()
    first = routes.owners[0]
    number = next(n for n, address in routes.owners.items() if address != first)
    tenant, session = running.some_session(number)
    with talking_to(first) as connection:
        hello(running, connection)
        arguments = {"tenant": tenant, "session": session}
        error = asked(connection, "state", arguments)
    assert isinstance(error, UnavailableError)
    assert (error.code, error.field) == ("not_here", "partition")
    assert f"partition {number} " in error.message


def test_nobody_runs(running: Running) -> None:
    settings = running.cluster.settings
    lonely = type(settings)(
        bootstrap=settings.bootstrap,
        group=f"{settings.group}-nobody",
        prefix=settings.prefix,
        partitions=settings.partitions,
    )
    with (
        ClusterReader(lonely, wait_s=5) as reader,
        pytest.raises(UnavailableError, match="no worker runs"),
    ):
        reader.state("t", "s")


def test_a_worker_that_restarts_in_time_is_found_at_its_new_address(
    kafka: str, tmp_path: Path
) -> None:
    name = f"restarts-{uuid4().hex[:8]}"
    thread = LoopThread("cluster")
    opened = AsyncExitStack()
    entered = opened.enter_async_context(
        cluster_on(kafka, tmp_path, name, partitions=1)
    )
    cluster = thread.run(entered)
    worker = cluster.worker("one", TURNSTATE_SESSION_TIMEOUT_MS="30000")
    try:
        worker.start()
        with (
            SyncTurnProducer(cluster.settings) as producer,
            ClusterReader(cluster.settings, wait_s=25) as reader,
        ):
            producer.publish(turn(1)).result(20)
            thread.run(cluster.quiet())
            assert reader.reach(tenant="t", session="s", at_least=1)
            before = reader.routes().owners[0]
            worker.kill()
            worker.start()
            # No rebalance: the broker gives the share back as it was.
            assert reader.state("t", "s")["version"] == 1
            assert reader.routes().owners[0] != before
    finally:
        thread.run(opened.aclose())
        thread.close()
