"""Jobs on the packs of the cold tier: rewrite what is mostly dead, delete garbage."""

from collections.abc import Callable
from typing import Final

from turnstate.storage.cold.collection import Collected, collect
from turnstate.storage.cold.compaction import compact, finish, live_bytes, plan
from turnstate.storage.cold.manifest import without_packs
from turnstate.storage.cold.pointer import Pointer
from turnstate.storage.cold.store import PackStore
from turnstate.streams.documents import Document
from turnstate.streams.tiers.job import Store
from turnstate.streams.tiers.leasing import TierLease

SMALL_PART: Final = 4
"""Packs below a quarter of the usual size are put together."""


def compact_packs(
    store: Store,
    packs: PackStore,
    lease: TierLease,
    *,
    min_age_ms: int,
    dry_run: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Document:
    """Rewrite packs of which less than half is alive; small ones go together.

    Args:
        store: Answers for the store, which has the pointers.
        packs: The cold tier.
        lease: Its lease.
        min_age_ms: Younger packs stay.
        dry_run: Only say what would be rewritten.
        progress: Told how many packs are done.

    Raises:
        UnavailableError: another job is at work (code `leased`), or the tier is
            away; what was copied is garbage then.
        FencedError: another job has taken over.
    """
    if dry_run:
        return _Compaction(store, packs, min_age_ms, None).report()
    # Pointers are read under the lease: nobody else moves any from here on.
    with lease.held() as token:
        compaction = _Compaction(store, packs, min_age_ms, token)
        document = compaction.run(lease.keep)
    if progress is not None:
        progress(len(compaction.chosen))
    return document


class _Compaction:
    """What is to be rewritten, as pointers and manifest stand.

    Args:
        store: Answers for the store.
        packs: The cold tier.
        min_age_ms: Younger packs stay.
        token: The fencing token; None only looks.
    """

    def __init__(
        self, store: Store, packs: PackStore, min_age_ms: int, token: int | None
    ) -> None:
        self._store = store
        self._packs = packs
        self._token = token
        self._pointed: list[tuple[bytes, Pointer]] = list(
            store.call("tier_pointers", token=token)
        )
        self._live = live_bytes(pointer for _, pointer in self._pointed)
        self._manifest = packs.manifests.latest()
        self.chosen = plan(
            self._manifest,
            self._live,
            now_ms=packs.clock(),
            min_age_ms=min_age_ms,
            small_bytes=packs.pack_bytes // SMALL_PART,
        )

    def report(self) -> Document:
        """Return what would be done."""
        chosen, live, known = self.chosen, self._live, self._manifest.packs
        return {
            "packs": len(known),
            "rewritten": len(chosen),
            "bytes_before": sum(known[name].bytes for name in chosen),
            "bytes_live": sum(live.get(name, 0) for name in chosen),
            "new_packs": 0,
            "moved": 0,
            "damaged": {},
            "dry_run": self._token is None,
        }

    def run(self, keep: Callable[[], None]) -> Document:
        """Copy what is alive, have the owner point there, let the packs go.

        Nothing of a pack that is all dead is read: it may be damaged, or gone.
        """
        report, packs = self.report(), self._packs
        dead = [name for name in self.chosen if not self._live.get(name)]
        if dead:
            packs.commit(without_packs(dead))
            packs.forget(dead)
        rest = [name for name in self.chosen if self._live.get(name)]
        if not rest:
            return report
        wanted = frozenset(rest)
        alive = {pointer for _, pointer in self._pointed if pointer.pack in wanted}

        def is_live(pointer: Pointer) -> bool:
            keep()
            return pointer in alive

        made = compact(packs, rest, is_live=is_live)
        moved = [(made.keys[old], old, new) for old, new in made.moved.items()]
        flipped: list[bytes] = self._store.call(
            "tier_repoint", moved=moved, token=self._token
        )
        finish(packs, made)
        return report | {
            "new_packs": len(made.new),
            "moved": len(flipped),
            "damaged": dict(made.damaged),
        }


def collect_garbage(
    store: Store,
    packs: PackStore,
    lease: TierLease,
    *,
    min_age_ms: int,
    dry_run: bool = False,
) -> Document:
    """Delete packs that nobody needs, and old manifests and leases.

    Raises:
        UnavailableError: another job is at work (code `leased`), or the tier is
            away: run it again.
        FencedError: another job has taken over.
    """

    def run(token: int | None) -> Collected:
        def referenced() -> frozenset[str]:
            found = store.call("tier_pointers", token=token)
            return frozenset(pointer.pack for _, pointer in found)

        return collect(
            packs, referenced=referenced, min_age_ms=min_age_ms, dry_run=dry_run
        )

    if dry_run:
        made = run(None)
    else:
        with lease.held() as token:
            made = run(token)
    return {
        "packs": len(made.packs),
        "bytes": made.pack_bytes,
        "manifests": made.manifests,
        "leases": made.leases,
        "kept": made.kept,
        "dry_run": made.is_dry_run,
    }
