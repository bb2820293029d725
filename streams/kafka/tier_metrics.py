"""What an operator asks of a worker's hot and cold tiers, as Prometheus metrics."""

from collections.abc import Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge


class TierMetrics:
    """Count what goes on between tiers; `docs/operations.md` says what it means.

    Args:
        registry: Of the worker.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._hot_up = Gauge(
            "turnstate_hot_up",
            "Whether Redis takes what is folded: 1 or 0.",
            registry=registry,
        )
        self._hot_skipped = Counter(
            "turnstate_hot_skipped_changes",
            "Changes of sessions that hot does without.",
            registry=registry,
        )
        self._hot_reads = Counter(
            "turnstate_hot_reads",
            "Reads that asked hot first, as readers tell: hit or miss.",
            ["result"],
            registry=registry,
        )
        self._hot_filled = Counter(
            "turnstate_hot_filled_sessions",
            "Sessions put into hot because they were read.",
            registry=registry,
        )
        self._cold_waits = Counter(
            "turnstate_cold_waits",
            "Tries to fetch cold sessions, for turns that wait, that failed.",
            registry=registry,
        )
        self._moves = Counter(
            "turnstate_tier_moves",
            "Sessions moved by this worker's own runs.",
            ["path"],
            registry=registry,
        )
        self._runs = Counter(
            "turnstate_tier_runs",
            "Runs of the tier job by this worker: done, or found another at work.",
            ["result"],
            registry=registry,
        )

    def hot_state(self, *, up: bool) -> None:
        """Note whether Redis takes what is folded."""
        self._hot_up.set(up)

    def hot_skipped(self, changes: int) -> None:
        """Count changes that hot does without."""
        self._hot_skipped.inc(changes)

    def hot_read(self, hits: int) -> None:
        """Count a read that hot could not answer, and those before that it did."""
        self._hot_reads.labels("miss").inc()
        self._hot_reads.labels("hit").inc(hits)

    def hot_filled(self, sessions: int) -> None:
        """Count sessions that were put into hot."""
        self._hot_filled.inc(sessions)

    def cold_waits(self) -> None:
        """Count a try to fetch cold sessions that failed."""
        self._cold_waits.inc()

    def tier_run(self, report: Mapping[str, Any] | None) -> None:
        """Count a run of the tier job; None = another one was at work."""
        self._runs.labels("done" if report is not None else "held").inc()
        for path, sessions in (report or {}).get("moved", {}).items():
            self._moves.labels(path).inc(sessions)
