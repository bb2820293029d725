"""Run one worker: start the application, watch it, end in bounded time."""

import asyncio
import logging
import signal
import time
from typing import Final

import structlog
from aiokafka.errors import KafkaError

from turnstate.agents.ports import Clock
from turnstate.schemas.errors import TurnstateError, UnavailableError
from turnstate.streams.clock import SystemClock
from turnstate.streams.embedded.store import graph_of
from turnstate.streams.kafka.app import WorkerApp, create_app
from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.faust_options import DRAIN_S
from turnstate.streams.kafka.last_exit import LastExit
from turnstate.streams.kafka.loops import run
from turnstate.streams.kafka.metrics import WorkerMetrics
from turnstate.streams.kafka.partition_keys import cluster_keys
from turnstate.streams.kafka.restore import RestoreProgress, Told
from turnstate.streams.kafka.tier_agent import TierAgent
from turnstate.streams.kafka.topic_ids import topic_id
from turnstate.streams.kafka.topics import Topics, check_topics
from turnstate.streams.kafka.worker_doors import WorkerDoors
from turnstate.streams.process import tune_process
from turnstate.streams.settings import Settings

_log = structlog.get_logger(__name__)

SHUTDOWN_S: Final = 2 * DRAIN_S
"""After that a worker that was told to end is ended: a restart repeats the rest."""

AWAY_SHUTDOWN_S: Final = 3.0

_LAST_S: Final = 2.0
"""For the last words of a worker that could not end in order."""

_BROKER_AWAY_S: Final = 60.0
"""How long a start waits for brokers."""

_METRICS_S: Final = 1.0


def run_worker(
    settings: Settings,
    cluster: ClusterSettings,
    instance: str,
    *,
    clock: Clock | None = None,
    told: Told | None = None,
) -> int:
    """Run a worker until it is told to end (SIGTERM, SIGINT).

    Its instance is locked by who calls: `instance_lock`.

    Args:
        settings: Whose data folder holds the worker's folder.
        cluster: Where the services are.
        instance: Its name.
        clock: For arrival times.
        told: Is told of a restore's progress.

    Returns:
        How many turns it folded.

    Raises:
        TurnstateError: why it ended, if it was not told to.
    """
    tune_process()
    _quiet()
    worker = Worker(
        settings, cluster, instance, clock or SystemClock(), told or _log_progress
    )
    run(worker.main())
    return worker.metrics.turns


def _quiet() -> None:
    """Show what an operator must know; Faust and aiokafka tell much more."""
    for name in ("faust", "mode", "aiokafka", "kafka"):
        logging.getLogger(name).setLevel(logging.WARNING)


def _log_progress(progress: RestoreProgress) -> None:
    _log.info("restore", done=progress.done, total=progress.total)


