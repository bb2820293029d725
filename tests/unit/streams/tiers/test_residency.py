"""A session that came back from the cold tier stays a while: nothing flaps."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cooling import Cooling, long_lines
from turnstate.agents.tiering.budget import RunBudget
from turnstate.agents.tiering.policy import DEFAULT_TABLE
from turnstate.streams.clock import VirtualClock

RESIDENCY_MS = int(1000 * DEFAULT_TABLE.minimum_residency_s)
WINDOW_MS = int(1000 * DEFAULT_TABLE.window_s * DEFAULT_TABLE.hysteresis)
DAY_MS = 86_400_000


@pytest.fixture(name="clock")
def fixture_clock() -> VirtualClock:
    return VirtualClock(time.time_ns() // 1_000_000)


@pytest.fixture(name="world")
def fixture_world(tmp_path: Path, clock: VirtualClock) -> Iterator[Cooling]:
    with Cooling(tmp_path, clock=clock) as world:
        world.publish(long_lines(12, "s"))
        clock.advance(10 * DAY_MS)
        assert run(world).get("warm>cold") == 1
        yield world


def run(world: Cooling) -> dict[str, int]:
    """Run the job now; return what moved."""
    return dict(world.job().run(RunBudget()).moved)


def read_twice(world: Cooling) -> None:
    """Read a session so that it comes back: two reads of one burst."""
    assert world.store.state("t", "s")["tier"] == "cold"
    assert world.store.state("t", "s")["version"] == 12
    # A task in the owner's thread, behind the one that brings it back.
    world.store.engine.call(lambda: None).result()
    assert tier(world) != "cold"


def tier(world: Cooling) -> str:
    """Return where the session lies."""
    (row,) = world.store.sessions()
    return str(row["tier"])


def test_a_session_read_twice_is_not_cooled_by_the_next_run(
    world: Cooling, clock: VirtualClock
) -> None:
    """Two reads of one burst count as one use: residency alone holds it."""
    clock.advance(DAY_MS)
    read_twice(world)
    assert run(world) == {}
    clock.advance(RESIDENCY_MS - 1)
    assert run(world) == {}
    assert tier(world) == "warm"
    clock.advance(WINDOW_MS)
    assert run(world) == {"warm>cold": 1}


def test_it_is_known_after_a_restart(
    tmp_path: Path, world: Cooling, clock: VirtualClock
) -> None:
    """Cron runs in another process, and knows it from the head."""
    clock.advance(DAY_MS)
    world.job().move(world.names()[0].key(), "warm")
    world.close()
    with Cooling(tmp_path, clock=clock) as again:
        assert run(again) == {}
        assert tier(again) == "warm"
        assert again.store.verify()["bad"] == []
        clock.advance(RESIDENCY_MS)
        assert run(again) == {"warm>cold": 1}
        assert again.store.state("t", "s")["version"] == 12


def test_a_turn_begins_anew(world: Cooling, clock: VirtualClock) -> None:
    """What is said since counts by itself: the session was not only fetched."""
    clock.advance(DAY_MS)
    read_twice(world)
    world.publish(long_lines(13, "s")[12:])
    (row,) = [row for _, row in world.store.rows()]
    assert row.moved_ms == 0
    assert row.version == 13
