"""The command as a user runs it: exit codes, shapes, pipes, a second process."""

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from turnstate.streams.cli import main

COMMAND = [sys.executable, "-m", "turnstate.streams"]
TIMEOUT_S = 120

Run = Callable[..., "subprocess.CompletedProcess[bytes]"]


def line(session: str, turn: int, text: str = "hi", **more: Any) -> bytes:
    turn_fields = {"turn_id": f"t{turn}", "role": "user", "content": text}
    return json.dumps(
        {"tenant": "acme", "session": session} | turn_fields | more
    ).encode()


def lines(*given: bytes) -> bytes:
    return b"".join(each + b"\n" for each in given)


GOOD = lines(
    line("a", 1, "a table for two", slots={"set": {"people": 2}}),
    line("a", 2, "for three", slots={"set": {"people": 3}}, usage={"tokens": 9}),
    line("b", 1, "北京"),
)


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


SHAPES = {
    "state acme a": [
        "tenant",
        "session",
        "incarnation",
        "version",
        "clock",
        "branch",
        "branches",
        "phase",
        "phase_error",
        "turns",
        "turn_count",
        "slots",
        "tags",
        "usage",
        "open_tool_calls",
        "gaps",
        "conflicts",
        "ended",
        "tier",
        "digest",
    ],
    "turns acme a": ["turns", "next"],
    "history acme a": ["versions"],
    "context acme a --budget-tokens 100": [
        "messages",
        "tokens",
        "budget_tokens",
        "left_out",
    ],
    "sessions": ["sessions"],
    "stats": [
        "sessions",
        "turns",
        "text_bytes",
        "log_bytes",
        "state_bytes",
        "disk_bytes",
        "tiers",
        "dead_letters",
    ],
    "verify": ["sessions", "frames", "bad"],
    "seal": ["sealed"],
    "settings": ["settings"],
    "dead-letters list": ["dead_letters"],
    "rollback acme a 1": ["verdict", "version", "turn"],
    "fork acme a other --version 1": ["verdict", "version", "turn"],
    "end acme a --to b": ["verdict", "version", "turn"],
    "export all.tsrec": ["operations", "sessions", "bytes"],
    "erase acme --session b --dry-run": [
        "sessions",
        "turns",
        "scanned",
        "found_after",
        "not_covered",
    ],
}
"""Command → keys that its document has, whatever is added (design §13)."""


def test_every_document_has_the_keys_that_were_agreed(filled: Any) -> None:
    for command, keys in SHAPES.items():
        code, document = filled(*command.split())

        assert code == 0, (command, document)
        assert set(keys) <= document.keys(), command
    assert {"from", "to", "time", "bytes", "raw_bytes", "codec"} <= filled(
        "history", "acme", "a"
    )[1]["versions"][0].keys()
    assert {"tenant", "session", "version", "turn_count", "tier", "digest"} <= filled(
        "sessions"
    )[1]["sessions"][0].keys()
    assert filled("state", "acme", "b")[1]["turns"][0]["content"] == "北京"


def test_publish_counts_and_strict_says_so_by_its_exit_code(told: Any) -> None:
    mixed = GOOD + lines(line("a", 1, "something else"), b'{"tenant":"acme"}', b"oh")

    code, document = told("publish", "-", stdin=mixed)

    assert code == 0
    assert list(document) == [
        "turns",
        "accepted",
        "duplicates",
        "conflicts",
        "refused",
        "sessions",
        "seconds",
        "turns_per_s",
    ]
    assert [document[name] for name in list(document)[:6]] == [6, 3, 0, 1, 2, 2]
    code, again = told("publish", "-", "--strict", stdin=GOOD)
    assert (code, again["duplicates"]) == (1, 3)
    code, handed_over = told("publish", "-", "--no-wait", stdin=GOOD)
    assert (handed_over["duplicates"], handed_over["conflicts"]) == (None, None)
    letters = told("dead-letters", "list")[1]["dead_letters"]
    assert len(letters) == 3
    keys = ["id", "reason", "field", "topic", "partition", "offset", "time"]
    assert set(keys) <= letters[0].keys()


