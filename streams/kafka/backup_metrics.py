"""What an operator asks of a worker's backups, as Prometheus metrics."""

from prometheus_client import CollectorRegistry, Counter, Gauge


class BackupMetrics:
    """Count backups made and begun from; `docs/operations.md` says what it means.

    Args:
        registry: Of the worker.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._made = Counter(
            "turnstate_backups",
            "Backups of partitions by this worker: made or failed.",
            ["result"],
            registry=registry,
        )
        self._bytes = Counter(
            "turnstate_backup_new_bytes",
            "Bytes that backups have uploaded.",
            registry=registry,
        )
        self._time = Gauge(
            "turnstate_backup_time_seconds",
            "When this worker has made the last backup of a partition, Unix time.",
            ["partition"],
            registry=registry,
        )
        self._begun = Counter(
            "turnstate_restores_from_backup",
            "Empty partitions that met a backup: taken, refused or damaged.",
            ["result"],
            registry=registry,
        )
        self._fetched = Counter(
            "turnstate_restored_backup_bytes",
            "Bytes of backups that were fetched to begin a restore with.",
            registry=registry,
        )

    def made(self, partition: int, time_ms: int, bytes_new: int) -> None:
        """Count a backup that was made."""
        self._made.labels("made").inc()
        self._bytes.inc(bytes_new)
        self._time.labels(str(partition)).set(time_ms / 1000)

    def failed(self) -> None:
        """Count a backup that was not made."""
        self._made.labels("failed").inc()

    def met(self, result: str) -> None:
        """Count an empty partition that met a backup."""
        self._begun.labels(result).inc()

    def fetched(self, size: int) -> None:
        """Count bytes of a backup that were fetched."""
        self._fetched.inc(size)
