"""The owner moves what stands as it was planned, once, and nothing else."""

from typing import Any

import msgspec
import pytest

from support.faulty_store import CrashError
from support.region import Region
from turnstate.schemas.admission import Verdict
from turnstate.schemas.dialogue.head import digest
from turnstate.schemas.errors import UnavailableError
from turnstate.schemas.ids import SessionName
from turnstate.storage.cold.pointer import Pointer
from turnstate.storage.moves.journal import COLD, HOT, WARM, Plan, pending
from turnstate.storage.moves.owner import STEPS, Copied, Moves, plan_of
from turnstate.storage.session_image import encode_image
from turnstate.storage.session_reader import operations
from turnstate.storage.stored_head import StoredHead, decode_stored_head
from turnstate.storage.warm.cold_rows import ColdHead
from turnstate.storage.warm.tables import FRAMES, HEADS, INDEX, SEGMENTS
from turnstate.streams.clock import VirtualClock

NAME = SessionName("t", "s")
KEY = NAME.key()
NOW_MS = 1_700_000_000_000


class World:
    """One session in a store in memory, packs in memory, and the moves between."""

    def __init__(self, turns: int = 5) -> None:
        self.region = Region("log", VirtualClock(NOW_MS))
        self.packs, self.cold = self.region.packs, self.region.cold
        self.steps: list[str] = []
        self.count = 0
        self.start()
        self.say(turns)

    def start(self) -> None:
        self.region.start()
        self.moves = Moves(self.region.store, self.region.hot, at=self.steps.append)

    def say(self, turns: int = 1) -> None:
        raws = [
            msgspec.json.encode(
                {
                    "tenant": "t",
                    "session": "s",
                    "role": "user",
                    "turn_id": f"id{self.count + at}",
                    "content": f"turn {self.count + at}",
                }
            )
            for at in range(turns)
        ]
        self.count += turns
        answers, _ = self.region.handle(raws)
        assert all(answer.error is None for answer in answers)

    def located(self) -> StoredHead | ColdHead | None:
        return self.region.store.located([KEY])[0]

    def stored(self) -> StoredHead:
        found = self.region.store.heads([KEY])[0]
        assert found is not None
        return found

    def plan(self, source: str = WARM, target: str = COLD) -> Plan:
        return plan_of(KEY, self.stored(), source, target, NOW_MS)

    def copied(self, plan: Plan) -> Copied | None:
        (image,) = self.moves.images([plan], NOW_MS)
        if image is None:
            return None
        (pointer,) = self.packs.write([encode_image(image)])
        return Copied(plan, image.row, pointer)

    def cooled(self) -> ColdHead:
        self.region.seal(KEY)
        plan = self.plan()
        self.moves.plan([plan])
        copied = self.copied(plan)
        assert copied is not None
        assert self.moves.flip([copied], NOW_MS) == [plan]
        found = self.located()
        assert isinstance(found, ColdHead)
        return found

    def woken(self) -> bool:
        cold = self.located()
        assert isinstance(cold, ColdHead)
        found, failed = self.region.store.images([KEY])
        assert not failed
        return bool(self.moves.warm({KEY: (cold, found[KEY])}, NOW_MS))

    def rows(self) -> dict[str, list[bytes]]:
        store = self.region.store
        return {t: list(store.keys_of(t)) for t in (FRAMES, SEGMENTS, INDEX)}

    def texts(self) -> list[Any]:
        ops = operations(self.region.store, KEY, self.stored())
        return [op.body.content for _, op in ops]


def test_down_and_up_again_every_row_is_as_it_was() -> None:
    world = World(150)
    world.region.seal(KEY)
    before = {t: dict(rows) for t, rows in world.region.store.rows_by_table.items()}
    texts, stands = world.texts(), digest(world.stored().head)
    cold = world.cooled()

    assert world.rows() == {FRAMES: [], SEGMENTS: [], INDEX: []}
    assert world.region.hot.peek(KEY) is None
    assert cold.digest == stands == digest(world.stored().head)
    assert world.texts() == texts
    assert world.woken()
    after = world.region.store.rows_by_table
    asked = before.keys() - {"meta", HEADS}
    assert {t: after[t] for t in asked} == {t: before[t] for t in asked}
    # But for its word that it came back, the head is what it was.
    stood = decode_stored_head(before[HEADS][KEY])
    assert world.stored() == msgspec.structs.replace(stood, woken_ms=NOW_MS)
    assert world.texts() == texts


