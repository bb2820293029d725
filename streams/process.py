"""Tune the interpreter for a process that is ours alone."""

import gc
import sys
from typing import Final

FIRST_GENERATION: Final = 100_000
SECOND_GENERATION: Final = 10
THIRD_GENERATION: Final = 1000


SWITCH_INTERVAL_S: Final = 0.0002
"""How long a thread may go on while others wait. A group commit lets go of the
interpreter about a hundred times (LZ4, checksums, RocksDB), and waits so long
each time that it wants it back while a thread reads without pause: at Python's
5 ms fifty turns took 600 ms, at this 3 ms, and the reads took no longer."""


def tune_process() -> None:
    """Tune the collector and threads; for our own processes, not for a library.

    The cycle collector runs seldom, and threads change places often.

    State is made of values without cycles, most of them hidden from the
    collector (`gc=False`), so its passes over what is left find nothing:
    figures in docs/bench.md. What was imported is never looked at again, and
    what has outlived two passes neither: the heads of many sessions are
    freed by their counts, and walking them all cost a second at a time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(FIRST_GENERATION, SECOND_GENERATION, THIRD_GENERATION)
    if _freeze_survivors not in gc.callbacks:
        gc.callbacks.append(_freeze_survivors)
    sys.setswitchinterval(SWITCH_INTERVAL_S)


def _freeze_survivors(phase: str, facts: dict[str, int]) -> None:
    if phase == "stop" and facts["generation"] == 1:
        gc.freeze()
