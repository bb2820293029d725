"""Move sessions between tiers by the clock, from inside a worker, in a thread."""

import threading
from collections.abc import Callable
from typing import Final

import structlog

from turnstate.agents.tiering.budget import RunBudget
from turnstate.schemas.errors import TurnstateError
from turnstate.streams.documents import Document
from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.cluster_tiers import opened_tiers
from turnstate.streams.settings import Settings

_log = structlog.get_logger(__name__)

PART_OF_TIME: Final = 0.5
"""A run ends after this part of the time until the next one."""


class TierAgent:
    """Run the tier job every so often for all partitions of the cluster.

    Every worker does; one of them holds the lease, and the others find it held
    and look again the next time. A run is the same as `turnstate tiers run`.

    Args:
        settings: The policy.
        cluster: Says how often, and where everything is.
        told: Is told of each run: its report, None where another one was at work.
    """

    def __init__(
        self,
        settings: Settings,
        cluster: ClusterSettings,
        told: Callable[[Document | None], None] = lambda _: None,
    ) -> None:
        self._settings = settings
        self._cluster = cluster
        self._told = told
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="turnstate-tiers", daemon=True
        )

    def start(self) -> None:
        """Begin; the first run is after the time has passed once."""
        if self._cluster.tiers_every_s:
            self._thread.start()

    def stop(self) -> None:
        """Begin no more runs; one that is under way ends with the process."""
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.wait(self._cluster.tiers_every_s):
            try:
                self.run_once()
            except TurnstateError as error:
                _log.warning("tiers.failed", why=str(error), code=error.code)
            except Exception as error:  # noqa: BLE001 - the worker goes on
                _log.error("tiers.failed", why=repr(error))

    def run_once(self) -> None:
        """Run the job, unless another one is at work.

        Raises:
            TurnstateError: it failed; the next run takes up what is left.
        """
        budget = RunBudget(seconds_max=self._cluster.tiers_every_s * PART_OF_TIME)
        with opened_tiers(self._settings, self._cluster) as opened:
            lease = opened.leases.latest()
            if lease is not None and lease.is_held(opened.now_ms()):
                self._told(None)
                return
            try:
                report = opened.job.run(budget)
            except TurnstateError as error:
                if error.code != "leased":
                    raise
                self._told(None)
                return
        self._told(report.document())
