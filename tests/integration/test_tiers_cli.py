"""What cron calls: every `turnstate tiers` command, its shape and its exit code."""

import json
import os
import subprocess
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.commands import COMMAND, TIMEOUT_S, Run, line, lines
from turnstate.replay.samples import sample_paths
from turnstate.schemas.errors import FencedError
from turnstate.storage.cold.directory import DirectoryObjects
from turnstate.storage.cold.lease import Leases
from turnstate.streams.clock import SystemClock
from turnstate.streams.tiers import job

LATER = "2030-01-01T00:00:00Z"
"""So late that everything is idle, whenever this is run."""

SHAPES = {
    "status": ["tiers", "packs", "pack_bytes", "manifest", "lease", "unfinished"],
    "run --once": ["moved", "bytes", "skipped", "seconds", "fenced"],
    "run --dry-run": ["moved", "bytes", "skipped", "seconds", "fenced", "dry_run"],
    "run --budget-bytes 100 --budget-seconds 5": ["moved", "skipped_why"],
    "sweep": ["moved", "swept", "fenced"],
    "sweep --once --dry-run": ["moved", "swept", "fenced"],
    "compact --once": ["packs", "rewritten", "new_packs", "moved", "damaged"],
    "compact --dry-run": ["packs", "rewritten", "bytes_before", "bytes_live"],
    "gc --once": ["packs", "bytes", "manifests", "leases", "kept", "dry_run"],
    "gc --dry-run": ["packs", "bytes", "manifests", "leases", "kept", "dry_run"],
}

Told = Callable[..., tuple[int, Any]]


def tiers_of(told: Told) -> dict[str, int]:
    code, document = told("tiers", "status")
    assert code == 0
    return {name: each["sessions"] for name, each in document["tiers"].items()}


