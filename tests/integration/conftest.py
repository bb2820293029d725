"""The command, in another process or in this one, and the services that it meets."""

import json
import os
import subprocess
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from support.commands import COMMAND, GOOD, TIMEOUT_S, Run
from support.encrypting import fill, key_setting, settings
from support.plain_worker import write_plain_blocks
from turnstate.streams.cli import main
from turnstate.streams.embedded.owner import OwnedStore
from turnstate.streams.embedded.store import EmbeddedStore
from turnstate.streams.settings import Settings

if TYPE_CHECKING:
    from support.both_ways import Running


@pytest.fixture(name="run")
def fixture_run(tmp_path: Path) -> Run:
    def run(
        *arguments: str, stdin: bytes = b"", **environment: str
    ) -> "subprocess.CompletedProcess[bytes]":
        clean = {k: v for k, v in os.environ.items() if not k.startswith("TURNSTATE")}
        return subprocess.run(
            [*COMMAND, *arguments],
            input=stdin,
            capture_output=True,
            check=False,
            cwd=tmp_path,
            timeout=TIMEOUT_S,
            env=clean | environment,
        )

    return run


@pytest.fixture(name="told")
def fixture_told(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., Any]:
    """Run with --json in this process, for speed; return exit code and document."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("TURNSTATE"):
            monkeypatch.delenv(name)
    feed = tmp_path.parent / f"{tmp_path.name}.stdin"

    def told(*arguments: str, stdin: bytes = b"") -> tuple[int, Any]:
        feed.write_bytes(stdin)
        capfd.readouterr()
        with feed.open() as file:
            monkeypatch.setattr("sys.stdin", file)
            code = main.run([*arguments, "--json"])
        out, err = capfd.readouterr()
        assert out.count("\n") == 1, err
        return code, json.loads(out)

    return told


@pytest.fixture(name="filled")
def fixture_filled(told: Callable[..., Any]) -> Any:
    """A store in the default folder, with two sessions."""
    code, document = told("publish", "-", stdin=GOOD)
    assert (code, document["accepted"]) == (0, 3)
    return told


@pytest.fixture(name="running", scope="session")
def fixture_running(
    kafka: str, tmp_path_factory: pytest.TempPathFactory
) -> Generator["Running"]:
    """Two workers with the samples folded, and an embedded store beside them."""
    from support.both_ways import both_ways

    folder = tmp_path_factory.mktemp(f"reads-{uuid4().hex[:8]}")
    with both_ways(kafka, folder) as running:
        yield running


@pytest.fixture(name="plain_blocks")
def fixture_plain_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let RocksDB write blocks as they are, so that a byte scan sees dead rows."""
    write_plain_blocks(monkeypatch)


@pytest.fixture(name="store")
def fixture_store(tmp_path: Path) -> Iterator[OwnedStore]:
    """Give an empty store."""
    settings = Settings(data=tmp_path / "data", cold_pack_bytes=16 << 10)
    with OwnedStore(settings, serving=False) as opened:
        yield opened


@pytest.fixture(name="key")
def fixture_key(tmp_path: Path) -> str:
    """Give the setting of a new key file."""
    return key_setting(tmp_path)


@pytest.fixture(name="encrypted")
def fixture_encrypted(tmp_path: Path, key: str) -> Iterator[EmbeddedStore]:
    """Give an encrypted store with something in it."""
    with EmbeddedStore(settings(tmp_path / "encrypted", key)) as store:
        fill(store)
        yield store
