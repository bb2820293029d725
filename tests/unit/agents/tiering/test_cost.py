"""What a load costs: each figure moves the way that it has to."""

from dataclasses import replace

import pytest

from turnstate.agents.tiering.cost import Load, Prices, TierCost, cost
from turnstate.agents.tiering.policy import PolicyTable
from turnstate.schemas.errors import InvalidInputError

LOAD = Load(sessions_a_day=1_000, turns_a_session=20, bytes_a_turn=200)


def by_tier(load: Load = LOAD, **options: object) -> dict[str, TierCost]:
    """Return the costs by the name of the tier."""
    return {each.tier: each for each in cost(load, **options)}  # type: ignore[arg-type]


def test_every_session_lies_in_one_tier() -> None:
    """Warm and cold hold what comes in, for as long as it is kept."""
    found = by_tier()
    held = found["warm"].sessions + found["cold"].sessions
    assert held == pytest.approx(LOAD.sessions_a_day * LOAD.kept_days)
    assert found["log"].sessions == found["warm"].sessions


def test_twice_the_load_costs_twice() -> None:
    """Sessions, bytes and money are in proportion to what comes in."""
    once, twice = by_tier(), by_tier(replace(LOAD, sessions_a_day=2_000))
    for tier, each in once.items():
        assert twice[tier].sessions == pytest.approx(2 * each.sessions)
        assert twice[tier].bytes == pytest.approx(2 * each.bytes)
    assert twice["warm"].usd_a_month == pytest.approx(2 * once["warm"].usd_a_month)


def test_a_patient_policy_moves_money_from_cold_to_warm() -> None:
    """The longer warm holds a session, the dearer it is."""
    slow = by_tier(table=PolicyTable(cooling_s=30 * 86_400))
    assert slow["warm"].usd_a_month > by_tier()["warm"].usd_a_month
    assert slow["cold"].usd_a_month < by_tier()["cold"].usd_a_month


def test_what_is_kept_for_less_than_it_takes_to_cool_never_does() -> None:
    """No session is cold that is gone before."""
    found = by_tier(replace(LOAD, kept_days=0.5))
    assert found["cold"].sessions == 0
    assert found["cold"].objects == 0
    assert found["warm"].sessions == pytest.approx(500)


def test_reads_of_cold_sessions_are_paid() -> None:
    """Two requests a read."""
    read = by_tier(replace(LOAD, cold_reads_a_day=100))
    more = read["cold"].requests_a_month - by_tier()["cold"].requests_a_month
    assert more == pytest.approx(200 * 365.25 / 12)
    free = by_tier(replace(LOAD, cold_reads_a_day=100), prices=Prices(gets_1000=0))
    assert free["cold"].usd_a_month < read["cold"].usd_a_month


@pytest.mark.parametrize(
    "name", ["sessions_a_day", "turns_a_session", "bytes_a_turn", "kept_days"]
)
def test_nothing_is_no_load(name: str) -> None:
    """A number that makes no sense is named."""
    with pytest.raises(InvalidInputError) as raised:
        replace(LOAD, **{name: 0})
    assert raised.value.field == name
    with pytest.raises(InvalidInputError, match="cold_reads"):
        replace(LOAD, cold_reads_a_day=-1)