@contextmanager
def owner(folder: Path) -> "Generator[subprocess.Popen[bytes]]":
    """Have another process own the store, until the end."""
    process = subprocess.Popen(
        [*COMMAND, "publish", "-", "--json"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=folder,
        env={k: v for k, v in os.environ.items() if not k.startswith("TURNSTATE")},
    )
    assert process.stdin is not None
    try:
        yield process
    finally:
        out, _ = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0, out


def until(told: Told, count: int) -> None:
    """Wait until so many sessions are there, as their owner says."""
    for _ in range(2000):
        if len(told("sessions")[1].get("sessions", ())) >= count:
            return
    raise AssertionError("the owner does not publish")


def test_an_empty_store_is_nothing_to_do(told: Told) -> None:
    for command, keys in SHAPES.items():
        code, document = told("tiers", *command.split())
        assert code == 0, (command, document)
        assert not document.get("moved"), command
        assert set(keys) <= document.keys(), command


def test_down_and_up_by_command(filled: Told) -> None:
    said = {s: filled("turns", "acme", s)[1] for s in ("a", "b")}
    code, document = filled("tiers", "run", "--once", "--dry-run", "--now", LATER)
    assert (code, document["moved"]) == (0, {"warm>cold": 2})
    assert tiers_of(filled) == {"hot": 0, "warm": 2, "cold": 0}
    code, document = filled("tiers", "run", "--once", "--now", LATER)
    assert (code, document["moved"], document["fenced"]) == (0, {"warm>cold": 2}, False)
    assert [move["path"] for move in document["moves"]] == ["warm>cold"] * 2
    assert tiers_of(filled) == {"hot": 0, "warm": 0, "cold": 2}
    rows = filled("sessions", "--tier", "cold")[1]["sessions"]
    assert {row["session"] for row in rows} == {"a", "b"}
    assert filled("sessions", "--tier", "warm")[1]["sessions"] == []
    assert filled("state", "acme", "a")[1]["tier"] == "cold"
    assert {s: filled("turns", "acme", s)[1] for s in ("a", "b")} == said
    assert filled("verify")[1]["bad"] == []

    code, document = filled("tiers", "move", "acme", "a", "warm")
    assert (code, document["moved"]) == (0, {"cold>warm": 1})
    assert tiers_of(filled) == {"hot": 0, "warm": 1, "cold": 1}
    code, document = filled("tiers", "move", "acme", "a", "warm")
    assert (code, document["moved"]) == (0, {})
    assert filled("publish", "-", stdin=lines(line("b", 2)))[1]["accepted"] == 1
    assert tiers_of(filled) == {"hot": 0, "warm": 2, "cold": 0}
    assert {s: filled("turns", "acme", s)[1] for s in ("a",)} == {"a": said["a"]}
    assert filled("state", "acme", "b")[1]["turn_count"] == 2


def test_dead_packs_are_rewritten_and_deleted(filled: Told, tmp_path: Path) -> None:
    filled("tiers", "run", "--now", LATER)
    for session in ("a", "b"):
        filled("tiers", "move", "acme", session, "warm")
    assert filled("tiers", "compact")[1]["rewritten"] == 0  # it is too young
    packs = list((tmp_path / ".turnstate" / "cold" / "packs").iterdir())
    assert len(packs) == 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TURNSTATE_COLD_MIN_AGE_S", "1")
        hour_ago = packs[0].stat().st_mtime - 3600
        os.utime(packs[0], (hour_ago, hour_ago))
        patch.setattr(SystemClock, "now_ms", later)
        code, document = filled("tiers", "compact")
        assert (code, document["rewritten"]) == (0, 1)
        code, document = filled("tiers", "gc")
        assert (code, document["packs"]) == (0, 1)
    assert not list((tmp_path / ".turnstate" / "cold" / "packs").iterdir())
    assert filled("verify")[1]["bad"] == []


def later(_: object) -> int:
    """Stand in for the machine's clock when everything is old."""
    return 1_893_456_000_000


# -- codes ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "code", "field"),
    [
        ("run --now yesterday", 2, "now"),
        ("run --now 2030-01-01T00:00:00", 2, "now"),
        ("sweep --now 1", 2, "now"),
        ("run --budget-bytes -1", 2, "budget_bytes"),
        ("move acme a lukewarm", 2, "tier"),
        ("move acme nobody cold", 3, "session"),
    ],
)
def test_what_is_wrong_is_named(
    told: Told, command: str, code: int, field: str
) -> None:
    found, document = told("tiers", *command.split())
    assert (found, document["error"]["field"]) == (code, field)


def test_another_job_at_work_is_exit_6(filled: Told, tmp_path: Path) -> None:
    objects = DirectoryObjects(tmp_path / ".turnstate" / "cold")
    Leases(objects, os.urandom).take("another:1", SystemClock().now_ms())
    assert filled("tiers", "status")[1]["lease"] == "another:1"
    for command in (f"run --now {LATER}", "move acme a cold", "compact", "gc"):
        code, document = filled("tiers", *command.split())
        assert (code, document["error"]["code"]) == (6, "leased"), command
        assert "another:1" in document["error"]["message"]
        assert document["error"]["hint"]
    assert tiers_of(filled)["cold"] == 0


