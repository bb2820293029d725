"""Turns a second, durable in one process with every check on: three ways to come."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from turnstate.replay.bench.corpora import (
    Dialogue,
    dialogues,
    in_file_order,
    interleaved,
    multiplied,
)
from turnstate.replay.bench.figures import Progress, Report, Size, figure, rounded
from turnstate.streams.bench.publishing import (
    Checked,
    Published,
    bench_store,
    checked,
    fsync_ms,
    published,
)

RUNS: Final = 5
SESSIONS: Final = {"small": 60, "large": 10_000}
SMALL_HEADS_SHARE: Final = 0.05
"""The share of the heads that the cache is given room for in `interleaved-cold`."""


@dataclass
class _Measured:
    """The runs of one bench, each in a store of its own."""

    runs: list[Published] = field(default_factory=list[Published])
    syncs_cost_ms: float = 0.0
    last: Checked | None = None
    hot_bytes: int = 0
    hot_sessions: int = 0

    def run(
        self,
        turns: Sequence[bytes],
        progress: Progress,
        *,
        check: bool,
        hot_bytes: int | None = None,
    ) -> None:
        """Publish into a new store; with `check`, the figure has to be earned."""
        settings = {} if hot_bytes is None else {"hot_bytes": hot_bytes}
        with bench_store(**settings) as store:
            self.runs.append(published(store, turns, progress=progress))
            self.syncs_cost_ms = fsync_ms(store.settings.data)
            self.hot_bytes = store.engine.hot.bytes_held
            self.hot_sessions = len(store.engine.hot)
            if check:
                self.last = checked(store, progress)

    def report(self) -> Report:
        """Return the figures; the last run was verified."""
        assert self.last is not None, "a figure counts once it is checked"
        return figure([run.turns_per_s for run in self.runs], "turns/s") | {
            "turns": self.runs[-1].turns,
            "sessions": self.last.sessions,
            "cpu_us_a_turn": rounded(min(run.cpu_us for run in self.runs)),
            "fsyncs_per_s": rounded(self.runs[-1].syncs / self.runs[-1].seconds),
            "fsync_ms": rounded(self.syncs_cost_ms),
            "hot_sessions": self.hot_sessions,
            "verified": "ok",
            "folded_by_definition": self.last.by_definition,
            "digest": self.last.digest,
        }


def throughput(size: Size, progress: Progress) -> Report:
    """Measure turns in file order, session after session."""
    return _measured(in_file_order(dialogues(small=size == "small")), size, progress)


def interleaved_sessions(size: Size, progress: Progress) -> Report:
    """Measure 10 000 sessions that all go on at the same time."""
    return _measured(list(_mixed(size)), size, progress)


def interleaved_cold(size: Size, progress: Progress) -> Report:
    """Measure the same with room for 5 % of the heads, beside a run with all."""
    turns = list(_mixed(size))
    warm = _Measured()
    warm.run(turns, progress, check=False)
    room = max(1, int(warm.hot_bytes * SMALL_HEADS_SHARE))
    cold = _Measured()
    runs = _runs(size)
    for number in range(runs):
        cold.run(turns, progress, check=number == runs - 1, hot_bytes=room)
    return cold.report() | {
        "room_bytes": room,
        "all_heads_turns_per_s": rounded(warm.runs[0].turns_per_s),
        "all_heads_cpu_us_a_turn": rounded(warm.runs[0].cpu_us),
    }


def _measured(turns: Sequence[bytes], size: Size, progress: Progress) -> Report:
    measured = _Measured()
    runs = _runs(size)
    for number in range(runs):
        measured.run(turns, progress, check=number == runs - 1)
    return measured.report()


def _runs(size: Size) -> int:
    return RUNS if size == "large" else 1


def _mixed(size: Size) -> Iterable[bytes]:
    found: list[Dialogue] = dialogues(small=size == "small")
    return interleaved(list(multiplied(found, SESSIONS[size])))


