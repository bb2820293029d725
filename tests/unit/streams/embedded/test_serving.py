"""Limits of a server: silent, slow, greedy and too many clients."""

import socket
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack
from typing import Any

import pytest
import structlog

from turnstate.schemas.errors import UnavailableError
from turnstate.streams.embedded import messages
from turnstate.streams.embedded.link import Link
from turnstate.streams.embedded.messages import ConnectionLost, Inbox, packed
from turnstate.streams.embedded.methods import Form, Method
from turnstate.streams.embedded.serving import Limits, RequestServer

LIMITS = Limits(
    connections=3, request_bytes=1000, silence_s=0.4, request_s=0.4, send_s=0.4
)


def same(value: Any) -> Any:
    return value


def much(store: bytes, size: int, more: bytes = b"") -> bytes:
    return store * size + more


def wait(_: bytes, seconds: float) -> None:
    time.sleep(seconds)


def fail(_: bytes) -> float:
    return 1 / 0


PLAIN = Form(same, same)

METHODS = {
    "much": Method(much, PLAIN),
    "wait": Method(wait, PLAIN),
    "fail": Method(fail, PLAIN),
}

NOTHING: dict[str, Any] = {}

SILENT = UnavailableError("it does not answer")

Connect = Callable[[], socket.socket]


@pytest.fixture(name="server")
def fixture_server() -> Generator[RequestServer]:
    listener = socket.create_server(("127.0.0.1", 0))
    server = RequestServer(listener, b"x", METHODS, who="the test", limits=LIMITS)
    server.start()
    yield server
    server.close(1.0)


@pytest.fixture(name="connect")
def fixture_connect(server: RequestServer) -> Generator[Connect]:
    with ExitStack() as stack:

        def connect() -> socket.socket:
            address = server._listener.getsockname()
            return stack.enter_context(socket.create_connection(address, timeout=20))

        yield connect


def ends(connection: socket.socket) -> bool:
    """Say whether the other side hangs up."""
    try:
        while connection.recv(1 << 20):
            pass
    except ConnectionResetError:
        pass
    return True


def test_a_silent_client_is_hung_up_on(connect: Connect) -> None:
    assert ends(connect())


def test_a_request_has_to_come_whole_in_time(connect: Connect) -> None:
    connection = connect()
    data = packed([1, "much", {"size": 1}])
    began = time.monotonic()
    with pytest.raises(OSError, match=r"reset|pipe|abort"):
        for byte in data * 100:
            connection.sendall(bytes([byte]))
            time.sleep(0.05)
    assert time.monotonic() - began < 2.0


def test_a_client_that_takes_nothing_is_hung_up_on(
    connect: Connect, server: RequestServer
) -> None:
    connection = connect()
    connection.sendall(packed([1, "much", {"size": 64 << 20}]))
    deadline = time.monotonic() + 20
    while server._connections:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_request_that_is_too_large_ends_its_connection(connect: Connect) -> None:
    connection = connect()
    connection.sendall(packed([1, "much", {"size": 1, "more": b"x" * 1000}]))
    assert ends(connection)


def test_a_failure_is_an_answer_and_the_next_request_goes_on(connect: Connect) -> None:
    # The failure is logged; a command that ran before may have set where to.
    structlog.reset_defaults()
    connection = connect()
    inbox = Inbox(connection)
    connection.sendall(packed([1, "fail", NOTHING]) + packed([2, "much", {"size": 2}]))
    number, kind, parts = inbox.next()
    assert (number, kind) == (1, messages.ERROR)
    assert "division" in messages.error_of(parts).message
    assert inbox.next() == [2, messages.ITEM, b"xx"]
    assert inbox.next() == [2, messages.END, None]


def test_a_longer_request_than_the_silence_is_allowed_is_answered(
    connect: Connect,
) -> None:
    connection = connect()
    connection.sendall(packed([1, "wait", {"seconds": 0.6}]))
    assert Inbox(connection).next() == [1, messages.ITEM, None]


def test_one_more_than_fits_is_told_so(connect: Connect) -> None:
    for _ in range(LIMITS.connections):
        connect()
    _, kind, parts = Inbox(connect()).next()
    assert (kind, messages.error_of(parts).code) == (messages.ERROR, "owner_busy")


def test_who_closes_says_so_to_who_is_connected(
    connect: Connect, server: RequestServer
) -> None:
    connection = connect()
    deadline = time.monotonic() + 5
    while not server._connections:
        assert time.monotonic() < deadline
    server.close(1.0)
    assert Inbox(connection).next()[1] == messages.CLOSING


def test_a_link_looks_whether_it_is_lost_without_waiting(server: RequestServer) -> None:
    address = server._listener.getsockname()
    link = Link(socket.AF_INET, address, SILENT)
    link.look_every(30.0)
    began = time.monotonic()
    assert not link.is_lost()
    assert time.monotonic() - began < 5
    while not link.is_lost():
        # The server hangs up on it: it says nothing.
        assert time.monotonic() - began < 20
        time.sleep(0.02)
    link.close()


def test_a_port_of_another_program_is_no_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        with pytest.raises(Exception, match="does not answer"):
            Link(
                socket.AF_INET, address, SILENT, timeout_s=0.2
            )
    with pytest.raises(ConnectionLost):
        Link(socket.AF_INET, address, SILENT)