def test_gz_files_and_several_files_are_read(told: Any, tmp_path: Path) -> None:
    (tmp_path / "one.jsonl.gz").write_bytes(gzip.compress(GOOD))
    (tmp_path / "two.jsonl").write_bytes(lines(line("c", 1)))

    code, document = told("publish", "one.jsonl.gz", "two.jsonl")

    assert (code, document["accepted"], document["sessions"]) == (0, 4, 3)


def test_a_dead_letter_gives_its_bytes_back(filled: Any, run: Run) -> None:
    run("publish", "-", stdin=b'{"tenant":"acme","role":"user"}\n')

    assert run("dead-letters", "show", "1", "--raw").stdout == (
        b'{"tenant":"acme","role":"user"}'
    )
    code, document = filled("dead-letters", "redrive", "1")
    assert (code, document["refused"]) == (0, 1)
    assert filled("dead-letters", "discard", "--all")[0] == 0
    assert filled("dead-letters", "list")[1] == {"dead_letters": []}


@pytest.mark.parametrize(
    ("arguments", "code", "name"),
    [
        ("state acme", 2, "usage"),
        ("state acme nobody", 3, "not_found"),
        ("state acme a --version 99", 3, "not_found"),
        ("state acme a --branch nowhere", 3, "not_found"),
        ("turns acme nobody", 3, "not_found"),
        ("rollback acme nobody 1", 3, "not_found"),
        ("dead-letters show 77", 3, "not_found"),
        ("fork acme a other", 4, "branch_exists"),
        ("sessions --profile cluster", 6, "unavailable"),
        ("publish missing.jsonl", 2, "unreadable_file"),
    ],
)
def test_an_error_has_its_exit_code_and_its_words(
    filled: Any, run: Run, arguments: str, code: int, name: str
) -> None:
    filled("fork", "acme", "a", "other")
    found, document = filled(*arguments.split())

    assert (found, document["error"]["code"]) == (code, name)
    assert list(document["error"]) == ["code", "message", "field", "hint"]
    plain = run(*arguments.split())
    assert (plain.returncode, plain.stdout) == (code, b"")
    assert plain.stderr.startswith(b"error: ")
    assert plain.stderr.count(b"\n") == 1


def test_an_empty_store_lists_nothing_and_that_is_no_error(told: Any) -> None:
    assert told("sessions") == (0, {"sessions": []})
    assert told("verify")[0] == 0
    assert told("dead-letters", "list") == (0, {"dead_letters": []})


def test_recordings_travel_and_replay_finds_what_differs(
    filled: Any, tmp_path: Path
) -> None:
    assert filled("export", "all.tsrec")[0] == 0
    assert filled("export", "all.tsrec")[0] == 4  # it is there
    assert filled("export", "all.jsonl.gz")[0] == 0
    for recording in ("all.tsrec", "all.jsonl.gz"):
        code, report = filled("replay", recording, "--against", ".turnstate")
        assert (code, report["equal"], report["different"]) == (0, 2, [])
        assert report.keys() >= {"turns", "sessions", "missing", "turns_per_s"}
    copied = filled("import", "all.tsrec", "--data", "copy")[1]
    assert copied["accepted"] == 3
    again = filled("import", "all.jsonl.gz", "--data", "copy")[1]
    assert (again["accepted"], again["duplicates"]) == (0, 3)
    assert filled("replay", "all.tsrec", "--shuffle", "7", "--against", "copy")[0] == 0

    filled("publish", "-", stdin=lines(line("a", 3), line("c", 1)))
    code, report = filled("replay", "all.tsrec", "--against", ".turnstate")
    assert code == 1
    assert report["different"] == [
        {"tenant": "acme", "session": "a", "field": "version"}
    ]
    assert [row["session"] for row in report["missing"]] == ["c"]

    whole = (tmp_path / "all.tsrec").read_bytes()
    (tmp_path / "cut.tsrec").write_bytes(whole[:-20])
    assert filled("replay", "cut.tsrec")[0] == 5
    assert filled("import", "cut.tsrec", "--data", "never")[0] == 5
    assert filled("sessions", "--data", "never") == (0, {"sessions": []})


