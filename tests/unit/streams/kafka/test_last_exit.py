"""A process ends at its deadline, whatever it waits for, or goes on if called off."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from turnstate.streams.kafka.last_exit import LastExit

STUCK = """
import threading
from turnstate.streams.kafka.last_exit import LastExit
LastExit(0.2, lambda: "it did not end")
threading.Thread(target=threading.Event().wait).start()
"""


def test_a_process_that_a_thread_holds_ends_with_its_last_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", STUCK],
        capture_output=True,
        check=False,
        cwd=tmp_path,
        timeout=60,
    )
    assert done.returncode == 6
    assert done.stderr == b"error: it did not end\n"


def test_it_can_be_called_off(capsys: pytest.CaptureFixture[str]) -> None:
    left = threading.Event()
    exits = LastExit(0.05, lambda: "", lambda _: left.set())
    exits.call_off()
    assert not left.wait(0.2)
    assert capsys.readouterr().err == ""
