"""Each promise has a bug that breaks it, and its checker finds that bug soon."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from support.checking import CHECKERS, broken_promises, played
from support.faulty_store import CrashError, FaultyStore
from support.region import Region
from turnstate.agents.dead_letters import dead_letter
from turnstate.agents.session.step import session_step
from turnstate.schemas import admission
from turnstate.schemas.crdt import slot_map
from turnstate.schemas.dialogue.fold import Fold
from turnstate.storage import seal
from turnstate.storage.frames.chain import START_LINK
from turnstate.storage.moves.owner import Moves
from turnstate.storage.warm.batch import Batch
from turnstate.storage.warm.tables import FRAMES, life_prefix, session_prefix

SEEDS_MAX = 100
"""A checker that finds its bug in none of so many worlds is no use."""

Patch = pytest.MonkeyPatch


def acknowledges_before_it_keeps(patch: Patch) -> None:
    """A crash before the write is answered as if the write had been made."""
    write = FaultyStore.write

    def hasty(store: FaultyStore, batch: Batch, *, sync: bool) -> None:
        with suppress(CrashError):
            write(store, batch, sync=sync)

    patch.setattr(FaultyStore, "write", hasty)


def knows_no_ids(patch: Patch) -> None:
    """A turn that comes again is stamped again."""
    rules = [r for r in admission.UNSTAMPED_RULES if "known_id" not in r.__name__]
    assert len(rules) < len(admission.UNSTAMPED_RULES)
    patch.setattr(admission, "UNSTAMPED_RULES", tuple(rules))


def never_wakes_the_parked(patch: Patch) -> None:
    """What came before its parent waits for ever: order decides."""

    def asleep(self: Fold, *come: object) -> None:
        return None

    patch.setattr(Fold, "_wake", asleep)


def loses_siblings(patch: Patch) -> None:
    """Of concurrent writes only the greatest is left."""
    join = slot_map.join

    def last_writer(*sides: Any) -> slot_map.SlotMap:
        return {name: entries[:1] for name, entries in join(*sides).items()}

    patch.setattr(slot_map, "join", last_writer)


def links_no_frames(patch: Patch) -> None:
    """Each frame starts a chain of its own."""

    def unlinked(_frame: bytes) -> bytes:
        return START_LINK

    patch.setattr("turnstate.agents.session.change.link_of", unlinked)


def seals_from_a_wrong_start(patch: Patch) -> None:
    """A segment says that it starts from an empty session."""

    starts = seal._starts

    def forgetful(*arguments: Any) -> list[tuple[bytes, Any]]:
        return [(b"", bases) for _, bases in starts(*arguments)]

    patch.setattr(seal, "_starts", forgetful)


def tells_the_first_only(patch: Patch) -> None:
    """Of a batch that holds several operations, subscribers hear of one."""
    tell = Region.tell

    def short(self: Region, one: Any, ops: Sequence[Any]) -> None:
        head = one.after.head
        head = msgspec.structs.replace(head, version=head.version - len(ops) + 1)
        after = msgspec.structs.replace(one.after, head=head)
        tell(self, one._replace(after=after), ops[:1])

    patch.setattr(Region, "tell", short)


def erases_the_head_only(patch: Patch) -> None:
    """The frames of an erased life stay where they are."""
    delete_range = Batch.delete_range

    def keeps_frames(self: Batch, table: str, start: bytes, end: bytes) -> None:
        key = start[2:]
        if table != FRAMES or start != session_prefix(key):
            delete_range(self, table, start, end)

    assert life_prefix(b"k", 1).startswith(session_prefix(b"k"))
    patch.setattr(Batch, "delete_range", keeps_frames)


def cuts_dead_letters(patch: Patch) -> None:
    """The last byte of a refused record is lost."""

    def cut(error: Any, raw: bytes, *rest: Any, **named: Any) -> Any:
        return dead_letter(error, raw[:-1], *rest, **named)

    patch.setattr("turnstate.agents.session.agent.dead_letter", cut)


def forgets_positions(patch: Patch) -> None:
    """What a log brings again is folded again."""

    def positionless(head: Any, position: Any, *rest: Any) -> Any:
        return session_step(head, None, *rest)

    patch.setattr("turnstate.agents.session.agent.session_step", positionless)


def repoints_nothing(patch: Patch) -> None:
    """Pointers to packs that were rewritten still lead to the old ones."""

    def unmoved(_moves: Moves, moved: Mapping[bytes, object]) -> list[bytes]:
        return list(moved)

    patch.setattr(Moves, "repoint", unmoved)


CANARIES: Mapping[Callable[[Patch], None], str] = {
    acknowledges_before_it_keeps: "acknowledged_is_kept",
    knows_no_ids: "nothing_twice",
    never_wakes_the_parked: "replicas_converge",
    loses_siblings: "equals_fold_set",
    links_no_frames: "chain_unbroken",
    seals_from_a_wrong_start: "every_version_reads",
    tells_the_first_only: "feed_complete",
    erases_the_head_only: "erased_stays_away",
    cuts_dead_letters: "dead_letters_hold_bytes",
    repoints_nothing: "cold_is_whole",
    forgets_positions: "nothing_odd_happened",
}


def test_every_checker_has_a_canary() -> None:
    assert sorted(CANARIES.values()) == sorted(CHECKERS)


@pytest.mark.parametrize("canary", CANARIES, ids=lambda canary: canary.__name__)
def test_a_canary_is_caught(
    canary: Callable[[Patch], None], monkeypatch: Patch
) -> None:
    canary(monkeypatch)
    for seed in range(1, SEEDS_MAX + 1):
        try:
            world = played(seed)
        except Exception:  # noqa: BLE001 - a world that breaks down shows no promise
            continue
        broken = broken_promises(world)
        if CANARIES[canary] in broken:
            print(f"{canary.__name__}: caught in world {seed} by {sorted(broken)}")
            return
    raise AssertionError(f"{canary.__name__} was not caught by its checker")
