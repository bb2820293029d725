"""turnstate backup and restore, as a user calls them, to a folder and to S3."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from support.commands import COMMAND, GOOD, Run, line, lines

Told = Callable[..., Any]


def _digests(told: Told, *where: str) -> dict[str, str]:
    code, document = told("sessions", *where)
    assert code == 0
    return {row["session"]: row["digest"] for row in document["sessions"]}


def test_a_store_comes_back_whole_and_verifies(filled: Told) -> None:
    told = filled
    code, made = told("backup", "place")
    assert (code, made["number"]) == (0, 1)
    before = _digests(told)
    assert told("publish", "-", stdin=line("a", 3, "more") + b"\n")[0] == 0
    code, again = told("backup", "place", "--keep", "5")
    assert (code, again["number"], again["removed"]) == (0, 2, [])
    assert 0 < again["bytes_new"] < again["bytes"]
    code, back = told("restore", "place", "--number", "1", "--data", "fresh")
    assert code == 0
    assert back["stamps_as"].startswith("log~")
    assert _digests(told, "--data", "fresh") == before
    code, checked = told("verify", "--data", "fresh")
    assert (code, checked["bad"]) == (0, [])


def test_it_is_listed_and_a_savepoint_goes_only_by_name(filled: Told) -> None:
    told = filled
    told("backup", "place")
    assert told("backup", "place", "--savepoint", "before")[0] == 0
    assert told("backup", "place", "--keep", "1")[0] == 0
    code, listed = told("backup", "place", "--list")
    assert code == 0
    assert [row["number"] for row in listed["backups"]] == [2]
    assert [row["savepoint"] for row in listed["savepoints"]] == ["before"]
    told("restore", "place", "--savepoint", "before", "--data", "fresh")
    assert _digests(told, "--data", "fresh") == _digests(told)
    assert told("verify", "--data", "fresh")[1]["bad"] == []
    assert told("backup", "place", "--delete-savepoint", "before")[0] == 0
    assert told("backup", "place", "--delete-savepoint", "before")[0] == 3


def test_each_failure_has_its_exit_code(filled: Told, tmp_path: Path) -> None:
    told = filled
    told("backup", "place")
    for code, arguments in [
        (3, ["restore", "nowhere", "--data", "fresh"]),
        (3, ["restore", "place", "--number", "7", "--data", "fresh"]),
        (4, ["restore", "place"]),
        (2, ["restore", "place", "--number", "1", "--savepoint", "x"]),
        (2, ["backup", "place", "--keep", "0"]),
        (2, ["backup", "place", "--list", "--savepoint", "x"]),
        (2, ["backup", "place", "--savepoint", "a/b"]),
        (2, ["backup", "s3://B"]),
        (2, ["backup"]),
        (2, ["restore", "--data", "fresh"]),
        (2, ["backup", "place", "--to", "place"]),
        (2, ["backup", "place", "--partition", "1"]),
        (2, ["restore", "place", "--instance", "one"]),
        (2, ["restore", "place", "--verify", "--savepoint", "x"]),
        (6, ["backup", "place", "--profile", "cluster", "--savepoint", "x"]),
        (6, ["restore", "--profile", "cluster", "--verify"]),
        (2, ["restore", "--profile", "cluster", "place"]),
    ]:
        assert told(*arguments)[0] == code, arguments
    assert told("restore", "place", "--verify")[0] == 0
    assert not (tmp_path / "nowhere").exists()
    assert not (tmp_path / "fresh" / "store").exists()
    for path in (tmp_path / "place").glob("files/*"):
        path.unlink()
    code, checked = told("restore", "place", "--verify")
    assert (code, len(checked["bad"])) == (5, checked["files"])
    code, refused = told("restore", "place", "--data", "fresh")
    assert code == 5
    assert "files/" in refused["error"]["message"]
    code, half = told("stats", "--data", "fresh")
    assert (code, half["error"]["code"]) == (6, "half_restored")


def test_cold_sessions_come_back_too(filled: Told) -> None:
    told = filled
    code, moved = told("tiers", "move", "acme", "a", "cold")
    assert code == 0, moved
    code, made = told("backup", "place")
    assert (code, made["packs"]) == (0, 1)
    assert told("backup", "place")[1]["files_new"] < made["files_new"]
    code, back = told("restore", "place", "--data", "fresh")
    assert (code, back["packs"]) == (0, 1)
    assert _digests(told, "--data", "fresh") == _digests(told)
    code, checked = told("verify", "--data", "fresh")
    assert (code, checked["bad"]) == (0, [])
    assert told("state", "acme", "a", "--data", "fresh")[1]["turn_count"] == 2
    code, _ = told("tiers", "gc", "--data", "fresh")
    assert code == 0
    assert told("tiers", "move", "acme", "a", "warm", "--data", "fresh")[0] == 0
    assert told("verify", "--data", "fresh")[1]["bad"] == []


def test_a_bucket_is_a_place(
    filled: Told, s3_server: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = filled
    monkeypatch.setenv("TURNSTATE_S3_ENDPOINT", s3_server["endpoint"])
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_server["access_key"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server["secret_key"])
    place = f"s3://{s3_server['bucket']}/backups-{uuid4().hex[:8]}"
    code, made = told("backup", place)
    assert (code, made["number"]) == (0, 1), made
    code, again = told("backup", place, "--keep", "1")
    assert (code, again["removed"]) == (0, [1])
    assert told("backup", place, "--savepoint", "s1")[0] == 0
    code, listed = told("backup", place, "--list")
    assert (len(listed["backups"]), len(listed["savepoints"])) == (1, 1)
    for number, more in enumerate([(), ("--savepoint", "s1")]):
        data = f"fresh{number}"
        assert told("restore", place, *more, "--data", data)[0] == 0
        assert _digests(told, "--data", data) == _digests(told)
        assert told("verify", "--data", data)[1]["bad"] == []
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    code, refused = told("backup", place)
    assert code == 6
    assert refused["error"]["hint"]


def test_the_owner_makes_a_backup_that_another_process_asks_for(
    run: Run, tmp_path: Path
) -> None:
    """The place is the caller's, wherever the owner runs; publishing goes on."""
    owner = subprocess.Popen(
        [*COMMAND, "publish", "-", "--rate", "20", "--data", "data"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=tmp_path,
    )
    assert owner.stdin is not None
    try:
        owner.stdin.write(GOOD + lines(*(line("c", n) for n in range(60))))
        owner.stdin.flush()
        for _ in range(100):
            if (tmp_path / "data" / "owner.json").exists():
                break
            assert owner.poll() is None
            time.sleep(0.1)
        done = run("backup", "place", "--data", str(tmp_path / "data"))
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "place" / "manifests").is_dir()
        assert owner.poll() is None
    finally:
        owner.stdin.close()
        owner.wait(60)
    back = run("restore", "place", "--data", "fresh")
    assert back.returncode == 0, back.stderr
    assert run("verify", "--data", "fresh").returncode == 0
