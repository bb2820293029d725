"""Hold the place of backups for one backup at a time."""

import secrets
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

from turnstate.agents.ports import Clock
from turnstate.schemas.errors import FencedError, UnavailableError
from turnstate.storage.cold.lease import LEASES, TTL_MS, Lease, Leases
from turnstate.storage.cold.objects import ObjectStore

RENEW_MS: Final = TTL_MS // 4
"""A lease is renewed when it is so old."""


class PlaceLease:
    """The lease of a place while a backup works on it.

    Args:
        objects: The place.
        holder: The store. It has one owner, which makes one backup at a time:
            so who comes as the same store again is not kept out by a backup
            that was killed.
        clock: For the lease's times.

    Raises:
        UnavailableError: another backup works on it (code `leased`).
    """

    def __init__(self, objects: ObjectStore, holder: str, clock: Clock) -> None:
        self._objects = objects
        self._clock = clock
        self._leases = Leases(objects, secrets.token_bytes)
        try:
            self._lease: Lease = self._leases.take(holder, clock.now_ms())
        except UnavailableError as error:
            if error.code != "leased":
                raise
            raise UnavailableError(
                "the backup of another store works on this place",
                field="where",
                hint="name another place; if that process is dead, a minute is enough",
                code="leased",
            ) from error

    def keep(self) -> None:
        """Hold on, where it is time to.

        Raises:
            FencedError: another backup has taken the place.
        """
        now_ms = self._clock.now_ms()
        if now_ms - self._lease.taken_ms >= RENEW_MS:
            self._lease = self._leases.renew(self._lease, now_ms)

    def release(self) -> None:
        """Let go, and remove the states that the lease went through."""
        self._leases.release(self._lease, self._clock.now_ms())
        names = [info.name for info in self._objects.list(LEASES)]
        self._objects.delete(names[:-1])


@contextmanager
def held_place(
    objects: ObjectStore, holder: str, clock: Clock
) -> Generator[Callable[[], None]]:
    """Hold a place; give what has to be called now and then to keep it.

    Args:
        objects: The place.
        holder: The store that is backed up.
        clock: For the lease's times.

    Raises:
        UnavailableError: another backup works on it (code `leased`).
        FencedError: it was taken meanwhile.
    """
    lease = PlaceLease(objects, holder, clock)
    try:
        yield lease.keep
    except (FencedError, UnavailableError):
        # Whoever has it now, or nobody can be asked: it ends by itself.
        raise
    except BaseException:
        lease.release()
        raise
    lease.release()
