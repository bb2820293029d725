"""Take erased sessions out of the packs of an embedded store."""

import os
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from turnstate.storage.cold.lease import Leases
from turnstate.streams.embedded.tiering import pointers, repoint, warm
from turnstate.streams.tiers import erase_packs
from turnstate.streams.tiers.erase_packs import Owner, Scrubbed
from turnstate.streams.tiers.leasing import TierLease

if TYPE_CHECKING:
    from turnstate.streams.embedded.store import EmbeddedStore


def scrub_packs(
    store: "EmbeddedStore", keys: Iterable[bytes], *, dry_run: bool = False
) -> Scrubbed:
    """Rewrite every pack that holds a version of some sessions, without them.

    Args:
        store: The store.
        keys: The sessions, erased or rewritten already.
        dry_run: Only count.

    Raises:
        UnavailableError: the tier is away, or another job holds the lease for
            long: erase again.
        CorruptDataError: a pack cannot be copied: repair first.
    """
    if not store.warm.knows_cold:
        return Scrubbed(0, 0, 0)
    packs, now_ms = store.tiering.packs, store.clock.now_ms
    leases = Leases(packs.objects, os.urandom)
    return erase_packs.scrub_packs(
        packs,
        TierLease(leases, packs, f"erase:{os.getpid()}", now_ms),
        keys,
        Owner(partial(pointers, store), partial(repoint, store), partial(warm, store)),
        dry_run=dry_run,
    )
