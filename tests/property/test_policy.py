"""Laws of the tiering policy and of the budgets of its runs."""

from dataclasses import replace
from typing import Final

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from turnstate.agents.tiering.budget import (
    Fill,
    Pace,
    Plan,
    RunBudget,
    moved_bytes,
    plan_run,
)
from turnstate.agents.tiering.facts import TIERS, SessionFacts, TierName
from turnstate.agents.tiering.policy import (
    DEFAULT_TABLE,
    Decision,
    Kind,
    PolicyTable,
    Stage,
    decide,
    is_expired,
    stage,
    under_pressure,
)
from turnstate.storage.access import Accesses, touched

SECOND_MS: Final = 1_000
HOUR_MS: Final = 3_600_000
START_MS: Final = 1_700_000_000_000

times: st.SearchStrategy[int] = st.integers(0, 400 * HOUR_MS)
now: st.SearchStrategy[int] = st.integers(START_MS, START_MS + 400 * HOUR_MS)


def used_at(found: list[int]) -> Accesses:
    ordered = sorted((START_MS + at for at in found), reverse=True)
    return Accesses(tuple(ordered), max(ordered, default=START_MS))


uses = st.lists(times, max_size=3, unique=True).map(used_at)


@st.composite
def tables(draw: st.DrawFn) -> PolicyTable:
    active_s = draw(st.integers(1, 7_200))
    cooling_s = active_s * draw(st.integers(1, 100))
    archive = draw(st.none() | st.integers(1, 50))
    return PolicyTable(
        active_s=active_s,
        cooling_s=cooling_s,
        archived_s=None if archive is None else cooling_s * archive,
        ttl_s=draw(st.none() | st.integers(1, 1_000_000)),
        hysteresis=draw(st.floats(1, 3)),
        minimum_residency_s=draw(st.integers(0, 3_600)),
    )


@st.composite
def sessions(draw: st.DrawFn, /, **fixed: object) -> SessionFacts:
    """Draw a session; `fixed` fields are as they are given."""
    tier = draw(st.sampled_from(TIERS))
    size = draw(st.integers(0, 100_000))
    below = TIERS[TIERS.index(tier) :]
    fields: dict[str, object] = {
        "key": b"\0\1t" + draw(st.binary(min_size=1, max_size=3)),
        "incarnation": 1,
        "version": draw(st.integers(1, 100)),
        "tier": tier,
        "arrived_ms": START_MS + draw(times),
        "accesses": draw(uses),
        "bytes_by_tier": dict.fromkeys(below, size),
        "warm_version": draw(st.none() | st.integers(1, 100)),
        "ttl_ms": draw(st.none() | st.integers(1, 400 * HOUR_MS)),
        "moved_at_ms": draw(st.just(0) | now),
        "sealed": draw(st.booleans()),
        "ended": draw(st.booleans()),
        "tombstone": draw(st.sampled_from((False, False, False, True))),
        "pinned_until_ms": draw(st.sampled_from((0, 0, START_MS + 200 * HOUR_MS))),
        "leased_until_ms": draw(st.sampled_from((0, 0, START_MS + 200 * HOUR_MS))),
        "expired": draw(st.sampled_from((False, False, False, True))),
    }
    return msgspec.convert(fields | fixed, SessionFacts)




def depth(facts: SessionFacts, decision: Decision) -> float:
    """Return how far down a session is once a decision is carried out."""
    if decision.kind is Kind.EXPIRE:
        return 3.0
    if decision.kind is Kind.DESTROY:
        return 4.0
    if decision.kind is Kind.JOINT_WRITE:
        return 0.5
    return TIERS.index(decision.to or facts.tier)


# -- one decision ------------------------------------------------------------------


@given(
    sessions(moved_at_ms=0, pinned_until_ms=0, leased_until_ms=0), now, times, tables()
)
def test_the_longer_idle_the_further_down(
    facts: SessionFacts, now_ms: int, later_ms: int, table: PolicyTable
) -> None:
    """With no other fact changed; the stage of its life, too, goes one way."""
    first = decide(facts, now_ms, table)
    later = decide(facts, now_ms + later_ms, table)

    assert depth(facts, first) <= depth(facts, later)
    stages = list(Stage)
    assert stages.index(stage(facts, now_ms, table)) <= stages.index(
        stage(facts, now_ms + later_ms, table)
    )


