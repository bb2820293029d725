"""Delete what nobody needs: packs, manifests and leases, never before it is safe.

An object goes only if it is old enough, in no manifest, pinned by nobody and
pointed to by nobody. Before the first byte goes, the boundary is committed: a
writer so slow that its pack is older cannot commit that pack any more.
"""

from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import Final, NamedTuple

from msgspec.structs import replace

from turnstate.schemas.errors import CorruptDataError
from turnstate.storage.cold.lease import LEASES
from turnstate.storage.cold.manifest import Manifest, Pin
from turnstate.storage.cold.names import PACKS, pack_time_ms
from turnstate.storage.cold.numbered import NumberedObjects
from turnstate.storage.cold.objects import ObjectInfo
from turnstate.storage.cold.store import PackStore

MIN_AGE_MS: Final = 3_600_000
"""Younger objects stay: their writer, or a reader, may be on its way."""

NEWEST_KEPT: Final = 16
"""Manifests, and states of the lease, that stay whatever their age."""

_BATCH: Final = 1_000
"""Most names in one request of S3."""


class Collected(NamedTuple):
    """What was deleted, or would be.

    Attributes:
        packs: Names of packs.
        pack_bytes: Of those.
        manifests: How many manifests.
        leases: How many states of the lease.
        kept: Packs in no manifest that stay all the same, by reason: young,
            pinned, referenced, foreign.
        boundary_ms: Packs named before this time come into no manifest.
        is_dry_run: Whether nothing was done.
    """

    packs: list[str]
    pack_bytes: int
    manifests: int
    leases: int
    kept: dict[str, int]
    boundary_ms: int
    is_dry_run: bool


def collect(
    store: PackStore,
    *,
    referenced: Callable[[], AbstractSet[str]],
    min_age_ms: int = MIN_AGE_MS,
    newest_kept: int = NEWEST_KEPT,
    dry_run: bool = False,
) -> Collected:
    """Delete garbage, in this order: boundary, then packs, manifests, leases.

    Repeating it after a crash goes on. It runs under the lease.

    Args:
        store: Where everything is.
        referenced: Names the packs that pointers, and moves that are journalled
            and not done, refer to; asked after the boundary is committed.
        min_age_ms: Younger objects stay, by their own time and the store's.
        newest_kept: Manifests and leases that stay whatever their age.
        dry_run: Only say what would be done.

    Raises:
        FencedError: another job has taken over.
        UnavailableError: the store is away; repeat it.
    """
    now_ms = store.clock()
    oldest_ms = now_ms - min_age_ms
    # Listed before the manifest is read: what comes in later is not in the list.
    listed = list(store.objects.list(PACKS))
    change = _moved_boundary(now_ms, oldest_ms)
    manifest = change(store.manifests.latest()) if dry_run else store.commit(change)
    pointed = referenced()
    kept = {"young": 0, "pinned": 0, "referenced": 0, "foreign": 0}
    garbage: list[ObjectInfo] = []
    pinned = manifest.pinned(now_ms)
    for info in listed:
        if info.name in manifest.packs:
            continue
        why = _why_kept(info, manifest, oldest_ms, pinned, pointed)
        if why is None:
            garbage.append(info)
        else:
            kept[why] += 1
    names = [info.name for info in garbage]
    manifests = _outdated(store.manifests.numbered, oldest_ms, newest_kept)
    leases = _outdated(NumberedObjects(store.objects, LEASES), oldest_ms, newest_kept)
    if not dry_run:
        _delete(store, [*names, *manifests, *leases])
    return Collected(
        names,
        sum(info.size for info in garbage),
        len(manifests),
        len(leases),
        kept,
        manifest.boundary_ms,
        dry_run,
    )


def erase_packs(store: PackStore, names: Iterable[str]) -> None:
    """Delete packs at once, past their age and all pins, to erase what they hold.

    Whoever calls has copied what lives on (`compact`) and flipped the pointers.

    Raises:
        FencedError: another job has taken over.
        UnavailableError: the store is away; repeat it.
    """
    gone = frozenset(names)

    def change(manifest: Manifest) -> Manifest:
        return replace(
            manifest,
            packs={n: info for n, info in manifest.packs.items() if n not in gone},
            pins={
                name: Pin(pin.until_ms, [p for p in pin.packs if p not in gone])
                for name, pin in manifest.pins.items()
            },
        )

    store.commit(change)
    _delete(store, sorted(gone))


def _moved_boundary(now_ms: int, boundary_ms: int) -> Callable[[Manifest], Manifest]:
    def change(manifest: Manifest) -> Manifest:
        pins = {
            name: pin
            for name, pin in manifest.pins.items()
            if pin.until_ms is None or pin.until_ms > now_ms
        }
        boundary = max(manifest.boundary_ms, boundary_ms)
        return replace(manifest, boundary_ms=boundary, pins=pins)

    return change


def _why_kept(
    info: ObjectInfo,
    manifest: Manifest,
    oldest_ms: int,
    pinned: AbstractSet[str],
    pointed: AbstractSet[str],
) -> str | None:
    try:
        named_ms = pack_time_ms(info.name)
    except CorruptDataError:
        return "foreign"
    # Two clocks: the one that named it, and that of the store.
    if named_ms >= min(manifest.boundary_ms, oldest_ms) or info.modified_ms > oldest_ms:
        return "young"
    if info.name in pinned:
        return "pinned"
    return "referenced" if info.name in pointed else None


def _outdated(numbered: NumberedObjects, oldest_ms: int, newest_kept: int) -> list[str]:
    """Return names that are old and not among the newest."""
    infos = [info for _, info in numbered.infos()]
    return [
        info.name
        for info in infos[: max(len(infos) - newest_kept, 0)]
        if info.modified_ms <= oldest_ms
    ]


def _delete(store: PackStore, names: list[str]) -> None:
    store.forget(names)
    for batch in _batches(names):
        store.objects.delete(batch)


def _batches(names: list[str]) -> Iterator[list[str]]:
    remaining = iter(names)
    while batch := list(islice(remaining, _BATCH)):
        yield batch
