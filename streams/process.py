"""Tune the interpreter for a process that is ours alone."""

import gc
from typing import Final

FIRST_GENERATION: Final = 100_000
SECOND_GENERATION: Final = 10
THIRD_GENERATION: Final = 1000


def tune_garbage_collector() -> None:
    """Let the cycle collector run seldom; for our own processes, not for a library.

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


def _freeze_survivors(phase: str, facts: dict[str, int]) -> None:
    if phase == "stop" and facts["generation"] == 1:
        gc.freeze()