@given(sessions(), now, tables())
def test_what_is_leased_never_moves(
    facts: SessionFacts, now_ms: int, table: PolicyTable
) -> None:
    leased = msgspec.structs.replace(facts, leased_until_ms=now_ms + 1)

    assert decide(leased, now_ms, table).kind is Kind.STAY
    assert under_pressure(leased, now_ms, table).kind is Kind.STAY


@given(sessions(tombstone=False), now, tables())
def test_what_is_pinned_stays_or_ends(
    facts: SessionFacts, now_ms: int, table: PolicyTable
) -> None:
    """A pin holds a session in its tier; it does not make it live longer."""
    pinned = msgspec.structs.replace(facts, pinned_until_ms=now_ms + 1)
    for decision in (
        decide(pinned, now_ms, table),
        under_pressure(pinned, now_ms, table),
    ):
        ends = is_expired(pinned, now_ms, table) and not pinned.leased_until_ms > now_ms
        assert (decision.kind in {Kind.EXPIRE, Kind.DESTROY}) == ends
        assert ends or decision.kind is Kind.STAY


@given(sessions(leased_until_ms=0, tombstone=False), now, tables())
def test_what_has_expired_ends(
    facts: SessionFacts, now_ms: int, table: PolicyTable
) -> None:
    """It is never served, and nothing but its end is decided about it."""
    decision = decide(facts, now_ms, table)
    if is_expired(facts, now_ms, table):
        assert stage(facts, now_ms, table) is Stage.DESTROYED
        assert decision.kind is (Kind.DESTROY if facts.expired else Kind.EXPIRE)
    else:
        assert decision.kind is not Kind.EXPIRE


@given(sessions(), now, tables())
def test_hot_lets_go_of_nothing_that_only_it_has(
    facts: SessionFacts, now_ms: int, table: PolicyTable
) -> None:
    """Warm is brought up to it first: hot is never the only copy."""
    for decision in (
        decide(facts, now_ms, table),
        under_pressure(facts, now_ms, table),
    ):
        if decision.kind is Kind.DEMOTE and not facts.tombstone:
            assert not facts.is_ahead_of_warm()
            assert decision.to != "cold" or facts.sealed
        if decision.kind is Kind.JOINT_WRITE:
            assert facts.tier == "hot"
            assert facts.is_ahead_of_warm()


@given(sessions(), now, tables())
def test_a_move_goes_somewhere_else(
    facts: SessionFacts, now_ms: int, table: PolicyTable
) -> None:
    """Down is down, up is up, and every decision says why."""
    for decision in (
        decide(facts, now_ms, table),
        under_pressure(facts, now_ms, table),
    ):
        assert decision.reason
        if decision.kind is Kind.DEMOTE:
            assert TIERS.index(decision.to or "hot") > TIERS.index(facts.tier)
        elif decision.kind is Kind.PROMOTE:
            assert TIERS.index(decision.to or "cold") < TIERS.index(facts.tier)
        else:
            assert decision.to is None


# -- many decisions, one after another ------------------------------------------------


def carried_out(
    facts: SessionFacts, decision: Decision, now_ms: int
) -> SessionFacts | None:
    """Return the session after a decision; None once it is gone."""
    if decision.kind in {Kind.EXPIRE, Kind.DESTROY}:
        return None
    if decision.kind is Kind.JOINT_WRITE:
        return msgspec.structs.replace(facts, warm_version=facts.version)
    if decision.to is None:
        return facts
    return msgspec.structs.replace(facts, tier=decision.to, moved_at_ms=now_ms)


@given(
    sessions(tombstone=False, pinned_until_ms=0, leased_until_ms=0, expired=False),
    tables(),
    st.lists(
        st.tuples(
            st.integers(1, 4 * HOUR_MS),
            st.sampled_from(("wait", "wait", "use", "press")),
        ),
        max_size=40,
    ),
)
def test_nothing_flaps(
    facts: SessionFacts, table: PolicyTable, steps: list[tuple[int, str]]
) -> None:
    """Up after down only by a use; down after up not before it has stayed.

    Also under pressure, which moves what the policy would leave.
    """
    now_ms = max(facts.arrived_ms, facts.accesses.last_ms, facts.moved_at_ms)
    used_since_down = True
    up_ms: int | None = None
    for wait_ms, what in steps:
        now_ms += wait_ms
        if what == "use":
            accesses = touched(facts.accesses, now_ms)
            facts = msgspec.structs.replace(facts, accesses=accesses)
            used_since_down = True
            continue
        rule = under_pressure if what == "press" else decide
        decision = rule(facts, now_ms, table)
        if decision.kind is Kind.PROMOTE:
            assert used_since_down
            up_ms = now_ms
        elif decision.kind is Kind.DEMOTE:
            rest_ms = table.minimum_residency_s * SECOND_MS
            assert up_ms is None or now_ms - up_ms >= rest_ms
            used_since_down = False
        after = carried_out(facts, decision, now_ms)
        if after is None:
            return
        facts = after


