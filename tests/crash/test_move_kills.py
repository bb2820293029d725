"""Moves between tiers killed at every step: nothing lost, nothing wrong, no orphans.

Every pair of tiers, both directions; the hot tier is memory, or a real Redis.
In this process a death is an exception after which nothing is done any more; a
sample, and all of them while soaking, are real SIGKILLs of processes.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest

from support import moving
from support.cooling import Cooling, Told, real_lines
from support.faulty_store import CrashError
from support.moving import PATHS, Death, DyingObjects, DyingStore, move_all, place
from support.soak import SoakSeeds
from turnstate.agents.tiering.facts import TierName
from turnstate.storage.hot.blocking import BlockingTier
from turnstate.storage.hot.redis import RedisTier
from turnstate.storage.hot.redis_connection import RedisSettings
from turnstate.storage.moves.owner import STEPS
from turnstate.streams.clock import VirtualClock
from turnstate.streams.tiers.job import SWEEP_AFTER_MS

SESSIONS: Final = 2

Path2 = tuple[TierName, TierName]

COLD_DOWN: Final = ("plan", "read", "create:3:before", "create:3:after")
CHECK: Final = ("read:1:before", "read:1:after")
FLIP: Final = ("create:4:before", "create:4:after", "flip", "done", "delete")

STEPS_OF: Final[dict[Path2, tuple[str, ...]]] = {
    ("hot", "warm"): ("read", "check", "delete", "done"),
    ("warm", "hot"): ("read", "write", "check", "done"),
    ("warm", "cold"): (*COLD_DOWN, *CHECK, *FLIP),
    ("cold", "warm"): ("read:1:before", "read:1:after", "write", "flip", "done"),
    ("hot", "cold"): (*COLD_DOWN, *CHECK, "check", *FLIP),
    ("cold", "hot"): ("read:1:before", "write", "flip", "read", "check", "done"),
}
"""Where each way may be cut; a pack is created, then committed, and read back.

