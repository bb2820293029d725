"""Entity upserts: one for every ten versions, whatever the batches."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstate.agents.ports import Record
from turnstate.agents.session.rebuild import refolder
from turnstate.agents.tiering.entities import (
    ENTITY_BYTES_MAX,
    EntityUpsert,
    boundaries,
    entity_upserts,
)
from turnstate.schemas.dialogue.head import Head, digest
from turnstate.schemas.dialogue.phases import default_graph
from turnstate.schemas.ids import SessionName
from turnstate.schemas.position import Position
from turnstate.storage.repair import OneSession
from turnstate.storage.stored_head import NO_SESSION, StoredHead
from turnstate.streams.clock import VirtualClock

NAME = SessionName("t", "s")
KEY = NAME.key()


def at(version: int, incarnation: int = 1) -> StoredHead:
    return StoredHead(Head(incarnation=incarnation, version=version))


def turn(number: int, **fields: Any) -> Record:
    body = {"tenant": "t", "session": "s", "role": "user", "turn_id": f"t{number}"}
    raw = msgspec.json.encode(body | {"content": f"secret {number}"} | fields)
    return Record(raw, Position(b"log", 0, number))


def upserts(batches: list[list[Record]]) -> list[EntityUpsert]:
    """Return what comes of a session that is folded in these batches."""
    session = OneSession(KEY)
    agent = refolder(session, default_graph(), "log", VirtualClock(1))
    found: list[EntityUpsert] = []
    for batch in batches:
        for change in agent.fold(batch).changes:
            session.commit([change])
            found += entity_upserts(change.before, change.after, change.key)
    return found


@given(st.lists(st.integers(0, 40), max_size=12))
def test_every_boundary_comes_once_however_turns_are_batched(steps: list[int]) -> None:
    version, found = 0, list[int]()
    for step in steps:
        found += boundaries(version, version + step)
        version += step

    assert found == list(range(10, version + 1, 10))


@pytest.mark.parametrize("size", [1, 3, 10, 35])
def test_a_session_of_35_versions_has_three(size: int) -> None:
    turns = [turn(number) for number in range(35)]
    batches = [turns[at : at + size] for at in range(0, 35, size)]

    assert [each.boundary for each in upserts(batches)] == [10, 20, 30]


def test_the_value_is_the_state_without_text() -> None:
    turns = [turn(number) for number in range(9)]
    last = turn(
        9,
        slots={
            "set": {
                "area": "north",
                "price": {"b": 1, "a": [1.5, 12345678901234567890]},
            }
        },
        tags={"add": ["vip", "new"], "remove": []},
        usage={"tokens": 7},
    )
    (found,) = upserts([[*turns, last]])

    assert found.value is not None
    assert b"secret" not in found.value
    value = json.loads(found.value)
    assert list(value) == sorted(value)
    assert value["version"] == value["turn_count"] == 10
    assert value["tags"] == ["new", "vip"]
    assert value["usage"] == {"tokens": 7}
    assert value["slots"]["area"] == {"value": "north", "siblings": []}
    assert b'{"b":1,"a":[1.5,12345678901234567890]}' in found.value
    assert value["phase"]
    assert (value["tenant"], value["session"]) == NAME


def test_the_digest_is_that_of_the_head() -> None:
    (found,) = entity_upserts(at(9), at(10), KEY)

    assert found.value is not None
    assert json.loads(found.value)["digest"] == digest(at(10).head).hex()
    assert (found.key, found.incarnation, found.boundary) == (KEY, 1, 10)


def test_a_state_too_large_for_a_record_says_what_it_leaves_out() -> None:
    large = "x" * (300 << 10)
    turns = [turn(at, slots={"set": {f"s{at}": large}}) for at in range(10)]
    (found,) = upserts([turns])

    assert found.value is not None
    assert len(found.value) < ENTITY_BYTES_MAX
    value = json.loads(found.value)
    assert value["left_out"] == ["slots", "tags", "usage"]
    assert (value["slots"], value["turn_count"]) == ({}, 10)


def test_a_redelivery_gives_none() -> None:
    assert entity_upserts(at(10), at(10), KEY) == []
    assert entity_upserts(NO_SESSION, at(9), KEY) == []


def test_an_erased_life_takes_its_entity_with_it() -> None:
    """The removal comes first, so that a new life's entity stays."""
    assert entity_upserts(at(15), at(0, incarnation=2), KEY) == [
        EntityUpsert(KEY, 1, 0, None)
    ]
    # Whether this life told any is not known: see the docstring.
    assert entity_upserts(at(9), at(0, incarnation=2), KEY) == [
        EntityUpsert(KEY, 1, 0, None)
    ]
    both = entity_upserts(at(15), at(12, incarnation=2), KEY)
    assert [(each.incarnation, each.boundary) for each in both] == [(1, 0), (2, 10)]
