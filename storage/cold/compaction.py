"""Rewrite packs of which less than half is alive, so that their bytes can go.

Three steps, each repeatable: `compact` copies what is alive into new packs and
takes them into the manifest; the owner of the pointers flips them; `finish`
takes the old packs out. Garbage collection deletes them later.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from turnstate.schemas.errors import CorruptDataError, NotFoundError
from turnstate.storage.cold.manifest import Manifest, without_packs
from turnstate.storage.cold.pack import Entry
from turnstate.storage.cold.packing import READ_BYTES, Packing
from turnstate.storage.cold.pointer import Pointer
from turnstate.storage.cold.store import PackStore, pointer_to, pointers

LIVE_RATIO: Final = 0.5
"""A pack of which less is alive is rewritten: at most as much is copied as is
won."""

MIN_AGE_MS: Final = 3_600_000
"""Younger packs stay: pointers to them may be on their way."""

_GAP_BYTES: Final = 256 << 10
"""So much that is dead is read on the way rather than asked around."""


class Compacted(NamedTuple):
    """What a compaction made.

    Attributes:
        moved: Old pointer → new pointer, to be flipped.
        keys: The session of each old pointer.
        old: Packs that may leave the manifest once that is done.
        new: Packs that came in.
        copied_bytes: Of images that were copied.
        dropped_bytes: Of images that were not.
        damaged: Packs that stay because something in them cannot be read, and
            why.
    """

    moved: Mapping[Pointer, Pointer]
    keys: Mapping[Pointer, bytes]
    old: Sequence[str]
    new: Sequence[str]
    copied_bytes: int
    dropped_bytes: int
    damaged: Mapping[str, str]


def live_bytes(pointed: Iterator[Pointer]) -> dict[str, int]:
    """Return how many bytes of each pack are pointed to.

    Example:
        >>> live_bytes(iter([Pointer("p", 8, 5, 1, 0, 1, 1)]))
        {'p': 5}
    """
    found: dict[str, int] = {}
    for pointer in pointed:
        found[pointer.pack] = found.get(pointer.pack, 0) + pointer.length
    return found


def plan(
    manifest: Manifest,
    live: Mapping[str, int],
    *,
    now_ms: int,
    min_age_ms: int = MIN_AGE_MS,
    held: AbstractSet[str] = frozenset(),
    live_ratio: float = LIVE_RATIO,
    small_bytes: int = 0,
) -> list[str]:
    """Return which packs to rewrite, those that win most first.

    Args:
        manifest: What there is.
        live: How many bytes of each pack are pointed to.
        now_ms: The time.
        min_age_ms: Younger packs stay, whatever they hold.
        held: Packs that moves under way may point to; they stay.
        live_ratio: What is alive of a pack that is not worth rewriting.
        small_bytes: Packs that are smaller are put together, where there are
            several; 0 = never.
    """
    old = {
        name: info
        for name, info in manifest.packs.items()
        if name not in held and info.created_ms <= now_ms - min_age_ms
    }
    dead = {
        name: info.image_bytes - live.get(name, 0)
        for name, info in old.items()
        if live.get(name, 0) < info.image_bytes * live_ratio
    }
    chosen = sorted(dead, key=lambda name: (-dead[name], name))
    # Packs that only say what left are rewritten with others, or together.
    small = [
        name
        for name, info in sorted(old.items())
        if name not in dead and (not info.image_bytes or info.bytes < small_bytes)
    ]
    return chosen + small if chosen or len(small) > 1 else []


def compact(
    store: PackStore, names: Sequence[str], *, is_live: Callable[[Pointer], bool]
) -> Compacted:
    """Copy what is alive in some packs into new ones, and commit those.

    A pack's images stream through: in memory are the pack that is filled, one
    range that is read, and the indexes. What hides older images of a session
    is kept as long as another pack has such. A damaged pack stays as it is.

    Args:
        store: Where they are.
        names: Packs; those that are in the manifest no longer are passed over.
        is_live: Says whether a pointer is one that somebody follows.

    Raises:
        FencedError: another job has taken over.
        UnavailableError: the store is away; what was copied is garbage.
    """
    manifest = store.manifests.latest()
    packing = store.packing()
    olds: list[Pointer] = []
    keys: list[bytes] = []
    damaged: dict[str, str] = {}
    copied = total = 0
    for name in names:
        info = manifest.packs.get(name)
        if info is None:
            continue
        kept = _kept(store, manifest, name, is_live)
        while True:
            try:
                found = next(kept, None)
            except (CorruptDataError, NotFoundError) as error:
                damaged[name] = str(error)
                break
            if found is None:
                total += info.image_bytes
                break
            entry, data = found
            _add(packing, entry, data, entry.order or info.order)
            olds.append(pointer_to(name, entry))
            keys.append(entry.key)
            copied += entry.length
    packed = packing.finish()
    if packed:
        store.take_in(packed)
    pairs = [
        (old, new, key)
        for old, new, key in zip(olds, pointers(packed), keys, strict=True)
        if old.length
    ]
    return Compacted(
        {old: new for old, new, _ in pairs},
        {old: key for old, _, key in pairs},
        [name for name in names if name in manifest.packs and name not in damaged],
        [pack.name for pack in packed],
        copied,
        max(total - copied, 0),
        damaged,
    )


def finish(store: PackStore, compacted: Compacted) -> None:
    """Take the old packs out of the manifest; every pointer has been flipped.

    Raises:
        FencedError: another job has taken over.
        UnavailableError: the store is away; repeat it.
    """
    store.commit(without_packs(compacted.old))
    store.forget(compacted.old)


def live_by_key(store: PackStore) -> Callable[[Pointer], bool]:
    """Return the `is_live` of a tier without pointers: what `find` would say."""
    alive = {pointer_to(name, entry) for name, entry in store.newest().values()}
    return alive.__contains__


def _add(packing: Packing, entry: Entry, data: bytes, order: int) -> None:
    packing.add(
        entry.key, entry.incarnation, entry.version, data, entry.front_bytes, order
    )


def _kept(
    store: PackStore,
    manifest: Manifest,
    name: str,
    is_live: Callable[[Pointer], bool],
) -> Iterator[tuple[Entry, bytes]]:
    """Yield what stays of a pack, checked, reading neighbours together."""
    run: list[Entry] = []
    for entry in store.entries(name):
        if not entry.length:
            if _hides_something(store, manifest, name, entry):
                yield entry, b""
        elif is_live(pointer_to(name, entry)):
            if run and not _belongs(run, entry):
                yield from _read(store, name, run)
                run = []
            run.append(entry)
    yield from _read(store, name, run)


def _belongs(run: Sequence[Entry], entry: Entry) -> bool:
    first, last = run[0], run[-1]
    return (
        entry.offset - (last.offset + last.length) <= _GAP_BYTES
        and entry.offset + entry.length - first.offset <= READ_BYTES
    )


def _read(
    store: PackStore, name: str, run: Sequence[Entry]
) -> Iterator[tuple[Entry, bytes]]:
    if not run:
        return
    begin, end = run[0].offset, run[-1].offset + run[-1].length
    data = store.objects.read(name, begin, end - begin)
    for entry in run:
        yield entry, entry.taken_from(data, begin)


def _hides_something(
    store: PackStore, manifest: Manifest, name: str, away: Entry
) -> bool:
    """Say whether another pack has something older of a session that left."""
    order = away.order or manifest.packs[name].order
    for other, info in manifest.packs.items():
        if other != name:
            entry = store.entry(other, away.key)
            if entry is not None and (entry.order or info.order) < order:
                return True
    return False