def test_damage_is_found_and_exits_5(filled: Any, run: Run, tmp_path: Path) -> None:
    filled("seal")
    tables = sorted((tmp_path / ".turnstate" / "store").glob("*.sst"))
    assert tables
    for table in tables:
        data = bytearray(table.read_bytes())
        data[len(data) // 4] ^= 0xFF
        table.write_bytes(data)

    assert run("verify").returncode == 5


def test_a_pipe_gets_plain_text(filled: Any, run: Run) -> None:
    done = run("state", "acme", "a")

    assert done.returncode == 0
    assert b"\x1b" not in done.stdout
    assert b"people\t3\t" in done.stdout
    assert done.stderr == b""


def test_text_is_utf_8_whatever_the_locale(filled: Any, run: Run) -> None:
    done = run("turns", "acme", "b", LC_ALL="C", PYTHONUTF8="0")

    assert "北京".encode() in done.stdout


def test_a_reader_that_has_had_enough_is_no_error(run: Run, tmp_path: Path) -> None:
    run("publish", "-", stdin=lines(*(line(f"s{n}", 1) for n in range(2000))))
    process = subprocess.Popen(
        [*COMMAND, "sessions"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(10)
    process.stdout.close()

    assert process.stderr.read() == b""
    assert process.wait(TIMEOUT_S) == 0
    process.stderr.close()


def test_ctrl_c_exits_130_quietly_and_keeps_what_was_read(
    run: Run, told: Any, tmp_path: Path
) -> None:
    process = subprocess.Popen(
        [*COMMAND, "publish", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
    )
    assert process.stdin is not None
    process.stdin.write(GOOD)
    process.stdin.flush()
    deadline = time.monotonic() + TIMEOUT_S
    while len(told("sessions")[1].get("sessions", ())) < 2:  # asks the owner
        assert time.monotonic() < deadline
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=TIMEOUT_S)

    assert (process.returncode, out, err) == (130, b"", b"")
    assert len(told("sessions")[1]["sessions"]) == 2


def test_every_command_works_while_another_process_owns_the_store(
    filled: Any, tmp_path: Path
) -> None:
    owner = subprocess.Popen(
        [*COMMAND, "publish", "-", "--json"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=tmp_path,
    )
    assert owner.stdin is not None
    owner.stdin.write(lines(line("live", 1)))
    owner.stdin.flush()
    deadline = time.monotonic() + TIMEOUT_S
    while len(filled("sessions")[1]["sessions"]) < 3:
        assert time.monotonic() < deadline
    for command, keys in SHAPES.items():
        code, document = filled(*command.split())
        assert code == 0, (command, document)
        assert set(keys) <= document.keys(), command
    assert filled("publish", "-", stdin=lines(line("a", 9)))[1]["accepted"] == 1
    assert filled("state", "acme", "nobody")[0] == 3
    assert owner.poll() is None
    out, _ = owner.communicate(timeout=TIMEOUT_S)
    assert json.loads(out)["accepted"] == 1


def test_tail_gives_one_document_a_line(filled: Any, run: Run) -> None:
    done = run("tail", "acme", "a", "--from", "0", "--no-follow", "--json")

    events = [json.loads(each) for each in done.stdout.splitlines()]
    assert [event["version"] for event in events] == [1, 2]
    rest = run("tail", "acme", "a", "--from", events[0]["token"], "--no-follow")
    assert rest.stdout.startswith(b"1-2\t")


def test_help_is_plain_in_a_pipe_and_settings_name_their_source(run: Run) -> None:
    done = run("--help")
    assert done.returncode == 0
    assert b"dead-letters" in done.stdout
    assert b"\xe2\x94\x80" not in done.stdout  # no boxes
    rows = json.loads(run("settings", "--json", TURNSTATE_FSYNC="never").stdout)
    source = {row["name"]: row["source"] for row in rows["settings"]}
    assert (source["fsync"], source["data"]) == ("TURNSTATE_FSYNC", "default")


def test_the_demo_does_the_main_job(told: Any, tmp_path: Path) -> None:
    code, document = told("demo")

    assert (code, document["holds"]) == (0, True)
    assert document["replay"]["equal"] == document["sessions"] > 0
    assert document["verify"]["bad"] == []
    assert all(sample["slots"] for sample in document["samples"])
    assert list(tmp_path.iterdir()) == []  # it leaves nothing behind
