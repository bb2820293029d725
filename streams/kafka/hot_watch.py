"""Say once that the hot tier is away, and once that it is back; count what it costs."""

import time
from typing import Final

import structlog

from turnstate.streams.kafka.tier_metrics import TierMetrics

_log = structlog.get_logger(__name__)

FAILURES: Final = 2
"""One answer that was late is no news; the next one tells."""


class HotWatch:
    """Know of which partitions Redis did not take the last word.

    Args:
        metrics: Counted into.
    """

    def __init__(self, metrics: TierMetrics) -> None:
        self.metrics = metrics
        self._failures: dict[int, int] = {}
        self._failing: set[int] = set()
        self._since = 0.0
        self._lost = 0

    def failed(self, partition: int, why: object, lost: int = 0) -> None:
        """Note that a partition's word did not arrive.

        Args:
            partition: Which one.
            why: What is wrong.
            lost: How many changes of sessions hot does without.
        """
        self._lost += lost
        self.metrics.hot_skipped(lost)
        failures = self._failures[partition] = self._failures.get(partition, 0) + 1
        if failures < FAILURES:
            return
        if not self._failing:
            self._since = time.monotonic()
            self.metrics.hot_state(up=False)
            _log.warning(
                "hot.away",
                why=str(why),
                hint="turns are folded and read without it",
            )
        self._failing.add(partition)

    def answered(self, partition: int) -> None:
        """Note that a partition's word arrived."""
        self._failures.pop(partition, None)
        if partition not in self._failing:
            return
        self._failing.discard(partition)
        if not self._failing:
            seconds = round(time.monotonic() - self._since, 1)
            _log.warning("hot.back", seconds=seconds, changes_left_out=self._lost)
            self._lost = 0
            self.metrics.hot_state(up=True)

    def gone(self, partition: int) -> None:
        """Forget a partition: it is another worker's now."""
        self.answered(partition)
