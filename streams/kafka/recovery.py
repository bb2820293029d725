"""Faust's table recovery, with our batch loop in the place of its own."""

from typing import Any, Final, Protocol, cast

from faust.tables.manager import TableManager
from faust.tables.recovery import RebalanceAgain, Recovery
from faust.types import TP

from turnstate.streams.kafka.cancelled_calls import (
    CallCancelledError,
    calls_may_be_cancelled,
)

_AGAIN_S: Final = 0.1


class Host(Protocol):
    """What the recovery asks of the application that it runs in."""

    async def restore_partitions(self, generation: int) -> None:
        """Bring the stores of all assigned partitions up to their changelogs."""
        ...


class BatchRecovery(Recovery):
    """Restore at batch speed; what Faust then looks for is there already.

    Faust reads a changelog event by event, 10 000 records a second. The loop
    runs where Faust first asks how long the changelogs are, inside its own
    recovery: so it is given up when another rebalance begins, and streams
    resume after it.
    """

    async def _wait(self, coro: Any, timeout: Any = None) -> None:
        # A restore takes as long as it takes; another rebalance ends it.
        try:
            with calls_may_be_cancelled():
                await super()._wait(coro)
        except CallCancelledError:
            self.log.warning("A step of the recovery was cancelled: begin again")
            await self.sleep(_AGAIN_S)
            self.signal_recovery_start.set()
            raise RebalanceAgain from None

    async def _build_highwaters(
        self, consumer: Any, tps: set[TP], destination: Any, title: str
    ) -> None:
        if title == "active":
            generation = self._generation_id
            await cast("Host", self.app).restore_partitions(generation)
            for tp in tps:
                applied = self.tp_to_table[tp].persisted_offset(tp)
                if applied is not None:
                    self.active_offsets[tp] = applied
        await super()._build_highwaters(consumer, tps, destination, title)


class BatchTableManager(TableManager):
    """Faust's table manager with that recovery (setting `TableManager`)."""

    @property
    def recovery(self) -> Recovery:
        """Return the recovery service, made when first asked for."""
        if self._recovery is None:
            self._recovery = BatchRecovery(
                self.app, self, beacon=self.beacon, loop=self.loop
            )
        return self._recovery
