"""A process of our own is tuned: its collector runs seldom, its threads take turns."""

import subprocess
import sys

TUNED = """
import gc, sys
from turnstate.streams.process import tune_process
tune_process()
tune_process()
ours = [each for each in gc.callbacks if each.__module__ == "turnstate.streams.process"]
print(gc.get_threshold()[0], len(ours), sys.getswitchinterval())
"""


def test_a_process_of_our_own_is_tuned_once() -> None:
    """In a process of its own, for it changes the whole of it."""
    done = subprocess.run(
        [sys.executable, "-c", TUNED], capture_output=True, check=True, text=True
    )
    threshold, callbacks, interval_s = done.stdout.split()
    assert int(threshold) == 100_000
    assert int(callbacks) == 1
    assert float(interval_s) < 0.001
