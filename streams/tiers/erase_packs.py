"""Take erased sessions out of packs: rewrite what holds them, delete it at once."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from turnstate.schemas.errors import CorruptDataError, NotFoundError
from turnstate.storage.cold.collection import erase_packs
from turnstate.storage.cold.compaction import compact, finish
from turnstate.storage.cold.names import PACKS
from turnstate.storage.cold.pointer import Pointer
from turnstate.storage.cold.store import PackStore
from turnstate.streams.tiers.leasing import TierLease

PATIENCE_S: Final = 90.0
"""A lease that a dead job holds ends within it; a live job is let finish."""


class Owner(NamedTuple):
    """Who says where sessions lie, as this job asks it.

    Attributes:
        pointers: Gives (session key, pointer) of every cold session; told the
            fencing token, so that no earlier job changes one from then on.
        repoint: Points to other copies: (session key, old, new), and the token.
        warm: Brings cold sessions back.
    """

    pointers: Callable[[int], Iterable[tuple[bytes, Pointer]]]
    repoint: Callable[[Sequence[tuple[bytes, Pointer, Pointer]], int], Any]
    warm: Callable[[Sequence[bytes]], Any]


class Scrubbed(NamedTuple):
    """What a scrub of packs has seen.

    Attributes:
        seen: Entries looked at.
        found: Entries of those sessions.
        still: How many of these are still there.
    """

    seen: int
    found: int
    still: int


def scrub_packs(
    packs: PackStore,
    lease: TierLease,
    keys: Iterable[bytes],
    owner: Owner,
    *,
    dry_run: bool = False,
) -> Scrubbed:
    """Rewrite every pack that holds a version of some sessions, without them.

    Whatever lives in such a pack is copied and pointed to first; then the pack
    goes, past its age and all pins. Packs that no manifest knows are a dead
    job's, and go whole. One of the sessions that went cold again meanwhile is
    brought back: which of its copies is the clean one, a pack does not say.

    Args:
        packs: The cold tier.
        lease: Its lease.
        keys: The sessions, erased or rewritten already.
        owner: Has the pointers.
        dry_run: Only count.

    Raises:
        UnavailableError: the tier is away, or another job holds the lease for
            longer than `PATIENCE_S`: erase again.
        CorruptDataError: a pack cannot be copied: repair first.
    """
    gone = frozenset(keys)
    seen, holding = _holding(packs, gone)
    count = sum(holding.values())
    if dry_run or not (holding or _orphans(packs)):
        return Scrubbed(seen, count, count)
    with lease.held(PATIENCE_S) as token:
        # What was packed while this waited for the lease counts, too.
        seen, holding = _holding(packs, gone)
        alive: set[Pointer] = set()
        cold_again: list[bytes] = []
        for key, pointer in owner.pointers(token):
            if key in gone:
                cold_again.append(key)
            elif pointer.pack in holding:
                alive.add(pointer)
        if cold_again:
            owner.warm(cold_again)

        def is_live(pointer: Pointer) -> bool:
            lease.keep()
            return pointer in alive

        made = compact(packs, sorted(holding), is_live=is_live)
        if made.damaged:
            raise CorruptDataError(
                f"{len(made.damaged)} packs that hold erased sessions are damaged:"
                f" {next(iter(made.damaged.values()))}",
                hint="turnstate verify --repair, then erase again",
            )
        moved = [(made.keys[old], old, new) for old, new in made.moved.items()]
        owner.repoint(moved, token)
        finish(packs, made)
        erase_packs(packs, [*holding, *_orphans(packs)])
    _, still = _holding(packs, gone)
    return Scrubbed(seen, sum(holding.values()), sum(still.values()))


def _holding(packs: PackStore, gone: frozenset[bytes]) -> tuple[int, dict[str, int]]:
    """Return how many entries there are, and how many of `gone` each pack has."""
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


def _orphans(packs: PackStore) -> list[str]:
    known = packs.manifests.latest().packs
    return [info.name for info in packs.objects.list(PACKS) if info.name not in known]