def test_steps_are_told_in_their_order() -> None:
    world = World()
    world.cooled()
    assert world.steps == ["plan", "read", "flip", "done", "delete"]
    assert [step for step in STEPS if step in world.steps] == world.steps


def test_the_pointer_and_the_end_of_the_plan_come_in_one_write() -> None:
    for fails in ("before", "after"):
        world = World()
        world.region.seal(KEY)
        plan = world.plan()
        world.moves.plan([plan])
        copied = world.copied(plan)
        assert copied is not None
        world.region.store.fails = fails
        with pytest.raises(CrashError):
            world.moves.flip([copied], NOW_MS)
        world.start()
        is_cold = isinstance(world.located(), ColdHead)
        assert is_cold is (fails == "after")
        assert list(pending(world.region.store)) == ([] if is_cold else [plan])
        assert len(world.texts()) == 5


def test_what_is_not_sealed_stays() -> None:
    world = World()
    assert world.copied(world.plan()) is None


def test_what_has_moved_on_stays() -> None:
    world = World()
    world.region.seal(KEY)
    plan = world.plan()
    world.say()
    world.region.seal(KEY)
    assert world.copied(plan) is None


def test_what_moves_on_while_it_is_copied_stays_and_its_plan_ends() -> None:
    world = World()
    world.region.seal(KEY)
    plan = world.plan()
    world.moves.plan([plan])
    copied = world.copied(plan)
    assert copied is not None
    world.say()

    assert world.moves.flip([copied], NOW_MS) == []
    assert isinstance(world.located(), StoredHead)
    assert list(pending(world.region.store)) == []
    assert len(world.texts()) == 6


def test_what_is_leased_stays_until_the_lease_ends() -> None:
    world = World()
    world.region.seal(KEY)
    plan = world.plan()
    world.moves.lease(KEY, NOW_MS + 10)
    world.moves.lease(KEY, NOW_MS + 5)
    assert world.moves.leased_until_ms(KEY) == NOW_MS + 10
    assert world.moves.images([plan], NOW_MS + 9) == [None]
    (image,) = world.moves.images([plan], NOW_MS + 10)
    assert image is not None
    assert world.moves.leased_until_ms(KEY) == 0
    (pointer,) = world.packs.write([encode_image(image)])
    copied = Copied(plan, image.row, pointer)
    world.moves.lease(KEY, NOW_MS + 20)
    assert world.moves.flip([copied], NOW_MS + 11) == []
    assert world.moves.flip([copied], NOW_MS + 20) == [plan]


def test_every_step_twice_changes_nothing() -> None:
    world = World()
    world.region.seal(KEY)
    plan = world.plan()
    for _ in range(2):
        world.moves.plan([plan])
    first, second = world.copied(plan), world.copied(plan)
    assert first is not None
    assert second is not None
    assert world.moves.flip([first, first], NOW_MS) == [plan, plan]
    rows = {t: dict(r) for t, r in world.region.store.rows_by_table.items()}
    for copied in (first, second):
        assert world.moves.flip([copied], NOW_MS) == []
    assert world.copied(plan) is None
    world.moves.give_up([plan])
    assert world.region.store.rows_by_table == rows
    cold = world.located()
    assert isinstance(cold, ColdHead)
    assert world.woken()
    image = world.cold.images({KEY: cold})[0][KEY]
    rows = {t: dict(r) for t, r in world.region.store.rows_by_table.items()}
    assert world.moves.warm({KEY: (cold, image)}, NOW_MS) == []
    assert world.region.store.rows_by_table == rows