def test_a_job_that_is_overtaken_is_exit_4_with_its_report(
    filled: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    def overtaken(*_: object) -> None:
        raise FencedError("another job has taken over the cold tier")

    monkeypatch.setattr(job.TierJob, "_cool", overtaken)
    code, document = filled("tiers", "run", "--now", LATER)
    assert (code, document["fenced"], document["moved"]) == (4, True, {})
    monkeypatch.undo()


def test_a_cold_tier_that_is_away_is_exit_6(
    filled: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled("tiers", "run", "--now", LATER)
    cold = tmp_path / ".turnstate" / "cold"
    cold.rename(tmp_path / "elsewhere")
    cold.write_bytes(b"")
    for command in ("state acme a", "turns acme a", "verify", "tiers status"):
        code, document = filled(*command.split())
        assert code == 6, (command, document)
        assert document["error"]["hint"], command
    code, document = filled("publish", "-", "--strict", stdin=lines(line("a", 3)))
    assert code != 0
    assert len(filled("sessions")[1]["sessions"]) == 2
    assert filled("dead-letters", "list")[1]["dead_letters"] == []
    cold.unlink()
    (tmp_path / "elsewhere").rename(cold)
    assert filled("state", "acme", "a")[1]["turn_count"] == 2
    assert filled("publish", "-", stdin=lines(line("a", 3)))[1]["accepted"] == 1
    assert filled("verify")[1]["bad"] == []


def test_people_are_told_what_was_moved_and_why(filled: Told, run: Run) -> None:
    done = run("tiers", "run", "--once", "--now", LATER)
    assert done.returncode == 0
    text = done.stdout.decode()
    assert "warm>cold\t2" in text
    assert "no turn for" in text
    assert "acme\ta\t2\twarm>cold" in text
    assert b"\x1b" not in done.stdout
    for command in ("status", "sweep", "compact", "gc"):
        assert run("tiers", command).returncode == 0


# -- beside an owner ----------------------------------------------------------------


def test_every_command_works_while_another_process_owns_the_store(
    filled: Told, tmp_path: Path
) -> None:
    said = {s: filled("turns", "acme", s)[1] for s in ("a", "b")}
    with owner(tmp_path) as process:
        assert process.stdin is not None
        process.stdin.write(lines(line("live", 1), line("live", 2)))
        process.stdin.flush()
        until(filled, 3)
        for command, keys in SHAPES.items():
            code, document = filled("tiers", *command.split())
            assert code == 0, (command, document)
            assert set(keys) <= document.keys()
        code, document = filled("tiers", "run", "--now", LATER)
        assert (code, document["moved"]["warm>cold"]) == (0, 3)
        assert tiers_of(filled) == {"hot": 0, "warm": 0, "cold": 3}
        assert {s: filled("turns", "acme", s)[1] for s in ("a", "b")} == said
        process.stdin.write(lines(line("live", 3)))
        process.stdin.flush()
        for _ in range(2000):
            if filled("state", "acme", "live")[1]["turn_count"] == 3:
                break
        assert tiers_of(filled)["cold"] == 2
        code, document = filled("tiers", "move", "acme", "a", "hot")
        assert document["moved"] == {"cold>warm": 1, "warm>hot": 1}
        assert filled("state", "acme", "a")[1]["tier"] == "hot"
        assert filled("state", "acme", "nobody")[0] == 3
        assert filled("verify")[1]["bad"] == []
        assert process.poll() is None
    assert filled("state", "acme", "live")[1]["turn_count"] == 3


def test_the_demos_dialogues_cool_replay_and_export(told: Told, run: Run) -> None:
    paths = [str(path) for path in sample_paths()[:3]]
    assert told("publish", *paths, "--format", "corpus")[0] == 0
    before = {r["session"]: r["digest"] for r in told("sessions")[1]["sessions"]}
    assert told("export", "warm.tsrec")[0] == 0
    code, document = told("tiers", "run", "--now", LATER)
    assert (code, document["moved"]["warm>cold"]) == (0, len(before))
    after = {r["session"]: r["digest"] for r in told("sessions")[1]["sessions"]}
    assert after == before
    code, document = told("replay", "warm.tsrec", "--against", ".turnstate")
    assert (code, document["equal"], document["different"]) == (0, len(before), [])
    assert told("export", "cold.tsrec")[0] == 0
    code, document = told("replay", "cold.tsrec", "--against", ".turnstate")
    assert (code, document["equal"]) == (0, len(before))
    stats = told("stats")[1]
    assert stats["tiers"]["cold"]["sessions"] == stats["sessions"] == len(before)
    assert stats["tiers"]["cold"]["bytes"] > 0
    assert json.loads(run("stats", "--json").stdout)["sessions"] == len(before)