# -- runs ------------------------------------------------------------------------------

many: st.SearchStrategy[list[SessionFacts]] = st.lists(
    sessions(), max_size=30, unique_by=lambda facts: facts.key
)


@st.composite
def budgets(draw: st.DrawFn) -> RunBudget:
    return RunBudget(
        bytes_max=draw(st.none() | st.integers(0, 300_000)),
        operations_max=draw(st.none() | st.integers(0, 20)),
        seconds_max=draw(st.none() | st.floats(0, 0.05)),
    )


def filled(hot: Fill, warm: Fill) -> dict[TierName, Fill]:
    return {"hot": hot, "warm": warm}


fills = st.builds(
    filled,
    st.builds(Fill, st.integers(0, 1_000_000), st.sampled_from((0, 600_000))),
    st.builds(Fill, st.integers(0, 1_000_000), st.sampled_from((0, 600_000))),
)


def keys_of(plan: Plan) -> list[bytes]:
    return [item.facts.key for item in plan.items]


@given(many, now, tables(), budgets(), fills)
def test_budgets_are_never_exceeded(
    found: list[SessionFacts],
    now_ms: int,
    table: PolicyTable,
    budget: RunBudget,
    full: dict[TierName, Fill],
) -> None:
    """And every session that is not stay is carried out or said to wait, once."""
    pace = Pace()
    plan = plan_run(found, now_ms, table, budget=budget, fills=full, pace=pace)

    assert plan.bytes == sum(moved_bytes(i.facts, i.decision) for i in plan.items)
    assert budget.bytes_max is None or plan.bytes <= budget.bytes_max
    assert budget.operations_max is None or len(plan.items) <= budget.operations_max
    assert budget.seconds_max is None or plan.seconds <= budget.seconds_max
    told = keys_of(plan) + [each.item.facts.key for each in plan.skipped]
    assert len(set(told)) == len(told)
    due = {f.key for f in found if decide(f, now_ms, table).kind is not Kind.STAY}
    assert due <= set(told)
    assert sum(plan.skipped_by_reason().values()) == len(plan.skipped)


@given(many, now, tables(), budgets(), fills)
def test_tombstones_go_first_then_the_coldest(
    found: list[SessionFacts],
    now_ms: int,
    table: PolicyTable,
    budget: RunBudget,
    full: dict[TierName, Fill],
) -> None:
    plan = plan_run(found, now_ms, table, budget=budget, fills=full)
    erased = [item.facts.tombstone for item in plan.items]
    assert erased == sorted(erased, reverse=True)
    if not all(erased) and budget.operations_max is not None:
        for skipped in plan.skipped:
            assert not skipped.item.facts.tombstone or "operations" not in skipped.why
    down = [
        item.facts.used_ms()
        for item in plan.items
        if item.decision.kind is Kind.DEMOTE and not item.facts.tombstone
    ]
    assert down == sorted(down)


@given(many, now, tables(), fills)
def test_nothing_goes_up_above_a_high_water_mark(
    found: list[SessionFacts],
    now_ms: int,
    table: PolicyTable,
    full: dict[TierName, Fill],
) -> None:
    """Nor does anything go up that pressure sends down in the same run."""
    plan = plan_run(found, now_ms, table, budget=RunBudget(), fills=full)
    hot = full["hot"]
    up = [
        item
        for item in plan.items
        if item.decision.kind is Kind.PROMOTE and item.decision.to == "hot"
    ]
    if hot.capacity_bytes and up and any(item.size for item in up):
        freed = sum(
            item.facts.bytes_in("hot")
            for item in plan.items
            if item.decision.kind in {Kind.DEMOTE, Kind.EXPIRE, Kind.DESTROY}
        )
        grown = sum(item.size for item in up)
        assert hot.share(grown - freed) <= table.hot_high


def test_the_default_table_is_one_that_can_be_changed() -> None:
    """Settings come as a table; what does not fit together is refused."""
    table = replace(DEFAULT_TABLE, active_s=60)

    assert table.hot_ttl_ms < DEFAULT_TABLE.hot_ttl_ms
