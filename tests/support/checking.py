"""Let every checker of the simulation look at a world."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Final

from support.mishaps import play
from support.world import World

CHECKERS: Final = tuple(
    sorted(
        path.stem
        for path in (Path(__file__).parents[1] / "simulation/checkers").glob("*.py")
    )
)
"""One module a promise; the name of each says it."""


def checker(name: str) -> Callable[[World], None]:
    """Return the check of a promise."""
    check: Callable[[World], None] = import_module(f"simulation.checkers.{name}").check
    return check


def broken_promises(world: World) -> dict[str, Exception]:
    """Return which promises a world breaks, each with the error that says so."""
    found: dict[str, Exception] = {}
    for name in CHECKERS:
        try:
            checker(name)(world)
        except Exception as error:  # noqa: BLE001 - a canary may break anything
            found[name] = error
    return found


def played(seed: int, steps: int = 110) -> World:
    """Play a world to its end."""
    return play(World(seed), steps)