`sweep` has tests of its own: it is no step of a move that lives.
"""

KILLS: Final = (
    ("warm", "cold", "create:3:after"),
    ("warm", "cold", "done"),
    ("warm", "cold", "delete"),
    ("cold", "warm", "flip"),
    ("hot", "cold", "create:4:after"),
    ("cold", "hot", "done"),
)
"""What is killed for good in the short form."""

Opened = Callable[..., Cooling]


@pytest.fixture(name="template", scope="module")
def fixture_template(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Told]:
    """A store with a few sealed dialogues, and what readers are told of them."""
    folder = tmp_path_factory.mktemp("template")
    with Cooling(folder) as world:
        world.publish(real_lines(SESSIONS, turns_max=12))
        world.store.seal()
        said = world.told()
    return folder, said


@pytest.fixture(name="opened")
def fixture_opened(
    request: pytest.FixtureRequest, template: tuple[Path, Told], tmp_path: Path
) -> Iterator[Opened]:
    """Return what opens a copy of the store, again after a death."""
    hot: Any = None
    fields: dict[str, Any] = {}
    if getattr(request, "param", "memory") == "redis":
        url = request.getfixturevalue("redis_server")
        settings = RedisSettings(url, prefix=uuid4().hex, timeout_ms=10_000)
        hot = BlockingTier(RedisTier(settings, now_ms=_now_ms))
        fields = {"hot_bytes": 1}
    folder = tmp_path / "data"
    shutil.copytree(template[0], folder)
    worlds: list[Cooling] = []

    def opened(*, later_ms: int = 0, anew: bool = False) -> Cooling:
        for world in worlds:
            world.close()
        if anew:
            shutil.rmtree(folder)
            shutil.copytree(template[0], folder)
        clock = VirtualClock(_now_ms() + later_ms)
        worlds.append(Cooling(folder, clock=clock, hot=hot, **fields))
        return worlds[-1]

    yield opened
    for world in worlds:
        world.close()
    if hot is not None:
        hot.close()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def check(
    opened: Opened, template: tuple[Path, Told], target: TierName, *, swept: bool = True
) -> None:
    """Open the store again, sweep, repeat the move, tidy: all is as it was."""
    said = template[1]
    world = opened(later_ms=2 * SWEEP_AFTER_MS)
    assert world.told() == said
    if swept:
        assert not world.job(holder="sweeper").sweep().fenced
        assert world.told() == said
    assert world.store.verify()["bad"] == []
    for _ in range(2):
        for name in world.names():
            report = world.job(holder="again").move(name.key(), target)
            assert not report.fenced
        assert world.tiers()[target] == len(said)
    assert world.job(holder="sweeper").sweep().swept == 0
    assert world.told() == said
    for _ in range(2):
        world.compact()
        world.collect()
    assert list(world.unsaid()) == []
    assert world.told() == said
    assert world.store.verify()["bad"] == []
    for key in world.cold():
        assert world.hot.heads([key]) == [None], "hot holds what is cold"


def die(world: Cooling, path: Path2, step: str) -> Death:
    """Move along a path until death comes; it has to."""
    place(world, path[0])
    death = Death(step)
    with pytest.raises(CrashError):
        move_all(world, path[1], death)
    assert death.passed[-1] == step
    return death


def cases() -> Iterator[Any]:
    """Yield every case; those in which Redis has no part only while soaking."""
    for hot in ("memory", "redis"):
        for path, steps in STEPS_OF.items():
            for step in steps:
                is_far = hot == "redis" and (
                    "hot" not in path or step in {*COLD_DOWN, *CHECK}
                )
                yield pytest.param(
                    *(hot, path, step),
                    id=f"{hot}-{path[0]}-{path[1]}-{step}",
                    marks=[pytest.mark.soak] if is_far else [],
                )


@pytest.mark.parametrize(("opened", "path", "step"), list(cases()), indirect=["opened"])
def test_a_move_that_dies_is_done_or_was_never_begun(
    opened: Opened, template: tuple[Path, Told], path: Path2, step: str
) -> None:
    die(opened(), path, step)
    check(opened, template, path[1])


@pytest.mark.parametrize("step", ["sweep", "read", "create:3:after", "flip", "done"])
def test_a_sweeper_that_dies_is_followed_by_another(
    opened: Opened, template: tuple[Path, Told], step: str
) -> None:
    die(opened(), ("warm", "cold"), "flip")
    world = opened(later_ms=2 * SWEEP_AFTER_MS)
    death = Death(step)
    objects = DyingObjects(world.objects, death)
    world.use(world.packs(objects), death.at)
    job = world.job(objects, holder="sweeper", store=DyingStore(world.asked, death))
    with pytest.raises(CrashError):
        job.sweep()
    check(opened, template, "cold")


def test_all_eight_steps_are_killed_on_every_way() -> None:
    assert set(STEPS_OF) == set(PATHS)
    for path, steps in STEPS_OF.items():
        named = {
            {"create": "write", "read": "check"}.get(step.partition(":")[0], step)
            if ":" in step and path[1] == "cold"
            else step.partition(":")[0]
            for step in steps
        }
        wanted = {"read", "check", "done"} if "cold" not in path else {"flip", "done"}
        assert wanted <= named <= set(STEPS), path
    assert set(STEPS) == {"sweep"} | {
        {"create": "write"}.get(step.partition(":")[0], step.partition(":")[0])
        for steps in STEPS_OF.values()
        for step in steps
    }


def events(opened: Opened, path: Path2) -> list[str]:
    """Return every step, and both sides of every call, of a way that is not cut."""
    world = opened()
    place(world, path[0])
    death = Death("never")
    move_all(world, path[1], death)
    return list(dict.fromkeys(death.passed))


@pytest.mark.parametrize("opened", ["memory", "redis"], indirect=True)
def test_every_way_passes_the_steps_at_which_it_is_cut(opened: Opened) -> None:
    for path, steps in STEPS_OF.items():
        passed = events(opened, path)
        assert set(steps) <= set(passed), path


# -- real ends of real processes --------------------------------------------------


def kill(folder: Path, template: tuple[Path, Told], path: Path2, step: str) -> None:
    """Have a process die on its way, and look at what it leaves."""
    shutil.copytree(template[0], folder)
    done = subprocess.run(
        [
            *(sys.executable, "-P", moving.__file__),
            *(str(folder), ">".join(path), step),
        ],
        check=False,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(Path(moving.__file__).parents[1])},
        timeout=60,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    worlds: list[Cooling] = []

    def opened(*, later_ms: int = 0) -> Cooling:
        worlds.append(Cooling(folder, clock=VirtualClock(_now_ms() + later_ms)))
        return worlds[-1]

    try:
        check(opened, template, path[1])
    finally:
        for world in worlds:
            world.close()


@pytest.mark.parametrize(("source", "target", "step"), KILLS)
def test_a_process_that_is_killed_leaves_no_harm(
    template: tuple[Path, Told],
    tmp_path: Path,
    source: TierName,
    target: TierName,
    step: str,
) -> None:
    kill(tmp_path / "data", template, (source, target), step)


@pytest.mark.soak
@pytest.mark.parametrize("opened", ["memory", "redis"], indirect=True)
@pytest.mark.parametrize("path", PATHS, ids=">".join)
def test_every_call_and_step_is_killed(
    opened: Opened, template: tuple[Path, Told], path: Path2
) -> None:
    for step in events(opened, path):
        die(opened(anew=True), path, step)
        check(opened, template, path[1])


@pytest.mark.soak
def test_every_kill(
    template: tuple[Path, Told], tmp_path: Path, soak_seeds: SoakSeeds
) -> None:
    everything = [(path, step) for path, steps in STEPS_OF.items() for step in steps]
    for number in soak_seeds.take(len(everything)):
        path, step = everything[number % len(everything)]
        kill(tmp_path / str(number), template, path, step)
