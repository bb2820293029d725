"""Where the time of a turn goes: each stage's own share, measured in one run."""

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from unittest.mock import patch

from turnstate.agents.session import agent, change
from turnstate.replay.bench.corpora import (
    dialogues,
    in_file_order,
    interleaved,
    multiplied,
)
from turnstate.replay.bench.figures import Progress, Report, Size, figure, rounded
from turnstate.schemas.dialogue.fold import Fold
from turnstate.storage.hot.memory import MemoryTier
from turnstate.storage.warm.batch import Batch
from turnstate.storage.warm.rocksdb import WarmStore
from turnstate.streams.bench.publishing import bench_store, checked, published
from turnstate.streams.embedded.engine import Engine
from turnstate.streams.embedded.log import EmbeddedLog

RUNS: Final = {"small": 1, "large": 3}
SESSIONS: Final = {"small": 60, "large": 10_000}
_CALIBRATED: Final = 20_000

STAGES: Final[Sequence[tuple[str, Any, str]]] = (
    ("decode and check", agent, "draft_from_bytes"),
    ("stamp and fold", agent, "plain_outcome"),
    ("the step, where a turn is not usual", agent, "session_step"),
    ("fold, in the step and in seals", Fold, "add"),
    ("frame", change, "encode_frame"),
    ("chain link", change, "link_of"),
    ("head row", change, "encode_stored_head"),
    ("change", agent, "change_of"),
    ("look up heads", agent.SessionAgent, "_heads"),
    ("look up ids", agent.SessionAgent, "_ids"),
    ("group and collect", agent.SessionAgent, "fold"),
    ("rows into the batch", Batch, "stage"),
    ("log chunk", EmbeddedLog, "stage"),
    ("write and sync", WarmStore, "write"),
    ("seal", Engine, "seal"),
    ("hot tier", MemoryTier, "commit"),
    ("answers", Engine, "_tell"),
    ("records", Engine, "_records"),
)
"""(what it is, whose, its name); a stage inside another is not counted twice."""


class _Watch:
    """Count the processor's time of nested calls, each one's own part.

    Looking at the clock takes time, too: what of it falls inside a call is
    taken off its own time, the rest off that of the call around it.
    """

    def __init__(self) -> None:
        self.own_ns: dict[str, float] = {}
        self.calls: dict[str, int] = {}
        self._inside: list[float] = []
        self._within = self._beside = 0.0
        self._within, self._beside = self._cost_ns()

    def around(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function with its time taken."""
        own, calls, inside = self.own_ns, self.calls, self._inside
        own.setdefault(name, 0)
        calls.setdefault(name, 0)
        now, within, beside = time.thread_time_ns, self._within, self._beside

        def timed(*arguments: Any, **named: Any) -> Any:
            inside.append(0)
            start = now()
            try:
                return call(*arguments, **named)
            finally:
                spent = now() - start
                own[name] += spent - inside.pop() - within
                calls[name] += 1
                if inside:
                    inside[-1] += spent + beside

        return timed

    def _cost_ns(self) -> tuple[float, float]:
        """Return what timing adds to a call: in its own time, and beside it."""
        nothing = self.around("nothing", lambda: None)
        start = time.thread_time_ns()
        for _ in range(_CALIBRATED):
            nothing()
        whole = (time.thread_time_ns() - start) / _CALIBRATED
        within = self.own_ns.pop("nothing") / self.calls.pop("nothing")
        return within, whole - within


@contextmanager
def _watched() -> Generator[_Watch]:
    watch = _Watch()
    with ExitStack() as stack:
        for name, owner, attribute in STAGES:
            timed = watch.around(name, getattr(owner, attribute))
            stack.enter_context(patch.object(owner, attribute, timed))
        yield watch


def stages(size: Size, progress: Progress) -> Report:
    """Measure the stages in file order, and interleaved.

    By the processor's time of the engine's thread; what the clock itself
    costs is taken off. The rest of the whole process (the publisher, RocksDB's
    own threads) is told as one row.
    """
    small = size == "small"
    found = dialogues(small=small)
    whole: list[float] = []
    tables: dict[str, Report] = {}
    name = ""
    for order, turns in (
        ("file_order", in_file_order(found)),
        ("interleaved", list(interleaved(list(multiplied(found, SESSIONS[size]))))),
    ):
        rows: dict[str, list[float]] = {}
        for _ in range(RUNS[size]):
            plain = _run(turns, progress, {}, watch=False)
            name = _run(turns, progress, rows, watch=True)[1]
            rows.setdefault("whole process, not watched", []).append(plain[0])
        tables[order] = {stage: rounded(min(each)) for stage, each in rows.items()}
        if order == "file_order":
            whole = rows["whole process, not watched"]
    return figure(whole, "processor's us a turn, file order") | {
        "us_a_turn": tables,
        "digest": name,
    }


def _run(
    turns: Sequence[bytes],
    progress: Progress,
    rows: dict[str, list[float]],
    *,
    watch: bool,
) -> tuple[float, str]:
    with ExitStack() as stack:
        watched = stack.enter_context(_watched()) if watch else None
        store = stack.enter_context(bench_store())
        done = published(store, turns, progress=progress)
        if watched is None:
            return done.cpu_us, ""
        for stage, spent in dict(watched.own_ns).items():
            rows.setdefault(stage, []).append(spent / done.turns / 1e3)
        return done.cpu_us, checked(store).digest
