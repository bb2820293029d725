"""The launcher starts real services once, takes them up after a crash, ends them."""

import asyncio
import os
import shutil
import socket
import tomllib
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from support.shared_services import started
from turnstate.infra.services import programs
from turnstate.infra.services import server as servers
from turnstate.infra.services.failures import ServiceError
from turnstate.infra.services.folder import Record
from turnstate.infra.services.kafka import KafkaServer, start_kafka
from turnstate.infra.services.launcher import Cluster
from turnstate.infra.services.ports import HOST
from turnstate.infra.services.process import Process, is_running
from turnstate.infra.services.redis import RedisServer, start_redis
from turnstate.infra.services.s3 import S3Server, has_bucket, start_s3
from turnstate.infra.services.s3_protocol import Keys
from turnstate.infra.services.sweep import sweep

STRANGE = "a folder, 北京"
"""Servers divide lists at commas, and read files in Latin-1."""


@pytest.fixture(name="own_kafka")
def fixture_own_kafka(tmp_path: Path) -> Generator[KafkaServer]:
    server = started(start_kafka, tmp_path / STRANGE / "kafka")
    yield server
    server.stop()


@pytest.fixture(name="own_redis")
def fixture_own_redis(tmp_path: Path) -> Generator[RedisServer]:
    server = started(start_redis, tmp_path / STRANGE / "redis")
    yield server
    server.stop()


@pytest.fixture(name="own_s3")
def fixture_own_s3(tmp_path: Path) -> Generator[S3Server]:
    server = started(start_s3, tmp_path / STRANGE / "s3")
    yield server
    server.stop()


def said_to(url: str, line: bytes) -> bytes:
    port = int(url.rpartition(":")[2].partition("/")[0])
    with socket.create_connection((HOST, port)) as connection:
        connection.sendall(line + b"\r\n")
        return connection.recv(100)


async def produce(bootstrap: str, value: bytes) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic("kept", 1, 1)])
    finally:
        await admin.close()
    producer: Any = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all")
    async with producer:
        await producer.send_and_wait("kept", value)


async def consumed(bootstrap: str) -> bytes | None:
    consumer: Any = AIOKafkaConsumer(
        "kept", bootstrap_servers=bootstrap, auto_offset_reset="earliest"
    )
    async with consumer:
        record = await asyncio.wait_for(consumer.getone(), 30)
    value: bytes | None = record.value
    return value


def test_a_killed_broker_comes_back_on_its_port_with_its_data(
    own_kafka: KafkaServer,
) -> None:
    address, pid = own_kafka.bootstrap, own_kafka.pid
    own_kafka.start()
    assert own_kafka.pid == pid, "it ran already"
    asyncio.run(produce(address, b"before"))

    own_kafka.kill()
    state = own_kafka.state
    own_kafka.restart()

    assert state == "crashed"
    assert own_kafka.bootstrap == address
    assert own_kafka.pid not in {None, pid}
    assert asyncio.run(consumed(address)) == b"before"
    assert own_kafka.stop()
    assert own_kafka.state == "stopped"
    assert own_kafka.pid is None


def test_the_shared_broker_is_one_for_all(kafka: str) -> None:
    host, _, port = kafka.partition(":")

    with socket.create_connection((host, int(port))):
        pass


def test_a_killed_redis_has_what_was_written(own_redis: RedisServer) -> None:
    url = own_redis.url
    assert said_to(url, b"SET name value") == b"+OK\r\n"

    own_redis.kill()
    own_redis.start()

    assert own_redis.url == url
    assert said_to(url, b"GET name") == b"$5\r\nvalue\r\n"


def test_another_process_is_not_taken_for_the_one_in_a_stale_record(
    own_redis: RedisServer,
) -> None:
    ports = own_redis.folder.record().ports
    own_redis.stop()
    own_redis.folder.keep(Record(Process(os.getpid(), "another boot:1"), ports))

    assert own_redis.state == "crashed"
    own_redis.kill()
    own_redis.start()

    assert own_redis.folder.record().ports == ports
    assert own_redis.pid not in {None, os.getpid()}


def test_a_torn_record_is_none(own_redis: RedisServer) -> None:
    own_redis.stop()
    (own_redis.folder.path / "record.json").write_text('{"process": {"pid": 1')

    own_redis.start()

    assert own_redis.state == "running"


