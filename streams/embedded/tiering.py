"""What the owner of a store does for jobs that move sessions between tiers."""

import shutil
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from turnstate.agents.tiering.facts import SessionFacts, facts_of_row
from turnstate.storage.cold.pointer import Pointer
from turnstate.storage.moves.journal import COLD, WARM, Plan
from turnstate.storage.moves.owner import Copied
from turnstate.storage.session_image import EncodedImage, encode_image
from turnstate.storage.session_row import SessionRow
from turnstate.storage.warm.cold_rows import ColdHead
from turnstate.storage.warm.tables import FRAMES, HEADS, INDEX, SEGMENTS
from turnstate.streams.documents import Document

if TYPE_CHECKING:
    from turnstate.streams.embedded.store import EmbeddedStore

SLICE: Final = 64
"""Sessions sealed, read or flipped in one go; publishing goes on in between."""

SETTLED_PART: Final = 8
"""Where an eighth of all sessions went, what they left is compacted away at once."""

_T = TypeVar("_T")


def facts(store: "EmbeddedStore") -> Iterator[SessionFacts]:
    """Yield what the policy is told of every session; reads no cold one."""
    for key, row in store.rows():
        yield _facts(store, key, row)


def facts_of(store: "EmbeddedStore", key: bytes) -> SessionFacts | None:
    """Return what the policy is told of one session, None where it is unknown."""
    row = store.row(key)
    return None if row is None else _facts(store, key, row)


def _facts(store: "EmbeddedStore", key: bytes, row: SessionRow) -> SessionFacts:
    tiering = store.tiering
    leased_until_ms = tiering.moves.leased_until_ms(key)
    return facts_of_row(key, row, tiering.accesses(key), leased_until_ms)


def fills(store: "EmbeddedStore") -> dict[str, list[int]]:
    """Return (used, capacity) in bytes of what a tier may fill: the disk of warm.

    Hot in memory holds to its budget by itself.
    """
    usage = shutil.disk_usage(store.settings.data)
    return {WARM: [usage.used, usage.total]}


def plan_moves(store: "EmbeddedStore", plans: Sequence[Plan]) -> Document:
    """Journal moves; the sessions that go to the cold tier are sealed first."""
    for part in _slices(_made(plans, list[Plan])):
        cooling = [plan.key for plan in part if plan.target == COLD]
        if cooling:
            store.engine.call(partial(store.engine.seal, cooling)).result()
        store.engine.call(partial(store.tiering.moves.plan, part)).result()
    return {"planned": len(plans)}


def images(
    store: "EmbeddedStore", plans: Sequence[Plan]
) -> Iterator[tuple[bytes, EncodedImage | None]]:
    """Yield (id of the move, image) of sessions, None for what stays after all."""
    moves, clock = store.tiering.moves, store.clock
    for part in _slices(_made(plans, list[Plan])):
        found = store.engine.call(
            partial(moves.images, list(part), clock.now_ms())
        ).result()
        for plan, image in zip(part, found, strict=True):
            yield plan.id, None if image is None else encode_image(image)


def flip(store: "EmbeddedStore", copied: Sequence[Copied], token: int) -> list[bytes]:
    """Point to verified copies; return the ids of the moves that were made.

    Args:
        store: The store.
        copied: What was copied.
        token: The fencing token of the job; one smaller than the greatest that
            was seen here is a job that was thought dead.

    Raises:
        FencedError: another job has taken over.
    """
    store.tiering.admit(token)
    made: list[bytes] = []
    for part in _slices(_made(copied, list[Copied])):
        flipped = store.engine.call(
            partial(store.tiering.moves.flip, part, store.clock.now_ms())
        ).result()
        made += [plan.id for plan in flipped]
    _settle(store, len(made))
    return made


def _settle(store: "EmbeddedStore", gone: int) -> None:
    """Compact away what many sessions have left behind."""
    warm = store.warm
    if gone * SETTLED_PART > warm.rows_about(HEADS):
        warm.flush()
        for table in (SEGMENTS, INDEX, HEADS, FRAMES):
            warm.compact(table)


