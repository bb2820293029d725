"""What one run picks: order, budgets, water marks, and why the rest waits."""

from typing import Any

import msgspec

from turnstate.agents.tiering.budget import (
    Fill,
    Pace,
    Plan,
    RunBudget,
    plan_run,
)
from turnstate.agents.tiering.facts import SessionFacts
from turnstate.agents.tiering.policy import DEFAULT_TABLE, Kind
from turnstate.storage.access import Accesses

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


def facts(name: str, tier: str, idle_ms: int, **fields: Any) -> SessionFacts:
    known = {
        "key": b"\0\1t" + name.encode(),
        "incarnation": 1,
        "version": 10,
        "tier": tier,
        "arrived_ms": NOW_MS - idle_ms,
        "bytes_by_tier": {"hot": 10, "warm": 100} if tier == "hot" else {"warm": 100},
    }
    return msgspec.convert(known | fields, SessionFacts)


def planned(
    *sessions: SessionFacts, budget: RunBudget | None = None, **options: Any
) -> Plan:
    return plan_run(
        sessions, NOW_MS, DEFAULT_TABLE, budget=budget or RunBudget(), **options
    )


def names(plan: Plan) -> list[str]:
    return [item.facts.key[3:].decode() for item in plan.items]


def often() -> Accesses:
    return Accesses((NOW_MS - 1_000, NOW_MS - 60_000), NOW_MS - 1_000)


def test_tombstones_deadlines_endings_ways_down_ways_up() -> None:
    plan = planned(
        facts("up", "warm", 20 * HOUR_MS, accesses=often()),
        facts("down", "warm", 40 * HOUR_MS),
        facts("colder", "warm", 50 * HOUR_MS),
        facts("late", "warm", HOUR_MS, ttl_ms=HOUR_MS),
        facts("behind", "hot", HOUR_MS, warm_version=3),
        facts("erased", "hot", 0, tombstone=True),
        facts("fine", "hot", 0),
    )

    assert names(plan) == ["erased", "behind", "late", "colder", "down", "up"]
    assert plan.skipped == []


def test_of_ways_up_the_one_used_last_goes_first() -> None:
    earlier = Accesses((NOW_MS - 9_000, NOW_MS - 60_000), NOW_MS - 9_000)
    plan = planned(
        facts("a", "warm", 20 * HOUR_MS, accesses=earlier),
        facts("b", "warm", 20 * HOUR_MS, accesses=often()),
    )

    assert names(plan) == ["b", "a"]


def test_bytes_are_a_bound_and_smaller_ones_still_fit() -> None:
    cold = [facts(name, "warm", 40 * HOUR_MS) for name in "abc"]
    large = facts("large", "warm", 50 * HOUR_MS, bytes_by_tier={"warm": 10_000})
    erased = facts("t", "hot", 0, tombstone=True)
    plan = planned(large, *cold, erased, budget=RunBudget(bytes_max=250))

    assert names(plan) == ["t", "a", "b"]
    assert plan.bytes == 200
    assert plan.skipped_by_reason() == {
        "it is larger than all bytes of a run": 1,
        "the run's bytes are used up": 1,
    }


def test_operations_and_seconds_are_bounds() -> None:
    cold = [facts(name, "warm", 40 * HOUR_MS) for name in "abcd"]
    few = planned(*cold, budget=RunBudget(operations_max=3))
    short = planned(
        *cold,
        budget=RunBudget(seconds_max=0.05),
        pace=Pace(seconds_an_operation=0.01, bytes_a_second=10_000),
    )

    assert names(few) == ["a", "b", "c"]
    assert few.skipped_by_reason() == {"the run's operations are used up": 1}
    assert names(short) == ["a", "b"]
    assert short.seconds <= 0.05
    assert short.skipped_by_reason() == {"the run's seconds are used up": 2}


def test_above_the_high_mark_the_coldest_go_until_the_low_one() -> None:
    """From 95 of 100 bytes to 80 or less: two sessions of ten."""
    live = [facts(f"s{number}", "hot", number * 1_000) for number in range(8)]
    plan = planned(*live, fills={"hot": Fill(95, 100)})

    assert names(plan) == ["s7", "s6"]
    assert {item.decision.reason for item in plan.items} == {
        "hot is above its high water mark"
    }


def test_at_the_high_mark_nothing_is_pressed() -> None:
    live = [facts(f"s{number}", "hot", number * 1_000) for number in range(8)]

    assert names(planned(*live, fills={"hot": Fill(90, 100)})) == []
    assert names(planned(*live, fills={"hot": Fill(95, 0)})) == []


def test_what_goes_anyway_makes_room_first() -> None:
    live = [facts(f"s{number}", "hot", number * 1_000) for number in range(8)]
    idle = [facts(f"i{number}", "hot", HOUR_MS) for number in range(2)]
    plan = planned(*live, *idle, fills={"hot": Fill(95, 100)})

    assert names(plan) == ["i0", "i1"]


def test_a_full_disk_sends_warm_sessions_to_cold() -> None:
    sessions = [
        facts("a", "warm", 2 * HOUR_MS, bytes_by_tier={"warm": 200}),
        facts("b", "warm", HOUR_MS, accesses=often()),
        facts("open", "warm", 3 * HOUR_MS, sealed=False),
    ]
    plan = planned(*sessions, fills={"warm": Fill(900, 1_000)})

    assert names(plan) == ["a", "b"]
    assert [item.decision.to for item in plan.items] == ["cold", "hot"]


def test_what_pressure_sends_down_does_not_go_up() -> None:
    plan = planned(
        facts("b", "warm", HOUR_MS, accesses=often()), fills={"warm": Fill(999, 1_000)}
    )

    assert [(item.decision.kind, item.decision.to) for item in plan.items] == [
        (Kind.DEMOTE, "cold")
    ]


def test_nothing_goes_up_into_a_full_tier() -> None:
    up = [facts(name, "warm", HOUR_MS, accesses=often()) for name in "ab"]
    plan = planned(*up, fills={"hot": Fill(750, 1_000)})

    assert names(plan) == ["a"]
    assert plan.skipped_by_reason() == {"hot would be above its high water mark": 1}
