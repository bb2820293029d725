"""The ports of a worker: whatever knocks, readers are answered; what operators ask."""

import json
import socket
import time
import urllib.request
from contextlib import ExitStack
from selectors import EVENT_READ, DefaultSelector
from typing import Any, cast
from urllib.error import HTTPError

import pytest

from support.both_ways import Running, asked, hello, hung_up, talking_to
from turnstate.schemas.errors import TurnstateError, UnavailableError
from turnstate.streams.embedded import messages
from turnstate.streams.embedded.messages import Inbox, packed
from turnstate.streams.embedded.owner_card import package_version
from turnstate.streams.kafka.query_server import LIMITS


@pytest.mark.parametrize(
    "data",
    [
        b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        (LIMITS.request_bytes + 1).to_bytes(4, "little") + b"\x93",
        b"\xff\xff\xff\x3f",
        b"\x04\x00\x00\x00\xc1\xc1\xc1\xc1",
        b"\x01\x00\x00\x00\x80",
        b"\x10\x00\x00\x00" + bytes(16),
    ],
    ids=["http", "tls", "oversize", "gigabyte", "no-msgpack", "no-triple", "zeros"],
)
def test_what_is_no_request_is_hung_up_on(running: Running, data: bytes) -> None:
    address = running.routes().owners[0]
    with talking_to(address) as connection:
        connection.sendall(data)
        assert hung_up(connection)
    still_answers(running)


def still_answers(running: Running) -> None:
    with running.reader() as reader:
        assert reader.stats()["sessions"] == running.sessions()


def test_requests_that_are_not_as_they_should_be(running: Running) -> None:
    address = running.routes().owners[0]
    with talking_to(address) as connection:
        wrong = hello(running, connection, protocol=99)
        assert wrong.code == "owner_version"
        assert hello(running, connection, log=b"another").code == "other_log"
        assert hello(running, connection) == [messages.PROTOCOL, package_version()]
        cases: list[tuple[Any, Any, str]] = [
            ("erase", {}, "unknown_method"),
            (7, {}, "bad_request"),
            ("state", [1], "bad_request"),
            ("state", {"tenant": "t"}, "bad_request"),
            ("state", {"tenant": 1, "session": "s"}, "bad_request"),
            ("state", {"tenant": "t", "session": "s", "x": 1}, "bad_request"),
            ("state", {"tenant": "t", "session": "s", "version": -1}, "bad_request"),
            ("state", {"tenant": "", "session": "s"}, "invalid"),
            ("sessions", {"partition": "0"}, "bad_request"),
            ("sessions", {"partition": 77}, "not_here"),
            ("verify", {"partition": 0, "table": "log"}, "invalid"),
        ]
        for name, arguments, code in cases:
            error = asked(connection, name, arguments)
            assert isinstance(error, TurnstateError), name
            assert error.code == code, (name, arguments)
    still_answers(running)


def test_slow_and_many_clients_hold_nobody_up(running: Running) -> None:
    address = running.routes().owners[0]
    name = running.some_session(0)
    with ExitStack() as stack:
        for _ in range(30):
            slow = stack.enter_context(talking_to(address))
            slow.sendall(packed([1, "hello", None])[:7])
        for _ in range(20):
            # Asks for much and takes nothing of it.
            slow = stack.enter_context(talking_to(address))
            hello(running, slow)
            slow.sendall(packed([2, "sessions", {"partition": 0}]) * 50)
        with running.reader() as reader:
            began = time.monotonic()
            assert reader.state(*name)["version"] > 0
            assert time.monotonic() - began < 5
        # Silent ones may stay, but never all of these; slow ones may be gone by now.
        said = stack.enter_context(DefaultSelector())
        for _ in range(LIMITS.connections + 5):
            said.register(stack.enter_context(talking_to(address)), EVENT_READ)
        for _ in range(5):
            refused = cast("socket.socket", said.select(20)[0][0].fileobj)
            said.unregister(refused)
            _, kind, parts = Inbox(refused).next()
            busy = (messages.ERROR, "owner_busy")
            assert (kind, messages.error_of(parts).code) == busy
    end = time.monotonic() + 20
    with running.reader() as reader:
        while True:
            try:
                assert reader.state(*name)["version"] > 0
                break
            except UnavailableError:
                assert time.monotonic() < end


# -- what operators ask --------------------------------------------------------------


def test_metrics_and_health(running: Running) -> None:
    def read(path: str) -> tuple[int, bytes]:
        url = f"http://127.0.0.1:{running.metrics_port}{path}"
        try:
            with urllib.request.urlopen(url, timeout=20) as answer:
                return answer.status, answer.read()
        except HTTPError as error:
            with error:
                return error.code, error.read()

    deadline = time.monotonic() + 40
    while True:
        status, body = read("/health")
        health = json.loads(body)
        rows = health["partitions"]
        if rows and all(row["fresh"] and row["lag"] == 0 for row in rows):
            break
        assert time.monotonic() < deadline, health
        time.sleep(0.2)
    assert (status, health["ok"]) == (200, True)
    while b'turnstate_tier_bytes{tier="warm"}' not in read("/metrics")[1]:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    _, body = read("/metrics")
    text = body.decode()
    assert 'turnstate_folded_offset{partition="' in text
    assert 'turnstate_lag_records{partition="' in text
    assert 'turnstate_tier_sessions{tier="hot"}' in text


def test_a_taken_port_is_named(running: Running) -> None:
    for variable in ("TURNSTATE_METRICS_PORT", "TURNSTATE_QUERY_PORT"):
        taken = {variable: str(running.metrics_port)}
        worker = running.cluster.worker("third", **taken)
        worker.start()
        assert worker.wait(60) == UnavailableError.exit_code
        assert "cannot be listened at" in worker.last_words()
        del running.cluster.workers["third"]
