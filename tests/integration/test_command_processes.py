"""The command among others: pipes, signals, a store that has an owner."""

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from support.commands import COMMAND, GOOD, SHAPES, TIMEOUT_S, Run, line, lines


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
    # A shell lets what it runs in the background ignore Ctrl-C; a child inherits it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = subprocess.Popen(
            [*COMMAND, "publish", "-"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
        )
    finally:
        signal.signal(signal.SIGINT, before)
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


def test_help_is_plain_in_a_pipe_and_settings_name_their_source(run: Run) -> None:
    done = run("--help")
    assert done.returncode == 0
    assert b"dead-letters" in done.stdout
    assert b"\xe2\x94\x80" not in done.stdout  # no boxes
    rows = json.loads(run("settings", "--json", TURNSTATE_FSYNC="never").stdout)
    source = {row["name"]: row["source"] for row in rows["settings"]}
    assert (source["fsync"], source["data"]) == ("TURNSTATE_FSYNC", "default")