def test_a_port_that_is_taken_is_left_to_its_holder(
    own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "_PORT_S", 0.1)
    port = own_redis.port("redis")
    own_redis.stop()
    with socket.create_server((HOST, port)):
        with pytest.raises(ServiceError, match="taken") as raised:
            own_redis.restart()
        own_redis.start()

    assert str(port) in raised.value.message
    assert own_redis.port("redis") != port


def test_a_service_that_ends_at_once_tells_its_last_words(
    own_redis: RedisServer,
) -> None:
    own_redis.stop()
    files = own_redis.folder.data / "appendonlydir"
    shutil.rmtree(files)
    files.write_text("a file in the place of a folder")

    with pytest.raises(ServiceError, match=r"ended while it started: .*append") as told:
        own_redis.start()

    assert str(own_redis.folder.log) in (told.value.hint or "")
    assert own_redis.state == "stopped"


def test_a_killed_s3_server_comes_back_and_asks_for_its_keys(own_s3: S3Server) -> None:
    endpoint, keys = own_s3.endpoint, own_s3.keys
    own_s3.kill()
    own_s3.restart()

    port = own_s3.port("s3")
    assert (own_s3.endpoint, own_s3.keys) == (endpoint, keys)
    assert has_bucket(port, keys)
    assert not has_bucket(port, Keys(keys.access_key, "another secret"))


def test_a_sweep_ends_what_a_killed_launcher_left(own_redis: RedisServer) -> None:
    process = own_redis.folder.record().process
    assert process is not None

    assert sweep(own_redis.folder.path.parent) == 1
    assert not is_running(process)
    assert sweep(own_redis.folder.path.parent) == 0


def services_of(document: Any, key: str) -> dict[str, Any]:
    return {row["service"]: row[key] for row in document["services"]}


def test_the_command_starts_looks_and_ends(
    told: Callable[..., Any], tmp_path: Path, kafka: str
) -> None:
    del kafka  # where it can run, the command can start one
    folder = tmp_path / ".turnstate"
    try:
        code, first = told("cluster", "up")
        assert (code, set(services_of(first, "state").values())) == (0, {"running"})
        assert "turns" in {row["name"] for row in first["topics"]}
        found = tomllib.loads((folder / "cluster.toml").read_text())
        assert found["kafka"]["bootstrap"] == services_of(first, "address")["kafka"]
        assert found["s3"].keys() >= {"endpoint", "access_key", "secret_key", "bucket"}

        Cluster(folder / "cluster").redis.kill()
        _, between = told("cluster", "status")
        assert services_of(between, "state")["redis"] == "crashed"

        code, second = told("cluster", "up")
        assert code == 0
        assert services_of(second, "address") == services_of(first, "address")
        for name in ("kafka", "s3"):
            assert services_of(second, "pid")[name] == services_of(first, "pid")[name]
    finally:
        code, last = told("cluster", "down")
    assert (code, set(services_of(last, "state").values())) == (0, {"stopped"})
    assert set(services_of(last, "pid").values()) == {None}


def test_without_java_the_rest_starts_and_the_error_says_what_brings_it(
    told: Callable[..., Any],
    redis_server: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    del redis_server
    redis = programs.redis()
    monkeypatch.setattr(programs, "_java_homes", list[Path])
    monkeypatch.setattr(programs, "redis", lambda: redis)
    monkeypatch.setenv("PATH", "")
    try:
        code, document = told("cluster", "up", "--without", "s3")
    finally:
        told("cluster", "down")

    assert code == 6
    assert document["error"]["code"] == "missing"
    assert "Java 17" in document["error"]["message"]
    assert "apt-get install" in document["error"]["hint"]
    assert services_of(document, "state") == {
        "kafka": "failed",
        "redis": "running",
        "s3": "stopped",
    }


def test_a_file_of_somebody_else_is_not_overwritten(
    told: Callable[..., Any], tmp_path: Path
) -> None:
    folder = tmp_path / ".turnstate"
    folder.mkdir()
    written = '[kafka]\nbootstrap = "broker.example:9092"\n'
    (folder / "cluster.toml").write_text(written)

    code, document = told("cluster", "up")

    assert (code, document["error"]["field"]) == (4, "cluster.toml")
    assert (folder / "cluster.toml").read_text() == written
    assert not (folder / "cluster").exists()


@pytest.mark.parametrize("without", ["kafka,mongo", "kafka,redis,s3"])
def test_a_list_that_makes_no_sense_is_a_usage_error(
    told: Callable[..., Any], without: str
) -> None:
    code, document = told("cluster", "up", "--without", without)

    assert (code, document["error"]["field"]) == (2, "without")