def test_a_turn_for_a_cold_session_brings_it_back_in_one_write() -> None:
    for fails in ("before", "after", None):
        world = World()
        world.cooled()
        world.region.store.fails = fails
        if fails:
            with pytest.raises(CrashError):
                world.say()
            world.start()
        else:
            world.say()
        is_cold = isinstance(world.located(), ColdHead)
        assert is_cold is (fails == "before")
        assert len(world.texts()) == (5 if is_cold else 6)


def test_a_turn_that_came_before_the_cold_one_is_known() -> None:
    world = World()
    world.cooled()
    again = {"tenant": "t", "session": "s", "role": "user", "turn_id": "id3"}
    raws = [
        msgspec.json.encode({**again, "content": content})
        for content in ("turn 3", "something else")
    ]
    answers, folded = world.region.handle(raws)
    assert answers[0].verdict is Verdict.DUPLICATE
    assert answers[1].error is not None
    assert answers[1].error.code == "conflict"
    assert not folded.changes
    assert isinstance(world.located(), ColdHead)


def test_a_pointer_that_has_changed_is_not_followed() -> None:
    world = World()
    old = world.cooled()
    image = world.cold.images({KEY: old})[0][KEY]
    (pointer,) = world.packs.write([encode_image(image)])

    assert world.moves.repoint({KEY: (old.pointer, pointer)}) == [KEY]
    assert world.moves.repoint({KEY: (old.pointer, pointer)}) == []
    assert world.moves.warm({KEY: (old, image)}, NOW_MS) == []
    cold = world.located()
    assert isinstance(cold, ColdHead)
    assert cold.pointer == pointer
    assert msgspec.structs.replace(cold, pointer=old.pointer) == old
    assert world.woken()
    assert world.moves.repoint({KEY: (pointer, old.pointer)}) == []
    assert isinstance(world.located(), StoredHead)


def test_nothing_is_done_about_sessions_that_are_not_there() -> None:
    world = World()
    ghost = Plan(b"\0\1tg", 1, 1, WARM, COLD, NOW_MS)
    pointer = Pointer("packs/x", 8, 1, 1, 0, 1, 1)
    assert world.moves.images([ghost], NOW_MS) == [None]
    assert world.moves.flip([Copied(ghost, b"", pointer)], NOW_MS) == []
    assert world.moves.repoint({ghost.key: (pointer, pointer)}) == []
    assert world.moves.release([ghost], NOW_MS) == []
    assert world.moves.fill([ghost]) == []


def test_hot_lets_go_of_what_warm_holds_and_takes_it_up_again() -> None:
    world = World()
    down, up = world.plan(HOT, WARM), world.plan(WARM, HOT)
    assert world.moves.release([down], NOW_MS) == [down]
    assert world.region.hot.peek(KEY) is None
    assert world.moves.release([down], NOW_MS) == []
    for _ in range(2):
        assert world.moves.fill([up]) == [up]
        assert world.region.hot.peek(KEY) == world.stored()
    world.say()
    assert world.moves.release([down], NOW_MS) == []
    assert world.moves.fill([up]) == []


def test_hot_keeps_what_somebody_reads() -> None:
    world = World()
    world.moves.lease(KEY, NOW_MS + 1)
    assert world.moves.release([world.plan(HOT, WARM)], NOW_MS) == []
    assert world.region.hot.peek(KEY) is not None


def test_a_cold_session_is_not_taken_up_by_hot() -> None:
    world = World()
    plan = world.plan(WARM, HOT)
    world.cooled()
    assert world.moves.fill([plan]) == []
    assert world.region.hot.peek(KEY) is None


def test_only_old_plans_are_unfinished() -> None:
    world = World()
    plan = world.plan()
    world.moves.plan([plan])
    assert world.moves.unfinished(NOW_MS) == []
    assert world.moves.unfinished(NOW_MS + 1) == [plan]


def test_without_a_cold_tier_one_is_told_what_to_set() -> None:
    world = World()
    world.cooled()
    world.region.store.below = None
    with pytest.raises(UnavailableError, match="turnstate settings"):
        world.region.store.heads([KEY])
