"""One store, several processes: who owns it answers the others, and may die."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from support.owning import OWN, RACE
from support.told import places, turn
from turnstate.schemas.errors import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    TurnstateError,
    UnavailableError,
)
from turnstate.streams.embedded import access, messages, owner
from turnstate.streams.embedded.access import open_store
from turnstate.streams.embedded.messages import Inbox, packed
from turnstate.streams.embedded.owner import OwnedStore
from turnstate.streams.embedded.owner_card import OWNER_FILE, read_card, socket_path
from turnstate.streams.embedded.remote import RemoteStore
from turnstate.streams.settings import Settings


@pytest.fixture
def owner_of() -> Iterator[Callable[[Path], subprocess.Popen[str]]]:
    """Start processes that own a store until their stdin ends."""
    started: list[subprocess.Popen[str]] = []

    def start(data: Path) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", OWN, str(data)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "OwnedStore"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait(10)
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()


def asking(data: Path) -> RemoteStore:
    store = open_store(Settings(data=data))
    assert isinstance(store, RemoteStore)
    return store


Owners = Callable[[Path], subprocess.Popen[str]]


def dies_soon(process: subprocess.Popen[str]) -> None:
    """Stop an owner now and kill it in a moment: in the middle of a request."""
    process.send_signal(signal.SIGSTOP)
    threading.Timer(0.3, lambda: process.send_signal(signal.SIGKILL)).start()


def killed(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait(10)


def leave(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(40) == 0


def test_everything_goes_through_the_owner(tmp_path: Path, owner_of: Owners) -> None:
    process = owner_of(tmp_path)
    with asking(tmp_path) as store:
        answers = store.publish([turn(n) for n in range(80)] + [b"{no"])
        assert [a.version for a in answers[:80]] == list(range(1, 81))
        assert isinstance(answers[80].error, InvalidInputError)
        exact = turn(80, metadata={"n": 2**70, "s": "\u4f60"}, slots=...)
        store.publish([exact])
        shown = store.turns("t", "s", at=80)["turns"][0]
        assert shown["metadata"] == {"n": 2**70, "s": "\u4f60"}
        assert store.state("t", "s", version=10)["version"] == 10
        assert store.rollback("t", "s", 5).version == 82
        assert store.fork("t", "s", "b", version=5).version == 83
        assert store.end("t", "s", branch="b", to="s2").version == 84
        assert store.head("t", "s").version == 84
        assert [row["session"] for row in store.sessions()] == ["s"]
        assert store.seal()
        assert store.stats()["sessions"] == 1
        assert store.verify()["bad"] == []
        assert len(store.context("t", "s", budget_tokens=60)["messages"]) == 4
        told = list(store.subscribe("t", "s", token="0", follow=False))
        assert [e["version"] for e in told] == list(range(1, 85))
        (row,) = store.dead_letters()["dead_letters"]
        assert store.dead_letter(row["id"]).raw == b"{no"
        items = list(store.export_items())
        assert len(items) == 84
        other = tmp_path / "other"
        owner_of(other)
        with asking(other) as copy:
            copy.import_items(iter(items))
            assert copy.state("t", "s")["digest"] == store.state("t", "s")["digest"]
    leave(process)
    assert not (tmp_path / OWNER_FILE).exists()


def test_an_error_is_raised_again_as_it_was(tmp_path: Path, owner_of: Owners) -> None:
    owner_of(tmp_path)
    with asking(tmp_path) as store:
        store.publish([turn(0)])
        for wrong in (
            lambda: store.state("t", "no"),
            lambda: store.state("t", "s", version=9),
            lambda: list(store.subscribe("t", "no", follow=False)),
        ):
            with pytest.raises(NotFoundError) as missing:
                wrong()
            assert missing.value.field in ("session", "version")
        store.fork("t", "s", "b")
        with pytest.raises(ConflictError) as conflict:
            store.fork("t", "s", "b")
        assert conflict.value.code == "branch_exists"
        assert conflict.value.hint == "fork to a new name"
        with pytest.raises(InvalidInputError) as unknown:
            store.call("nothing")
        assert unknown.value.code == "unknown_method"
        assert store.state("t", "s")["version"] == 2


def test_after_a_kill_the_next_one_becomes_the_owner(
    tmp_path: Path, owner_of: Owners
) -> None:
    process = owner_of(tmp_path)
    with asking(tmp_path) as store:
        store.publish([turn(0)])
        killed(process)
        assert read_card(tmp_path) is not None
        assert Path(socket_path(tmp_path)).exists()
        with open_store(Settings(data=tmp_path)) as after:
            assert isinstance(after, OwnedStore)
            assert after.state("t", "s")["version"] == 1
            # The one who asked the dead owner asks the new one.
            assert store.state("t", "s")["version"] == 1
            assert store.publish([turn(1)])[0].version == 2


def test_who_asked_becomes_the_owner_where_nobody_is(
    tmp_path: Path, owner_of: Owners
) -> None:
    process = owner_of(tmp_path)
    with asking(tmp_path) as store:
        store.publish([turn(0)])
        killed(process)
        assert store.state("t", "s")["version"] == 1
        assert store.publish([turn(1)])[0].version == 2
        with asking(tmp_path) as beside:
            assert beside.state("t", "s")["version"] == 2
    with open_store(Settings(data=tmp_path)) as after:
        assert isinstance(after, OwnedStore)


def test_an_owner_that_dies_during_a_publish_is_named(
    tmp_path: Path, owner_of: Owners
) -> None:
    process = owner_of(tmp_path)
    with asking(tmp_path) as store:
        dies_soon(process)
        with pytest.raises(UnavailableError) as lost:
            store.publish([turn(0)])
        assert lost.value.code == "owner_lost"
        assert lost.value.hint is not None
        assert "turn_id" in lost.value.hint
        assert store.publish([turn(0)])[0].version == 1


def test_an_owner_that_dies_during_a_read_is_replaced(
    tmp_path: Path, owner_of: Owners
) -> None:
    process = owner_of(tmp_path)
    with asking(tmp_path) as store:
        store.publish([turn(0)])
        dies_soon(process)
        assert store.state("t", "s")["version"] == 1


def test_a_subscription_outlives_its_owners(tmp_path: Path, owner_of: Owners) -> None:
    first = owner_of(tmp_path)
    seen: list[Any] = []
    with asking(tmp_path) as store:
        store.publish([turn(n) for n in range(10)])
        events = store.subscribe(token="0")
        seen += (next(events) for _ in range(5))
        killed(first)
        second = owner_of(tmp_path)
        seen += (next(events) for _ in range(5))
        store.publish([turn(n) for n in range(10, 20)])
        seen += (next(events) for _ in range(5))
        leave(second)
        third = owner_of(tmp_path)
        seen += (next(events) for _ in range(5))
        events.close()
        killed(third)
    assert places(seen) == [("s", 1, version) for version in range(1, 21)]


def test_an_owner_that_leaves_answers_what_it_has_begun(
    tmp_path: Path, owner_of: Owners
) -> None:
    process = owner_of(tmp_path)
    count = 800
    with asking(tmp_path) as store:
        failed: list[TurnstateError] = []
        versions: list[int] = []

        def publish() -> None:
            for number in range(count):
                try:
                    versions.append(store.publish([turn(number, slots=...)])[0].version)
                except TurnstateError as error:
                    failed.append(error)

        thread = threading.Thread(target=publish)
        thread.start()
        while len(versions) < 50:
            time.sleep(0.001)
        leave(process)
        thread.join()
        assert failed == []
        assert versions == list(range(1, count + 1))


def test_processes_that_race_for_a_store_all_get_their_answers(
    tmp_path: Path,
) -> None:
    start = tmp_path / "start"
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACE, str(tmp_path / "d"), str(start), str(number)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(4)
    ]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline().strip() == "ready"
    start.touch()
    for racer in racers:
        said, _ = racer.communicate(timeout=60)
        assert racer.returncode == 0
        assert [json.loads(row) for row in said.splitlines()] == [
            [at + 1, at] for at in range(5)
        ]
    with open_store(Settings(data=tmp_path / "d")) as store:
        assert [row["version"] for row in store.sessions()] == [5, 5, 5, 5]


def test_a_data_path_too_long_for_a_socket_gets_a_short_one(
    tmp_path: Path,
    owner_of: Owners,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    short = tempfile.mkdtemp(dir="/tmp")
    monkeypatch.setenv("TMPDIR", short)
    monkeypatch.setattr("tempfile.tempdir", None)
    data = tmp_path / ("long-" * 30) / ("\u4f60" * 20)
    path = socket_path(data)
    assert len(os.fsencode(path)) <= 108
    owner_of(data)
    with asking(data) as store:
        assert store.publish([turn(0)])[0].version == 1
    folder = Path(path).parent
    assert folder.stat().st_mode & 0o777 == 0o700
    assert Path(path).stat().st_mode & 0o777 == 0o600
    folder.chmod(0o755)
    with pytest.raises(UnavailableError, match="not this user's alone"):
        socket_path(data)
    shutil.rmtree(short)


@pytest.mark.parametrize("theirs", [0, 2])
def test_an_owner_of_another_version_is_refused_by_name(
    tmp_path: Path, owner_of: Callable[[Path], subprocess.Popen[str]], theirs: int
) -> None:
    owner_of(tmp_path)
    card = read_card(tmp_path)
    assert card is not None
    # The owner refuses who speaks another protocol …
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(card.socket)
        hello = {"protocol": theirs, "version": "9.9"}
        connection.sendall(packed([1, messages.HELLO, hello]))
        _, kind, parts = Inbox(connection).next()
        assert kind == messages.ERROR
        error = messages.error_of(parts)
        assert error.code == "owner_version"
        assert "9.9" in error.message
    # … and so does who asks.
    said = {**card._asdict(), "protocol": theirs, "version": "9.9"}
    (tmp_path / OWNER_FILE).write_text(json.dumps(said))
    with pytest.raises(UnavailableError) as refused:
        open_store(Settings(data=tmp_path))
    assert refused.value.code == "owner_version"
    assert "9.9" in refused.value.message


def test_a_caller_that_speaks_rubbish_harms_nobody(
    tmp_path: Path, owner_of: Owners
) -> None:
    owner_of(tmp_path)
    card = read_card(tmp_path)
    assert card is not None
    for rubbish in (
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff\xff\xff\xff",
        packed([1, "state"]),
        packed([1, 7, None]),
        packed([1, "state", [1]]),
        packed([1, "state", {"wrong": 1}]),
        packed([1, "publish", {"records": 5}]),
        packed("text")[:-1],
    ):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(card.socket)
            connection.sendall(rubbish)
            connection.settimeout(0.5)
            with suppress(TimeoutError):
                connection.recv(4096)
    with asking(tmp_path) as store:
        assert store.publish([turn(0)])[0].version == 1


def test_a_stream_that_is_dropped_half_way_ends_at_the_owner(tmp_path: Path) -> None:
    with OwnedStore(Settings(data=tmp_path)) as store, asking(tmp_path) as beside:
        store.publish([turn(n) for n in range(300)])
        for _ in range(20):
            rows = beside.subscribe("t", "s", token="0")
            assert next(rows)["version"] == 1
            rows.close()
        deadline = time.monotonic() + 5
        while store.feed._of_session and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not store.feed._of_session
        assert beside.state("t", "s")["version"] == 300


def test_an_owner_without_a_socket_is_reported_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "OWNER_WAIT_S", 0.2)
    with (
        OwnedStore(Settings(data=tmp_path), serving=False),
        pytest.raises(UnavailableError) as owned,
    ):
        open_store(Settings(data=tmp_path))
    assert owned.value.code == "owned"


def test_too_many_connections_are_told_to_come_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, "LIMITS", owner.LIMITS._replace(connections=1))
    with OwnedStore(Settings(data=tmp_path)), asking(tmp_path) as beside:
        beside.publish([turn(0)])
        with pytest.raises(UnavailableError) as busy:
            open_store(Settings(data=tmp_path))
        assert busy.value.code == "owner_busy"
        assert beside.state("t", "s")["version"] == 1
