"""The whole world from one seed keeps every promise."""

import os

import pytest

from support.checking import CHECKERS, broken_promises, checker, played
from support.mishaps import play
from support.soak import SoakSeeds
from support.world import World

SEEDS = range(1, 31)

FOUND = (18,)
"""Seeds that once found something: a rollback in the batch that it goes back to."""


def keeps_every_promise(seed: int) -> World:
    """Play a seed and check everything; the error names the seed."""
    try:
        world = played(seed)
        for name in CHECKERS:
            checker(name)(world)
    except Exception as error:
        error.add_note(f"again: make sim SEED={seed}")
        raise
    return world


def test_every_promise_is_kept() -> None:
    crashes = damages = erased = cooled = away = 0
    for seed in (*SEEDS, *FOUND):
        world = keeps_every_promise(seed)
        crashes += world.crashes
        damages += world.damages
        erased += len(world.erased)
        cooled += world.cooled
        away += world.turned_away
    print(f"{cooled} times a session cooled, {away} turns came while cold was away")
    print(f"{crashes} crashes, {damages} torn frames, {erased} sessions erased")
    assert crashes > len(SEEDS) / 2
    assert damages > len(SEEDS) / 4
    assert erased
    assert cooled > 2 * len(SEEDS)
    assert away


def test_a_seed_tells_what_happens(sim_seed: int) -> None:
    """`make sim SEED=n` runs it, `ARGS=-s` shows each step."""
    told = print if os.environ.get("SIM_SEED") else None
    world = play(World(sim_seed, told=told), 110)
    for name, error in broken_promises(world).items():
        print(f"{name}: {error!r}")
    assert not broken_promises(world)


@pytest.mark.soak
def test_many_worlds(soak_seeds: SoakSeeds) -> None:
    for seed in soak_seeds.take(3_000):
        keeps_every_promise(seed)