class Worker:
    """Start the application, watch it, and stop it with a deadline.

    Args:
        settings: Whose data folder holds the worker's folder.
        cluster: Where the services are.
        instance: Its name.
        clock: For arrival times.
        told: Is told of a restore's progress.
    """

    def __init__(
        self,
        settings: Settings,
        cluster: ClusterSettings,
        instance: str,
        clock: Clock,
        told: Told,
    ) -> None:
        self.settings = settings
        self.cluster = cluster
        self.instance = instance
        self.clock = clock
        self.told = told
        self.metrics = WorkerMetrics()
        self._stop = asyncio.Event()
        self._away: UnavailableError | None = None

    async def main(self) -> None:
        """Run until told to end.

        Raises:
            TurnstateError: why it ended, if it was not told to.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        doors = WorkerDoors(self.cluster, self.settings)
        try:
            app = await self._app(doors)
        except BaseException:
            await doors.close()
            raise
        agent = TierAgent(self.settings, self.cluster, self.metrics.moves.tier_run)
        agent.start()
        # A start ends with the restore, which may be long: it can be told to end.
        starting = asyncio.create_task(app.start())
        try:
            await self._watch(app, doors, starting)
        except KafkaError as error:
            raise _gone(error) from error
        finally:
            agent.stop()
            if not starting.done():
                starting.cancel()
            await asyncio.wait([starting])
            await self._end(app, doors)
        if app.crash_reason is not None:
            raise _why(app.crash_reason) from app.crash_reason

    async def _app(self, doors: WorkerDoors) -> WorkerApp:
        topics = Topics.of(self.cluster)
        keys = cluster_keys(self.cluster)
        if keys is not None:
            # Before the group hears of it: with a wrong key nothing is changed.
            await asyncio.to_thread(keys.check)
        await check_topics(self.cluster)
        log_id = await topic_id(self.cluster, topics.turns, timeout_s=_BROKER_AWAY_S)
        changelog_id = await topic_id(self.cluster, topics.changelog)
        app = create_app(
            self.cluster,
            data=self.settings.data / self.instance,
            instance=self.instance,
            log_id=log_id,
            changelog_id=changelog_id,
            log_name=self.settings.log_name,
            seal_after_s=self.settings.seal_after_s,
            graph=graph_of(self.settings),
            clock=self.clock,
            metrics=self.metrics,
            told=self.told,
            url=doors.url,
            ttl_s=self.settings.ttl_s,
            keys=keys,
            cold_wait_s=self.settings.cold_wait_s,
        )
        await doors.open(app, log_id)
        return app

    async def _watch(
        self, app: WorkerApp, doors: WorkerDoors, starting: "asyncio.Task[object]"
    ) -> None:
        """Keep the metrics fresh until the end.

        Raises:
            UnavailableError: the brokers were away for longer than is set.
            KafkaError: it could not start.
        """
        heard = time.monotonic()
        while not self._stop.is_set() and app.crash_reason is None:
            if starting.done():
                starting.result()
            if app.membership.holds:
                heard = time.monotonic()
            silence_s = time.monotonic() - heard
            if silence_s > self.cluster.broker_away_s:
                self._away = _gone(f"no heartbeat was answered for {silence_s:.0f} s")
                raise self._away
            try:
                async with asyncio.timeout(_METRICS_S):
                    await self._stop.wait()
            except TimeoutError:
                doors.measure(app)

    async def _end(self, app: WorkerApp, doors: WorkerDoors) -> None:
        """Stop in bounded time; what is not done by then is done again elsewhere."""
        # Nobody answers a good-bye where the brokers are away.
        within_s = AWAY_SHUTDOWN_S if self._away else SHUTDOWN_S
        late = self._away or app.crash_reason or f"it did not end in {within_s:.0f} s"
        last = LastExit(within_s + _LAST_S, lambda: f"the worker is ended: {late}")
        try:
            async with asyncio.timeout(within_s):
                await doors.close()
                if app.crash_reason is None and not self._away:
                    await app.checkpointer.drain(DRAIN_S)
                    await app.consumer.commit()
                await app.checkpointer.close()
                await app.stop()
            last.call_off()
        except TimeoutError:
            # Threads may go on: the last exit stands.
            _log.warning("worker.stop_given_up", seconds=within_s)
        except Exception as error:  # noqa: BLE001 - it ends, whatever is wrong
            _log.warning("worker.stop_failed", why=repr(error))
        await app.close_partitions()


def _why(reason: BaseException) -> TurnstateError:
    if isinstance(reason, TurnstateError):
        return reason
    if isinstance(reason, KafkaError):
        return _gone(reason)
    return UnavailableError(
        f"the worker stopped: {type(reason).__qualname__}: {reason}",
        hint="restart it; if it comes again, report it with this line",
        code="worker_failed",
    )


def _gone(error: BaseException | str) -> UnavailableError:
    return UnavailableError(
        f"Kafka did not answer in time: {error}",
        field="kafka",
        hint="restart the worker once the brokers are back; nothing is lost",
        code="broker_away",
    )
