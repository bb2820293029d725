"""Take erased sessions out of packs: rewrite what holds them, delete it at once."""

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from turnstate.schemas.errors import CorruptDataError, NotFoundError
from turnstate.storage.cold.collection import erase_packs
from turnstate.storage.cold.compaction import compact, finish
from turnstate.storage.cold.lease import Leases
from turnstate.storage.cold.names import PACKS
from turnstate.storage.cold.pointer import Pointer
from turnstate.streams.embedded.tiering import pointers, repoint
from turnstate.streams.tiers.leasing import TierLease

if TYPE_CHECKING:
    from turnstate.streams.embedded.store import EmbeddedStore

PATIENCE_S: Final = 90.0
"""A lease that a dead job holds ends within it; a live job is let finish."""


def scrub_packs(
    store: "EmbeddedStore", keys: Iterable[bytes], *, dry_run: bool = False
) -> tuple[int, int, int]:
    """Rewrite every pack that holds a version of some sessions, without them.

    Whatever lives in such a pack is copied and pointed to first; then the pack
    goes, past its age and all pins. Packs that no manifest knows are a dead
    job's, and go whole.

    Args:
        store: The store.
        keys: The sessions; none of them is cold any more, or their life ended.
        dry_run: Only count.

    Returns:
        Entries looked at, entries of those sessions, and how many of these are
        still there.

    Raises:
        UnavailableError: the tier is away, or another job holds the lease for
            longer than `PATIENCE_S`: erase again.
        CorruptDataError: a pack cannot be copied: repair first.
    """
    if not store.warm.knows_cold:
        return 0, 0, 0
    packs = store.tiering.packs
    gone = frozenset(keys)
    seen, holding = _holding(store, gone)
    if dry_run or not (holding or _orphans(store)):
        return seen, sum(holding.values()), sum(holding.values())
    now_ms = store.clock.now_ms
    leases = Leases(packs.objects, os.urandom)
    lease = TierLease(leases, packs, f"erase:{os.getpid()}", now_ms)
    with lease.held(PATIENCE_S) as token:
        # What was packed while this waited for the lease counts, too.
        seen, holding = _holding(store, gone)
        alive: set[Pointer] = set()
        for key, pointer in pointers(store):
            if pointer.pack in holding and key not in gone:
                alive.add(pointer)
        made = compact(packs, sorted(holding), is_live=alive.__contains__)
        if made.damaged:
            raise CorruptDataError(
                f"{len(made.damaged)} packs that hold erased sessions are damaged:"
                f" {next(iter(made.damaged.values()))}",
                hint="turnstate verify --repair, then erase again",
            )
        moved = [(made.keys[old], old, new) for old, new in made.moved.items()]
        repoint(store, moved, token)
        finish(packs, made)
        erase_packs(packs, [*holding, *_orphans(store)])
    _, still = _holding(store, gone)
    return seen, sum(holding.values()), sum(still.values())


def _holding(
    store: "EmbeddedStore", gone: frozenset[bytes]
) -> tuple[int, dict[str, int]]:
    """Return how many entries there are, and how many of `gone` each pack has."""
    packs = store.tiering.packs
    seen = 0
    holding: dict[str, int] = {}
    for name, info in packs.manifests.latest().packs.items():
        seen += info.entries
        try:
            count = sum(
                entry is not None and entry.length > 0
                for entry in (packs.entry(name, key) for key in gone)
            )
        except NotFoundError:
            continue  # compacted away meanwhile
        if count:
            holding[name] = count
    return seen, holding


def _orphans(store: "EmbeddedStore") -> list[str]:
    packs = store.tiering.packs
    known = packs.manifests.latest().packs
    return [
        info.name for info in packs.objects.list(PACKS) if info.name not in known
    ]
