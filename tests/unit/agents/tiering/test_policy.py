"""What the policy says of a session, one rule a test, by the default table."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from turnstate.agents.tiering.facts import SessionFacts
from turnstate.agents.tiering.policy import (
    DEFAULT_TABLE,
    Kind,
    PolicyTable,
    Stage,
    decide,
    is_expired,
    stage,
    told,
    under_pressure,
)
from turnstate.schemas.errors import InvalidInputError
from turnstate.storage.access import Accesses

NOW_MS = 1_700_000_000_000
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS


def facts(tier: str = "hot", idle_ms: int = 0, **fields: Any) -> SessionFacts:
    known = {
        "key": b"\0\1ts",
        "incarnation": 1,
        "version": 10,
        "tier": tier,
        "arrived_ms": NOW_MS - idle_ms,
        "bytes_by_tier": {"hot": 10, "warm": 100, "cold": 100},
    }
    return msgspec.convert(known | fields, SessionFacts)


def used(*ago_ms: int) -> Accesses:
    return Accesses(tuple(NOW_MS - ago for ago in ago_ms), NOW_MS - ago_ms[0])


def said(known: SessionFacts, table: PolicyTable = DEFAULT_TABLE) -> tuple[Kind, Any]:
    decision = decide(known, NOW_MS, table)
    return decision.kind, decision.to


def test_a_life_goes_from_active_to_destroyed() -> None:
    table = PolicyTable(archived_s=30 * 86_400)
    idle = {0: "active", HOUR_MS: "cooling", DAY_MS: "archived"}

    for idle_ms, name in (idle | {30 * DAY_MS: "destroyed"}).items():
        assert stage(facts(idle_ms=idle_ms), NOW_MS, table) is Stage(name)
    assert said(facts("cold", 30 * DAY_MS), table) == (Kind.DESTROY, None)


def test_without_settings_cold_is_the_last_stop() -> None:
    assert said(facts("cold", 9_999 * DAY_MS)) == (Kind.STAY, None)


@pytest.mark.parametrize(
    ("tier", "idle_ms", "expected"),
    [
        ("hot", 15 * MINUTE_MS, (Kind.STAY, None)),
        ("hot", 20 * MINUTE_MS, (Kind.DEMOTE, "warm")),
        ("hot", 31 * HOUR_MS, (Kind.DEMOTE, "cold")),
        ("warm", 29 * HOUR_MS, (Kind.STAY, None)),
        ("warm", 31 * HOUR_MS, (Kind.DEMOTE, "cold")),
        ("cold", 31 * HOUR_MS, (Kind.STAY, None)),
    ],
)
def test_what_is_idle_goes_down(
    tier: str, idle_ms: int, expected: tuple[Kind, str | None]
) -> None:
    """A quarter later than it would have come up: the hysteresis."""
    assert said(facts(tier, idle_ms)) == expected


def test_what_is_read_often_stays_though_nothing_is_said() -> None:
    read = used(2 * MINUTE_MS, 12 * MINUTE_MS)

    assert said(facts(idle_ms=HOUR_MS, accesses=read)) == (Kind.STAY, None)


@pytest.mark.parametrize(
    ("tier", "ago_minutes", "expected"),
    [
        ("warm", (1,), (Kind.STAY, None)),
        ("warm", (1, 9), (Kind.PROMOTE, "hot")),
        ("warm", (1, 11), (Kind.STAY, None)),
        ("cold", (1, 9), (Kind.PROMOTE, "warm")),
        ("cold", (1, 5, 9), (Kind.PROMOTE, "hot")),
    ],
)
def test_the_second_use_within_the_window_brings_it_up(
    tier: str, ago_minutes: tuple[int, ...], expected: tuple[Kind, str | None]
) -> None:
    read = used(*(minutes * MINUTE_MS for minutes in ago_minutes))

    assert said(facts(tier, 20 * HOUR_MS, accesses=read)) == expected


def test_uses_before_it_came_here_do_not_bring_it_up() -> None:
    """What pressure sent down does not come back by itself."""
    read = used(7 * MINUTE_MS, 8 * MINUTE_MS)
    moved = facts("warm", accesses=read, moved_at_ms=NOW_MS - 6 * MINUTE_MS)

    assert said(moved) == (Kind.STAY, None)


def test_it_stays_for_a_while_where_it_came() -> None:
    moved = facts(idle_ms=DAY_MS, moved_at_ms=NOW_MS - 4 * MINUTE_MS)
    decision = decide(moved, NOW_MS, DEFAULT_TABLE)

    assert decision.kind is Kind.STAY
    assert decision.reason == "it has only just come here, for 1 min 0 s more"
    assert said(facts(idle_ms=DAY_MS, moved_at_ms=NOW_MS - 5 * MINUTE_MS))[0] is (
        Kind.DEMOTE
    )


def test_a_lease_and_a_pin_hold_it() -> None:
    leased = facts(idle_ms=DAY_MS, leased_until_ms=NOW_MS + 1)
    pinned = facts(idle_ms=DAY_MS, pinned_until_ms=1 << 62)

    assert said(leased) == said(pinned) == (Kind.STAY, None)
    assert decide(pinned, NOW_MS, DEFAULT_TABLE).reason == "it is pinned"


def test_an_open_tail_does_not_go_to_cold() -> None:
    assert said(facts("warm", 40 * HOUR_MS, sealed=False)) == (Kind.STAY, None)
    assert said(facts("hot", 40 * HOUR_MS, sealed=False)) == (Kind.DEMOTE, "warm")


def test_a_dialogue_that_ended_cools_faster() -> None:
    assert said(facts(idle_ms=5 * MINUTE_MS, ended=True)) == (Kind.DEMOTE, "warm")
    assert said(facts("warm", 8 * HOUR_MS, ended=True)) == (Kind.DEMOTE, "cold")


@pytest.mark.parametrize(
    ("idle_ms", "expected"),
    [(84_999, Kind.STAY), (85_000, Kind.JOINT_WRITE), (100_000, Kind.EXPIRE)],
)
def test_at_the_third_decay_point_hot_and_warm_are_written_together(
    idle_ms: int, expected: Kind
) -> None:
    """15 % of the TTL left; where warm has it already there is nothing to do."""
    behind = facts(idle_ms=idle_ms, ttl_ms=100_000, warm_version=9)
    level = facts(idle_ms=idle_ms, ttl_ms=100_000, warm_version=10)

    assert said(behind)[0] is expected
    assert said(level)[0] is (Kind.EXPIRE if expected is Kind.EXPIRE else Kind.STAY)


def test_hot_is_written_to_warm_before_it_lets_go() -> None:
    behind = facts(idle_ms=HOUR_MS, warm_version=9)

    assert said(behind) == (Kind.JOINT_WRITE, None)
    assert under_pressure(behind, NOW_MS, DEFAULT_TABLE).kind is Kind.JOINT_WRITE
    level = msgspec.structs.replace(behind, warm_version=10)
    assert said(level) == (Kind.DEMOTE, "warm")


def test_the_ttl_of_a_hot_copy_ends_after_the_policy_lets_go() -> None:
    """Its third decay point is when the policy does."""
    table = PolicyTable(active_s=1_000, hysteresis=1.7)

    assert table.hot_ttl_ms == 2_000_000
    assert said(facts(idle_ms=1_700_000, warm_version=9), table)[0] is Kind.JOINT_WRITE


def test_what_has_expired_is_taken_from_view_then_destroyed() -> None:
    table = PolicyTable(ttl_s=60)
    late = facts("warm", MINUTE_MS)

    assert is_expired(late, NOW_MS, table)
    assert said(late, table) == (Kind.EXPIRE, None)
    hidden = msgspec.structs.replace(late, expired=True)
    assert said(hidden, table) == (Kind.DESTROY, None)
    assert not is_expired(facts("warm", MINUTE_MS, ttl_ms=MINUTE_MS + 1), NOW_MS, table)


def test_a_tombstone_goes_down_at_once_to_where_bytes_are_left() -> None:
    """It waits for no pin; with nothing below it stays for good."""
    erased = {"tombstone": True, "pinned_until_ms": 1 << 62, "moved_at_ms": NOW_MS}

    assert said(facts("hot", **erased)) == (Kind.DEMOTE, "warm")
    assert said(facts("warm", **erased)) == (Kind.DEMOTE, "cold")
    only_warm = facts("warm", **erased, bytes_by_tier={"warm": 9})
    assert said(only_warm) == (Kind.STAY, None)


def test_pressure_sends_down_what_would_stay() -> None:
    assert under_pressure(facts(), NOW_MS, DEFAULT_TABLE)[::2] == (Kind.DEMOTE, "warm")
    assert under_pressure(facts("warm"), NOW_MS, DEFAULT_TABLE).to == "cold"
    open_tail = facts("warm", sealed=False)
    assert under_pressure(open_tail, NOW_MS, DEFAULT_TABLE).kind is Kind.STAY
    assert under_pressure(facts("cold"), NOW_MS, DEFAULT_TABLE).kind is Kind.STAY


def test_a_clock_that_was_set_back_moves_nothing() -> None:
    assert said(facts(idle_ms=-DAY_MS)) == (Kind.STAY, None)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("active_s", 0),
        ("cooling_s", 1),
        ("archived_s", 60),
        ("ttl_s", 0),
        ("window_s", 0),
        ("promote_uses", 4),
        ("hysteresis", 0.9),
        ("minimum_residency_s", -1),
        ("ended_factor", 0),
        ("third_point", 0.5),
        ("hot_low", 0.95),
        ("warm_low", 0.95),
    ],
)
def test_a_setting_that_does_not_fit_is_named(name: str, value: Any) -> None:
    with pytest.raises(InvalidInputError) as caught:
        replace(DEFAULT_TABLE, **{name: value})

    assert caught.value.field == name


def test_times_are_told_as_people_do() -> None:
    assert [told(seconds) for seconds in (0, 59, 60, 3_600, 86_400)] == [
        "0 s",
        "59 s",
        "1 min 0 s",
        "1 h 0 min",
        "1 d 0 h",
    ]


def test_what_warm_does_not_have_does_not_cool_under_pressure() -> None:
    """Though the disk is full: the newest version would be nowhere."""
    behind = facts("warm", version=2, warm_version=1)
    assert under_pressure(behind, NOW_MS, DEFAULT_TABLE).kind is Kind.STAY
    whole = facts("warm", version=2, warm_version=2)
    assert under_pressure(whole, NOW_MS, DEFAULT_TABLE).to == "cold"
