"""One partition's cold sessions: what a fold is told, and how they come back."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import structlog

from turnstate.schemas.errors import TurnstateError, UnavailableError
from turnstate.schemas.ids import SessionName
from turnstate.storage.session_image import SessionImage
from turnstate.storage.warm.changelog import ChangelogBatch
from turnstate.storage.warm.cold_rows import ColdHead, woken_image
from turnstate.storage.warm.rocksdb import WarmStore

_log = structlog.get_logger(__name__)

BROUGHT_AT_ONCE: Final = 32
"""Sessions fetched, and written, in one go."""

_BACKOFF_S: Final = (0.1, 0.2, 0.5, 1.0, 2.0)
_LOOK_S: Final = 0.05
_DAMAGED_TRIES: Final = 3

Write = Callable[[ChangelogBatch], Awaitable[bool]]
"""Makes a batch durable; False = the partition may be another worker's."""


class ColdNeededError(Exception):
    """Sessions are cold, and have to be brought back before turns are folded.

    Attributes:
        keys: They.
    """

    def __init__(self, keys: list[bytes]) -> None:
        super().__init__(f"{len(keys)} sessions are cold")
        self.keys = keys


class Fetched(NamedTuple):
    """A cold session, whole.

    Attributes:
        key: The session key.
        cold: Its pointer; another one by now means that it moved on.
        image: All its rows.
    """

    key: bytes
    cold: ColdHead
    image: SessionImage


class ColdPartition:
    """Answer the fold for cold sessions, without ever waiting for the cold tier.

    The fold runs on the event loop, where heartbeats live. So it is told at
    once which sessions it lacks; they are fetched in threads, brought back to
    the warm tier, and the same turns are folded again.

    Args:
        number: Of the partition.
        store: Its store, which knows what is cold.
        batch: Makes an empty batch, with its changelog.
        now_ms: Tells epoch milliseconds.
    """

    def __init__(
        self,
        number: int,
        store: WarmStore,
        batch: Callable[[], ChangelogBatch],
        now_ms: Callable[[], int],
    ) -> None:
        self.number = number
        self._store = store
        self._batch = batch
        self._now_ms = now_ms
        self._damaged: dict[bytes, tuple[ColdHead, TurnstateError]] = {}

    def images(
        self, keys: Sequence[bytes]
    ) -> tuple[dict[bytes, SessionImage], dict[bytes, TurnstateError]]:
        """Return what is wrong with cold sessions that cannot be read.

        Raises:
            ColdNeededError: others are cold.
        """
        if not self._store.knows_cold:
            return {}, {}
        failed: dict[bytes, TurnstateError] = {}
        needed: list[bytes] = []
        for key, found in zip(keys, self._store.located(keys), strict=True):
            if isinstance(found, ColdHead):
                known = self._damaged.get(key)
                if known is not None and known[0] == found:
                    failed[key] = known[1]
                else:
                    needed.append(key)
        if needed:
            raise ColdNeededError(needed)
        # One that is mended meanwhile is looked at again.
        for key in failed:
            del self._damaged[key]
        return {}, failed

    def fetch(
        self, keys: Sequence[bytes]
    ) -> tuple[list[Fetched], dict[bytes, TurnstateError]]:
        """Fetch cold sessions, in threads of the cold tier; blocks.

        Returns:
            Those that came, and what is wrong with the others.

        Raises:
            UnavailableError: no cold tier is configured here.
        """
        found = self._store.located(keys)
        cold = {
            key: each
            for key, each in zip(keys, found, strict=True)
            if isinstance(each, ColdHead)
        }
        images, failed = self._store.images(list(cold)) if cold else ({}, {})
        return [Fetched(key, cold[key], image) for key, image in images.items()], failed

    def stage(self, fetched: Sequence[Fetched]) -> tuple[ChangelogBatch, list[bytes]]:
        """Return a batch that brings sessions back, and which those are.

        One whose pointer is another by now stays where it is.
        """
        batch, now_ms = self._batch(), self._now_ms()
        came: list[bytes] = []
        found = self._store.located([each.key for each in fetched])
        for each, stands in zip(fetched, found, strict=True):
            if stands == each.cold:
                batch.stage_image(woken_image(each.image, now_ms))
                came.append(each.key)
        return batch, came

    async def bring_back(
        self,
        keys: Sequence[bytes],
        write: Write,
        goes_on: Callable[[], bool],
        failed_once: Callable[[], None] = lambda: None,
    ) -> bool:
        """Bring cold sessions back, however long the cold tier is away.

        Args:
            keys: They.
            write: Makes a batch durable.
            goes_on: Asked while waiting; where it says no, the round is given up.
            failed_once: Told of each try that failed.

        Returns:
            Whether they are all warm, or known for damaged.
        """
        waits = _Waits(self.number)
        for part in _parts(keys):
            left = list(part)
            while left:
                if not goes_on():
                    return False
                fetched, failed = await self._fetched(left)
                if fetched:
                    batch, _ = self.stage(fetched)
                    if not await write(batch):
                        return False
                left = [key for key in left if key in failed]
                left = self._still_wanted(left, failed, waits)
                if left:
                    failed_once()
                    if not await waits.paused(failed[left[0]], goes_on):
                        return False
        waits.over()
        return True

    async def _fetched(
        self, keys: Sequence[bytes]
    ) -> tuple[list[Fetched], dict[bytes, TurnstateError]]:
        try:
            return await asyncio.to_thread(self.fetch, keys)
        except UnavailableError as error:
            return [], dict.fromkeys(keys, error)

    def _still_wanted(
        self,
        keys: Sequence[bytes],
        failed: Mapping[bytes, TurnstateError],
        waits: "_Waits",
    ) -> list[bytes]:
        """Return the sessions to ask for again; what is damaged is told once."""
        rest: list[bytes] = []
        for key in keys:
            error = failed[key]
            if isinstance(error, UnavailableError) or waits.tries < _DAMAGED_TRIES:
                rest.append(key)
                continue
            (cold,) = self._store.located([key])
            if isinstance(cold, ColdHead):
                self._damaged[key] = (cold, error)
                name = SessionName.from_key(key)
                _log.error(
                    "cold.damaged",
                    tenant=name.tenant,
                    session=name.session,
                    why=str(error),
                    hint="its turns go to the dead letters: put the pack back,"
                    " then redrive them",
                )
        return rest


class _Waits:
    """Wait longer from try to try, and tell that a round waits, and for how long."""

    def __init__(self, partition: int) -> None:
        self.tries = 0
        self._partition = partition
        self._since: float | None = None

    async def paused(self, why: object, goes_on: Callable[[], bool]) -> bool:
        if self._since is None:
            self._since = time.monotonic()
            _log.warning(
                "cold.away",
                partition=self._partition,
                why=str(why),
                hint="turns of a cold session wait for it, and all behind them",
            )
        end = time.monotonic() + _BACKOFF_S[min(self.tries, len(_BACKOFF_S) - 1)]
        self.tries += 1
        while time.monotonic() < end:
            if not goes_on():
                return False
            await asyncio.sleep(_LOOK_S)
        return True

    def over(self) -> None:
        if self._since is not None:
            seconds = round(time.monotonic() - self._since, 1)
            _log.warning("cold.back", partition=self._partition, seconds=seconds)


def _parts(keys: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    for begin in range(0, len(keys), BROUGHT_AT_ONCE):
        yield keys[begin : begin + BROUGHT_AT_ONCE]


