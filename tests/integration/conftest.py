"""The command, run in another process or, for speed, in this one."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.commands import COMMAND, GOOD, TIMEOUT_S, Run
from turnstate.streams.cli import main


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
