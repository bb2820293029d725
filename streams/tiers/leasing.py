"""The lease of the cold tier, as a job holds it while it writes there."""

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

from turnstate.schemas.errors import FencedError, UnavailableError
from turnstate.storage.cold.lease import Lease, Leases
from turnstate.storage.cold.store import PackStore

RENEW_S: Final = 20.0
"""How often it is renewed while packs are written."""

_PAUSE_S: Final = 0.5


class TierLease:
    """Hold the one lease of a cold tier, and fence whoever held it before.

    Args:
        leases: The lease.
        packs: What is written under it.
        holder: Who; unique to this run.
        now_ms: Tells the time.
    """

    def __init__(
        self,
        leases: Leases,
        packs: PackStore,
        holder: str,
        now_ms: Callable[[], int],
    ) -> None:
        self._leases = leases
        self._packs = packs
        self._holder = holder
        self._now_ms = now_ms
        self._lease: Lease | None = None
        self._renewed = 0.0

    @contextmanager
    def held(self, patience_s: float = 0.0) -> Generator[int]:
        """Hold it for as long as a block lasts; give the fencing token.

        Args:
            patience_s: How long to wait for whoever holds it now.

        Raises:
            UnavailableError: another job holds it still (code `leased`).
        """
        end = time.monotonic() + patience_s
        while True:
            try:
                self._lease = self._leases.take(self._holder, self._now_ms())
                break
            except UnavailableError as error:
                if error.code != "leased" or time.monotonic() >= end:
                    raise
            time.sleep(_PAUSE_S)
        self._renewed = time.monotonic()
        try:
            self._packs.fence(self._lease.token)
            yield self._lease.token
        finally:
            self._leases.release(self._lease, self._now_ms())
            self._lease = None

    @property
    def token(self) -> int:
        """Return the fencing token of the lease that is held.

        Raises:
            FencedError: none is.
        """
        if self._lease is None:
            raise FencedError("the lease of the cold tier is not held")
        return self._lease.token

    def keep(self) -> None:
        """Hold on; called often, asks the store rarely.

        Raises:
            FencedError: another job has taken it.
        """
        if self._lease and time.monotonic() - self._renewed > RENEW_S:
            self._lease = self._leases.renew(self._lease, self._now_ms())
            self._renewed = time.monotonic()
