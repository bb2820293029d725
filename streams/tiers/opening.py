"""Open the cold tier that the settings name: a folder, or a bucket."""

import os
from collections.abc import Callable
from typing import Final

from turnstate.agents.ports import Clock
from turnstate.agents.tiering.policy import PolicyTable
from turnstate.storage.cold.lease import Leases
from turnstate.storage.cold.store import PackStore
from turnstate.streams.documents import Document
from turnstate.streams.places import access_of, full_place, open_place
from turnstate.streams.settings import Settings
from turnstate.streams.tiers.job import Store, TierJob
from turnstate.streams.tiers.leasing import TierLease

COLD_FOLDER: Final = "cold"
"""In the data folder, where the settings name no other place."""


def cold_place(settings: Settings) -> str:
    """Return where cold sessions go: a folder, or `s3://BUCKET/PREFIX`."""
    return full_place(settings.cold or str(settings.data / COLD_FOLDER))


def open_packs(settings: Settings, clock: Clock) -> PackStore:
    """Return the packs of the cold tier that the settings name.

    Raises:
        InvalidInputError: the name of the place makes no sense.
        UnavailableError: the folder cannot be made, or boto3 is not installed.
    """
    return PackStore(
        open_place(cold_place(settings), access_of(os.environ)),
        clock=clock.now_ms,
        chance=os.urandom,
        pack_bytes=settings.cold_pack_bytes,
    )


def policy_of(settings: Settings) -> PolicyTable:
    """Return the table that the settings make."""
    return PolicyTable(
        active_s=settings.active_s,
        cooling_s=settings.cooling_s,
        ttl_s=settings.ttl_s or None,
    )


class OpenedTiers:
    """A store and its cold tier, as a job has them.

    Args:
        settings: Where the cold tier is, and the policy.
        store: Answers for the store, whoever owns it.
        clock: Tells the time.
        progress: Told how many sessions are done.
        packs: The cold tier, where the settings of a store do not name it.

    Raises:
        InvalidInputError: the name of the place makes no sense.
        UnavailableError: the folder cannot be made, or boto3 is not installed.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        clock: Clock,
        *,
        progress: Callable[[int], None] | None = None,
        packs: PackStore | None = None,
    ) -> None:
        self.now_ms = clock.now_ms
        self.store = store
        self.packs = packs or open_packs(settings, clock)
        self.leases = Leases(self.packs.objects, os.urandom)
        holder = f"{os.uname().nodename}:{os.getpid()}"
        self.lease = TierLease(self.leases, self.packs, holder, clock.now_ms)
        self.min_age_ms = 1000 * settings.cold_min_age_s
        self.job = TierJob(
            store,
            self.packs,
            self.lease,
            table=policy_of(settings),
            now_ms=clock.now_ms,
            progress=progress,
        )

    def on_packs(self, job: Callable[..., Document], *, dry_run: bool) -> Document:
        """Run a job on packs (`streams/tiers/packs.py`); return what it did."""
        return job(
            self.store,
            self.packs,
            self.lease,
            min_age_ms=self.min_age_ms,
            dry_run=dry_run,
        )
