"""What is planned stays until it is done, under a name that its content gives."""

from typing import Any

import msgspec
import pytest

from support.faulty_store import FaultyStore
from turnstate.schemas.errors import CorruptDataError
from turnstate.storage.moves.journal import (
    COLD,
    HOT,
    WARM,
    Plan,
    pending,
    stage_done,
    stage_plan,
)
from turnstate.storage.warm.tables import MOVES

PLAN = Plan(b"key", 1, 7, WARM, COLD, 1_000, "idle", 55)


def put(store: FaultyStore, *plans: Plan) -> None:
    batch = store.batch()
    for plan in plans:
        stage_plan(batch, plan)
    store.write(batch, sync=True)


def strike(store: FaultyStore, *plans: Plan) -> None:
    batch = store.batch()
    for plan in plans:
        stage_done(batch, plan)
    store.write(batch, sync=True)


def test_a_plan_stays_until_it_is_done() -> None:
    store = FaultyStore("log")
    other = Plan(b"other", 1, 7, WARM, COLD, 1_000)
    put(store, PLAN, other)
    assert {each.key for each in pending(store)} == {b"key", b"other"}
    strike(store, PLAN)
    assert list(pending(store)) == [other]
    strike(store, PLAN, other)
    strike(store, other)
    assert list(pending(store)) == []


def test_the_same_move_planned_again_is_one_and_the_later_plan_counts() -> None:
    store = FaultyStore("log")
    later = msgspec.structs.replace(PLAN, planned_ms=9_000, why="again", size=1)
    put(store, PLAN)
    put(store, later)
    assert list(pending(store)) == [later]
    strike(store, PLAN)
    assert list(pending(store)) == []


def test_another_move_has_another_name() -> None:
    changed: list[dict[str, Any]] = [
        {"key": b"other"},
        {"incarnation": 2},
        {"version": 8},
        {"source": HOT},
        {"target": WARM},
    ]
    names = {msgspec.structs.replace(PLAN, **each).id for each in changed}
    assert len(names | {PLAN.id}) == len(changed) + 1


def test_a_path_reads_from_where_to_where() -> None:
    assert PLAN.path == "warm>cold"


def test_a_damaged_row_is_named() -> None:
    store = FaultyStore("log")
    store.rows_by_table[MOVES][b"id"] = b"\xc1"
    with pytest.raises(CorruptDataError, match="journal of moves"):
        list(pending(store))
