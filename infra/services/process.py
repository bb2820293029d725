"""Start a program in a session of its own, know it again, end it by its id."""

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from turnstate.infra.services.ran import ran

_POLL_S: Final = 0.02
_KILLED_S: Final = 10.0
"""A killed process may be held by the kernel until its writes are done."""

_PS_S: Final = 30.0

_LOG_BYTES_MAX: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class Process:
    """A process that was started here, told apart from a later one of its id.

    Attributes:
        pid: Its id, which is also that of its group.
        started: When the system says that it began; opaque.
    """

    pid: int
    started: str


def spawn(
    argv: Sequence[str], *, folder: Path, log: Path, environment: Mapping[str, str]
) -> Process:
    """Start a program that outlives this one; its words go to the log.

    Args:
        argv: The program and its arguments.
        folder: Where it runs, so that what it drops lies there.
        log: The file that its output is added to; a long one is put aside.
        environment: All of its variables.

    Raises:
        OSError: the program cannot be started.
    """
    if log.exists() and log.stat().st_size > _LOG_BYTES_MAX:
        log.replace(log.with_name(log.name + ".1"))
    with log.open("ab") as words:
        child = subprocess.Popen(  # noqa: S603 - the launcher's own command
            argv,
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=words,
            stderr=words,
            start_new_session=True,
        )
    # It is ended by its id from here on, maybe by another process; without
    # this, forgetting the object counts as a leak.
    child.returncode = 0
    return Process(child.pid, _mark(child.pid) or "")


def is_running(process: Process) -> bool:
    """Say whether it is this very process that runs under its id."""
    _reap(process.pid)
    return process.started != "" and _mark(process.pid) == process.started


def kill(process: Process) -> None:
    """End it and its group at once (SIGKILL); return when it is gone."""
    _signal(process, signal.SIGKILL)
    _gone(process, _KILLED_S)


def end(process: Process, *, grace_s: float) -> bool:
    """Ask it to end (SIGTERM), wait, and kill it where it does not.

    Returns:
        Whether it ended by itself.
    """
    _signal(process, signal.SIGTERM)
    ended = _gone(process, grace_s)
    if not ended:
        kill(process)
    return ended


def _signal(process: Process, which: signal.Signals) -> None:
    if is_running(process):
        try:
            os.killpg(process.pid, which)
        except ProcessLookupError:
            return


def _gone(process: Process, within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while is_running(process):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def _reap(pid: int) -> None:
    """Take note of the end of a child, which stays a zombie until then."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return


def _mark(pid: int) -> str | None:
    """Return what tells a process from a later one of its id; None if it ended."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
    except (FileNotFoundError, ProcessLookupError):
        return None if Path("/proc/self/stat").exists() else _mark_by_ps(pid)
    # The name in parentheses may hold anything; the state comes after it.
    fields = status.rpartition(")")[2].split()
    state, threads, ticks_since_boot = fields[0], int(fields[17]), fields[19]
    # A killed process is a zombie as soon as its first thread has ended; while
    # others have not, its ports and files are still held.
    ended = state in "ZX" and threads <= 1
    return None if ended else f"{boot.strip()}:{ticks_since_boot}"


def _mark_by_ps(pid: int) -> str | None:
    asked = ran(["ps", "-o", "state=,lstart=", "-p", str(pid)], within_s=_PS_S)
    state, _, began = asked.stdout.strip().partition(" ")
    return None if not began or state.startswith("Z") else began.strip()