def release(store: "EmbeddedStore", plans: Sequence[Plan]) -> list[bytes]:
    """Let the hot tier forget sessions; return the ids of the moves made."""
    moves, clock = store.tiering.moves, store.clock

    def let_go(part: Sequence[Plan]) -> list[bytes]:
        return [plan.id for plan in moves.release(part, clock.now_ms())]

    return [
        made
        for part in _slices(_made(plans, list[Plan]))
        for made in store.engine.call(partial(let_go, part)).result()
    ]


def fill(store: "EmbeddedStore", plans: Sequence[Plan]) -> list[bytes]:
    """Take sessions up into the hot tier; return the ids of the moves made."""
    moves = store.tiering.moves

    def take_up(part: Sequence[Plan]) -> list[bytes]:
        return [plan.id for plan in moves.fill(part)]

    return [
        made
        for part in _slices(_made(plans, list[Plan]))
        for made in store.engine.call(partial(take_up, part)).result()
    ]


def warm(store: "EmbeddedStore", keys: Sequence[bytes]) -> list[bytes]:
    """Bring cold sessions back; return the keys that came.

    Raises:
        UnavailableError: one of them cannot be read.
    """
    came: list[bytes] = []
    for part in _slices(keys):
        located = dict(zip(part, store.warm.located(part), strict=True))
        found, failed = store.warm.images(part)
        fetched = {
            key: (cold, found[key])
            for key, cold in located.items()
            if isinstance(cold, ColdHead) and key in found
        }
        if fetched:
            now_ms = store.clock.now_ms()
            task = partial(store.tiering.moves.warm, fetched, now_ms)
            came += store.engine.call(task).result()
        for error in failed.values():
            raise error
    return came


def repoint(
    store: "EmbeddedStore", moved: Sequence[tuple[bytes, Pointer, Pointer]], token: int
) -> list[bytes]:
    """Point to the copies that a compaction made; return the keys that do now.

    Raises:
        FencedError: another job has taken over.
    """
    store.tiering.admit(token)
    made: list[bytes] = []
    for part in _slices(_made(moved, list[tuple[bytes, Pointer, Pointer]])):
        changes = {key: (old, new) for key, old, new in part}
        task = partial(store.tiering.moves.repoint, changes)
        made += store.engine.call(task).result()
    return made


def pointers(
    store: "EmbeddedStore", token: int | None = None
) -> Iterator[tuple[bytes, Pointer]]:
    """Yield where each cold session lies; whatever else is in packs is garbage.

    Args:
        store: The store.
        token: The fencing token of a job that acts on it: from here on no job
            with a smaller one changes a pointer.

    Raises:
        FencedError: another job has taken over.
    """
    if token is not None:
        store.tiering.admit(token)
    for key in store.warm.keys(b""):
        (found,) = store.warm.located([key])
        if isinstance(found, ColdHead):
            yield key, found.pointer


def unfinished(store: "EmbeddedStore", before_ms: int) -> list[Plan]:
    """Return the moves that were planned before a moment and are not done."""
    task = partial(store.tiering.moves.unfinished, before_ms)
    found: list[Plan] = store.engine.call(task).result()
    return found


def give_up(store: "EmbeddedStore", plans: Sequence[Plan]) -> Document:
    """Strike moves out of the journal that are not going to be made."""
    struck = _made(plans, list[Plan])
    store.engine.call(partial(store.tiering.moves.give_up, struck)).result()
    return {"given_up": len(plans)}


def _slices(items: Sequence[_T]) -> Iterator[Sequence[_T]]:
    for begin in range(0, len(items), SLICE):
        yield items[begin : begin + SLICE]


def _made(values: Iterable[Any], kind: type[_T]) -> _T:
    """Return values as they were before they travelled through the socket."""
    return msgspec.convert(values, kind, builtin_types=(bytes,))
