"""Decay points are passed in order, each half as far from the end as the one before."""

import pytest

from turnstate.agents.tiering.decay import (
    RUN_OUT,
    decay_points_ms,
    left_ms,
    point_passed,
)


def test_points_lie_at_60_30_and_15_percent_left() -> None:
    assert decay_points_ms(1_000_000) == (400_000, 700_000, 850_000)
    assert decay_points_ms(1_000_000, 0.1) == (600_000, 800_000, 900_000)


@pytest.mark.parametrize(
    ("idle_ms", "point"),
    [(0, 0), (399, 0), (400, 1), (700, 2), (849, 2), (850, 3), (999, 3), (1_000, 4)],
)
def test_a_point_is_passed_at_its_millisecond(idle_ms: int, point: int) -> None:
    assert point_passed(idle_ms, 1_000) == point


def test_without_a_ttl_nothing_decays() -> None:
    assert point_passed(1 << 60, None) == 0
    assert left_ms(1 << 60, None) is None


def test_nothing_is_left_of_what_has_run_out() -> None:
    assert left_ms(70, 100) == 30
    assert left_ms(170, 100) == 0
    assert point_passed(0, 0) == RUN_OUT
