"""A process is known by its number and its start, and ends when it is told."""

import os
import sys
import time
from pathlib import Path

import pytest

from turnstate.infra.services.process import Process, end, is_running, kill, spawn

WAITS = "import time; print('up', flush=True); time.sleep(60)"
DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {WAITS}"

HALF_ENDED = """
import ctypes, platform, threading, time
threading.Thread(target=time.sleep, args=(60,)).start()
print("up", flush=True)
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[platform.machine()], 0)
"""
"""Its first thread ends (the system call `exit`), the other goes on."""


def started(folder: Path, program: str) -> Process:
    log = folder / "log"
    process = spawn(
        [sys.executable, "-c", program], folder=folder, log=log, environment=os.environ
    )
    while "up" not in log.read_text():
        time.sleep(0.01)
    return process


def test_it_runs_in_a_session_of_its_own_until_it_is_asked_to_end(
    tmp_path: Path,
) -> None:
    process = started(tmp_path, WAITS)

    assert is_running(process)
    assert os.getsid(process.pid) == process.pid
    assert end(process, grace_s=10)
    assert not is_running(process)


def test_one_that_does_not_listen_is_killed(tmp_path: Path) -> None:
    process = started(tmp_path, DEAF)

    assert not end(process, grace_s=0.1)
    assert not is_running(process)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows threads so")
def test_a_zombie_with_a_thread_that_lives_still_runs(tmp_path: Path) -> None:
    process = started(tmp_path, HALF_ENDED)
    status = Path(f"/proc/{process.pid}/stat")
    while " Z " not in status.read_text():
        time.sleep(0.01)

    assert is_running(process)
    kill(process)
    assert not is_running(process)


def test_another_start_time_is_another_process(tmp_path: Path) -> None:
    process = started(tmp_path, WAITS)
    other = Process(process.pid, process.started + "1")

    kill(other)

    assert not is_running(other)
    assert is_running(process)
    kill(process)


@pytest.mark.parametrize("started", ["", "boot:1"])
def test_a_number_that_nobody_has_does_not_run(started: str) -> None:
    assert not is_running(Process(2**22 + 1, started))


def test_a_long_log_is_put_aside(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as file:
        file.truncate((16 << 20) + 1)

    kill(started(tmp_path, WAITS))

    assert log.stat().st_size < 100
    assert (tmp_path / "log.1").exists()
