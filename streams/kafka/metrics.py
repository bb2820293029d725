"""What an operator asks of a worker, as Prometheus metrics in a registry of its own."""

from collections.abc import Mapping
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)

from turnstate.streams.kafka.backup_metrics import BackupMetrics
from turnstate.streams.kafka.progress import Reading
from turnstate.streams.kafka.tier_metrics import TierMetrics

SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)


class WorkerMetrics:
    """Count what a worker does; costs a few additions a round, none a turn.

    `docs/operations.md` says of each what it means and what to do about it.

    Example:
        >>> metrics = WorkerMetrics()
        >>> metrics.round(turns=3, fold_s=0.001, checkpoint_s=0.004)
        >>> "turnstate_turns_total 3.0" in metrics.text()
        True

    Attributes:
        moves: What is counted of hot, of cold, and of moves between tiers.
        backups: What is counted of backups.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        registry = self.registry
        self._turns = Counter("turnstate_turns", "Turns folded.", registry=registry)
        self._rounds = Counter("turnstate_rounds", "Checkpoints.", registry=registry)
        self._letters = Counter(
            "turnstate_dead_letters", "Turns refused.", ["reason"], registry=registry
        )
        self._fold = Histogram(
            "turnstate_fold_seconds",
            "Folding of one round, in memory.",
            buckets=SECONDS,
            registry=registry,
        )
        self._checkpoint = Histogram(
            "turnstate_checkpoint_seconds",
            "Sending, verifying and writing of one round.",
            buckets=SECONDS,
            registry=registry,
        )
        self._lag = Gauge(
            "turnstate_lag_records",
            "Records of a partition that are not folded.",
            ["partition"],
            registry=registry,
        )
        self._position = Gauge(
            "turnstate_folded_offset",
            "Offset of the log that a partition has folded last; -1 = none.",
            ["partition"],
            registry=registry,
        )
        self._fresh = Gauge(
            "turnstate_fresh",
            "Whether a partition is restored, folds and may be read: 1 or 0.",
            ["partition"],
            registry=registry,
        )
        self._restore = Gauge(
            "turnstate_restore_progress",
            "Share of the changelogs that is read; 1 = not restoring.",
            registry=registry,
        )
        self._restored = Counter(
            "turnstate_restored_records", "Changelog records.", registry=registry
        )
        self._bytes = Gauge(
            "turnstate_tier_bytes", "Bytes by tier.", ["tier"], registry=registry
        )
        self._sessions = Gauge(
            "turnstate_tier_sessions", "Sessions by tier.", ["tier"], registry=registry
        )
        self.moves = TierMetrics(registry)
        self.backups = BackupMetrics(registry)
        self._restore.set(1)
        self.turns = 0

    def round(self, *, turns: int, fold_s: float, checkpoint_s: float) -> None:
        """Count a checkpoint."""
        self.turns += turns
        self._turns.inc(turns)
        self._rounds.inc()
        self._fold.observe(fold_s)
        self._checkpoint.observe(checkpoint_s)

    def letter(self, reason: str) -> None:
        """Count a refused turn."""
        self._letters.labels(reason).inc()

    def restore(self, done: int, total: int, new: int) -> None:
        """Note how far a restore has come."""
        self._restore.set(done / total if total else 1.0)
        self._restored.inc(new)

    def partitions(
        self, readings: Mapping[int, Reading], ends: Mapping[int, int]
    ) -> None:
        """Note where partitions are; those that are gone are shown no more."""
        for gauge in (self._lag, self._position, self._fresh):
            gauge.clear()
        for number, reading in readings.items():
            offset = -1 if reading.folded is None else reading.folded
            self._position.labels(str(number)).set(offset)
            self._fresh.labels(str(number)).set(reading.fresh)
            end = ends.get(number)
            if end is not None:
                self._lag.labels(str(number)).set(max(end - offset - 1, 0))

    def tiers(self, tiers: Mapping[str, tuple[int, int]]) -> None:
        """Note (sessions, bytes) by tier."""
        for tier, (sessions, size) in tiers.items():
            self._sessions.labels(tier).set(sessions)
            self._bytes.labels(tier).set(size)

    def text(self) -> str:
        """Return all in Prometheus' text form."""
        return generate_latest(self.registry).decode()
