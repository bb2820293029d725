"""Objects in a real bucket: a killed server, wrong settings, no S3 server at all."""

import socket
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from support.cutting_proxy import CuttingProxy, Fault
from support.object_stores import SERVERS, s3_objects
from support.shared_services import shared, shared_root, started
from turnstate.infra.services.s3 import S3Server
from turnstate.schemas.errors import NotFoundError, UnavailableError
from turnstate.storage.cold.s3 import S3Objects

LARGE: Final = bytes(6 << 20)
"""Two parts."""

WRITERS: Final = 8
KILL_AFTER: Final = 40
"""Acknowledged objects, before the server is killed under its writers."""


@pytest.fixture(name="s3_server", scope="module", params=SERVERS)
def fixture_s3_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Generator[dict[str, str]]:
    """Every S3 server that is here, in turn."""
    root, name = shared_root(tmp_path_factory), request.param
    with shared(root, name, SERVERS[name]) as server:
        yield server.connection


@pytest.fixture(name="own_s3", params=SERVERS)
def fixture_own_s3(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Generator[S3Server]:
    server = started(SERVERS[request.param], tmp_path / "s3")
    yield server
    server.stop()


def names(objects: S3Objects) -> list[str]:
    return [info.name for info in objects.list()]


def read_at_last(objects: S3Objects, name: str) -> bytes:
    """Read an object; SeaweedFS answers 500 for a while after a start."""
    end = time.monotonic() + 20
    while True:
        try:
            return objects.read(name)
        except UnavailableError:
            assert time.monotonic() < end


def test_what_was_acknowledged_survives_a_kill_under_load(own_s3: S3Server) -> None:
    objects = s3_objects(own_s3.connection, attempts_max=2, timeout_ms=2_000)
    created: dict[str, bytes] = {}
    failed: dict[str, bytes] = {}
    enough, over = threading.Event(), threading.Event()

    def write(writer: int) -> None:
        chance = Random(writer)
        number = 0
        while not over.is_set():
            name, data = f"{writer}/{number}", chance.randbytes(chance.randrange(9_000))
            number += 1
            try:
                assert objects.create(name, data)
                created[name] = data
            except UnavailableError:
                failed[name] = data
            if len(created) >= KILL_AFTER:
                enough.set()

    with ThreadPoolExecutor(WRITERS) as pool:
        writers = [pool.submit(write, number) for number in range(WRITERS)]
        assert enough.wait(60)
        own_s3.kill()
        before = len(created)
        own_s3.restart()
        end = time.monotonic() + 30
        while len(created) < before + KILL_AFTER and time.monotonic() < end:
            time.sleep(0.01)
        over.set()
        for writer in writers:
            writer.result()

    assert len(created) >= before + KILL_AFTER, "it goes on afterwards"
    for name, data in created.items():
        assert read_at_last(objects, name) == data
    listed = set(names(objects))
    assert created.keys() <= listed <= created.keys() | failed.keys()
    for name in listed - created.keys():
        assert read_at_last(objects, name) == failed[name]
    objects.close()


def test_a_killed_server_is_named_with_what_to_look_at(own_s3: S3Server) -> None:
    objects = s3_objects(own_s3.connection, attempts_max=2)
    objects.create("a", b"x")
    own_s3.kill()

    for call in (
        lambda: objects.create("b", b"x"),
        lambda: objects.read("a"),
        lambda: objects.read_end("a", 1),
        lambda: list(objects.list()),
        lambda: objects.delete(["a"]),
        objects.ensure_bucket,
    ):
        with pytest.raises(UnavailableError, match=own_s3.endpoint) as raised:
            call()
        assert raised.value.hint == "check endpoint of S3, and that the server runs"
    own_s3.restart()
    assert read_at_last(objects, "a") == b"x"
    objects.close()


def every_call(objects: S3Objects) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield each method, ready to be called, and its name."""
    yield "read", lambda: objects.read("a")
    yield "read nothing", lambda: objects.read("a", 0, 0)
    yield "read_end", lambda: objects.read_end("a", 1)
    yield "list", lambda: list(objects.list())
    yield "delete", lambda: objects.delete(["a"])
    yield "create", lambda: objects.create("a", b"x")
    yield "create large", lambda: objects.create("large", LARGE)
    objects.close()


@pytest.mark.parametrize("field", ["secret_key", "access_key"])
def test_a_wrong_key_is_told(s3_server: dict[str, str], field: str) -> None:
    objects = s3_objects(s3_server, **{field: "wrong-key-of-somebody"})

    for name, call in every_call(objects):
        with pytest.raises(UnavailableError) as raised:
            call()
        assert "check access_key and secret_key of S3" in str(raised.value.hint), name
        assert s3_server["secret_key"] not in str(raised.value)


def test_a_missing_bucket_is_told_and_can_be_made(s3_server: dict[str, str]) -> None:
    bucket = f"made-{time.time_ns():x}"
    for name, call in every_call(s3_objects(s3_server, bucket=bucket)):
        try:
            call()
        except UnavailableError as error:
            told = f"there is no bucket {bucket} at {s3_server['endpoint']}"
            assert error.message == told, name  # noqa: PT017 - or no error at all
            assert error.hint == "make it, or check bucket of S3"  # noqa: PT017
        else:
            # SeaweedFS makes a bucket for a key that may.
            assert name.startswith("create")

    objects = s3_objects(s3_server, bucket=bucket)
    objects.ensure_bucket()
    objects.ensure_bucket()
    assert objects.create("a", b"x")
    with pytest.raises(NotFoundError):
        objects.read("b")
    objects.delete(["a"])
    objects.close()


class _Page(BaseHTTPRequestHandler):
    """Some web server: the same page for whatever is asked."""

    protocol_version = "HTTP/1.1"

    page = b""

    def _serve(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.page)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(self.page)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name
        pass

    do_GET = do_PUT = do_POST = do_HEAD = _serve  # noqa: N815 - their names


@pytest.mark.parametrize("said", [b"<html>It works!</html>", b"It works!", b""])
def test_a_server_that_is_none_of_s3_is_told(said: bytes) -> None:
    class Page(_Page):
        page = said

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        objects = s3_objects(elsewhere(server.server_port), attempts_max=2)
        for name, call in every_call(objects):
            with pytest.raises(UnavailableError) as raised:
                call()
            assert "check endpoint of S3" in str(raised.value.hint), name
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_server_that_never_answers_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        objects = s3_objects(elsewhere(port), timeout_ms=100, attempts_max=2)
        begun = time.monotonic()
        with pytest.raises(UnavailableError, match="did not answer to the end"):
            objects.read("a")

        assert time.monotonic() - begun < 5
        objects.close()


def test_no_more_connections_than_allowed_are_opened(
    s3_server: dict[str, str],
) -> None:
    class Slow(CuttingProxy):
        now = most = 0

        def fault_for(self, method: str, path: str) -> Fault | None:
            with self._lock:
                self.now += 1
                self.most = max(self.most, self.now)
            time.sleep(0.02)
            with self._lock:
                self.now -= 1
            return None

    with Slow(s3_server["endpoint"]) as proxy:
        objects = s3_objects(s3_server, endpoint=proxy.endpoint, connections_max=3)
        with ThreadPoolExecutor(12) as pool:
            made = [pool.submit(objects.create, str(at), b"x") for at in range(24)]
        objects.close()

    assert all(each.result() for each in made)
    assert 2 <= proxy.most <= 3


def test_who_finds_every_connection_in_use_is_told(s3_server: dict[str, str]) -> None:
    objects = s3_objects(
        s3_server, connections_max=1, timeout_ms=100, attempts_max=1
    )
    with (
        objects._requests._connection(),
        pytest.raises(UnavailableError, match="in use") as raised,
    ):
        objects.read("a")

    assert "connections_max" in str(raised.value.hint)
    objects.close()


def test_stores_with_different_prefixes_share_a_bucket(
    s3_server: dict[str, str],
) -> None:
    one, two = s3_objects(s3_server), s3_objects(s3_server)

    assert one.create("a", b"one")
    assert two.create("a", b"two")
    assert one.read("a") == b"one"
    assert names(one) == names(two) == ["a"]
    two.delete(["a"])
    assert names(one) == ["a"]
    whole = s3_objects(s3_server, prefix="")
    assert f"{one.settings.prefix}/a" in names(whole)
    for objects in (one, two, whole):
        objects.close()


def elsewhere(port: int) -> Mapping[str, str]:
    """Return how a server that is no S3 server is asked."""
    return {
        "endpoint": f"http://127.0.0.1:{port}",
        "bucket": "turnstate",
        "access_key": "a",
        "secret_key": "b",
    }


