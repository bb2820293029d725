"""One run of a tier job: what it moves within its budgets, and what stops it."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cooling import DAY_MS, Cooling, real_lines
from support.moving import Death, DyingObjects
from turnstate.agents.tiering.budget import RunBudget
from turnstate.agents.tiering.policy import PolicyTable
from turnstate.schemas.errors import FencedError, NotFoundError, UnavailableError
from turnstate.schemas.ids import SessionName
from turnstate.storage.cold.counting import CountingObjects
from turnstate.storage.cold.directory import DirectoryObjects
from turnstate.storage.cold.lease import TTL_MS
from turnstate.storage.moves.owner import plan_of
from turnstate.streams.tiers import job as job_module
from turnstate.streams.tiers.job import SWEEP_AFTER_MS

SESSIONS = 8


@pytest.fixture(name="world")
def fixture_world(tmp_path: Path) -> Iterator[Cooling]:
    counting = CountingObjects(DirectoryObjects(tmp_path / "cold"))
    with Cooling(tmp_path, counting) as world:
        world.publish(real_lines(SESSIONS))
        yield world


def requests(world: Cooling) -> int:
    assert isinstance(world.objects, CountingObjects)
    return sum(each.requests for each in world.objects.traffic().values())


def test_a_run_says_what_it_moved_and_why(world: Cooling) -> None:
    said = world.told()
    document = world.cool()

    assert document["moved"] == {"hot>warm": SESSIONS, "warm>cold": SESSIONS}
    assert sum(document["moved_why"].values()) == 2 * SESSIONS
    assert all(why.startswith("no turn for") for why in document["moved_why"])
    assert document["skipped"] == 0
    assert not document["fenced"]
    assert document["seconds"] > 0
    cold = [row for row in document["moves"] if row["path"] == "warm>cold"]
    assert {(row["tenant"], row["session"]) for row in cold} == set(said)
    assert document["bytes"] == sum(row["bytes"] for row in cold)
    assert world.told() == said
    assert world.tiers()["cold"] == SESSIONS


def test_what_was_just_used_stays(world: Cooling) -> None:
    document = world.job().run(RunBudget()).document()
    assert document["moved"] == {}
    assert world.tiers()["hot"] == SESSIONS
    world.clock.advance(3_600_000)
    document = world.job().run(RunBudget()).document()
    assert document["moved"] == {"hot>warm": SESSIONS}
    assert world.tiers()["warm"] == SESSIONS


def test_a_dry_run_changes_nothing_and_says_the_same(world: Cooling) -> None:
    before = requests(world)
    at_ms = world.clock.now_ms() + 10 * DAY_MS
    dry = world.job().run(RunBudget(), at_ms=at_ms, dry_run=True).document()

    assert dry["dry_run"]
    assert requests(world) == before
    assert world.tiers()["hot"] == SESSIONS
    assert world.store.call("tier_unfinished", before_ms=1 << 50) == []
    done = world.cool()
    assert (dry["moved"], dry["moved_why"]) == (done["moved"], done["moved_why"])


def test_a_run_without_work_leaves_the_cold_tier_alone(world: Cooling) -> None:
    before = requests(world)
    assert world.job().run(RunBudget()).document()["moved"] == {}
    assert requests(world) == before


@pytest.mark.parametrize(
    ("budget", "why"),
    [
        (RunBudget(operations_max=3), "the run's operations are used up"),
        (RunBudget(bytes_max=2_500), "the run's bytes are used up"),
    ],
    ids=["operations", "bytes"],
)
def test_what_does_not_fit_in_a_run_waits_for_the_next(
    world: Cooling, budget: RunBudget, why: str
) -> None:
    at_ms = world.clock.now_ms() + 10 * DAY_MS
    first = world.job().run(budget, at_ms=at_ms).document()
    cold = world.tiers()["cold"]
    assert 0 < cold < SESSIONS
    assert first["moved"]["warm>cold"] == cold
    assert first["skipped_why"] == {why: SESSIONS - cold}
    runs = 1
    while world.tiers()["cold"] < SESSIONS:
        assert world.job().run(budget, at_ms=at_ms).moved["warm>cold"]
        runs += 1
    assert runs > 1


def test_a_run_plans_no_more_than_it_has_time_for(world: Cooling) -> None:
    at_ms = world.clock.now_ms() + 10 * DAY_MS
    budget = RunBudget(seconds_max=0.007)
    document = world.job().run(budget, at_ms=at_ms, dry_run=True).document()
    waiting = document["skipped_why"]["the run's seconds are used up"]
    assert document["moved"]["warm>cold"] == SESSIONS - waiting
    assert 0 < waiting < SESSIONS


def test_a_run_whose_time_is_up_leaves_the_rest(
    world: Cooling, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_module, "FLIP_BYTES", 1)
    at_ms = world.clock.now_ms() + 10 * DAY_MS
    world.release()

    def slowly(_: int) -> None:
        time.sleep(0.3)

    job = world.job(progress=slowly)
    report = job.run(RunBudget(seconds_max=0.5), at_ms=at_ms).document()

    cold = world.tiers()["cold"]
    assert 0 < cold < SESSIONS
    assert report["moved"] == {"warm>cold": cold}
    assert report["skipped_why"] == {"the time of this run is up": SESSIONS - cold}
    assert world.store.call("tier_unfinished", before_ms=1 << 50) == []


def test_progress_is_told_of_sessions(world: Cooling) -> None:
    told: list[int] = []
    world.cool(progress=told.append)
    assert told == [SESSIONS, 2 * SESSIONS]


# -- others ----------------------------------------------------------------------


def test_a_lease_that_another_holds_stops_a_run_before_it_copies(
    world: Cooling,
) -> None:
    said = world.told()
    with world.lease(world.packs(), "another").held():
        with pytest.raises(UnavailableError) as raised:
            world.cool()
        assert raised.value.code == "leased"
        assert "another" in raised.value.message
    assert world.tiers()["cold"] == 0
    assert world.told() == said
    assert world.cool()["moved"]["warm>cold"] == SESSIONS


def test_a_dead_jobs_lease_ends_by_itself(world: Cooling) -> None:
    lease = world.lease(world.packs(), "dead").held()
    lease.__enter__()
    world.clock.advance(2 * TTL_MS)
    assert world.cool()["moved"]["warm>cold"] == SESSIONS
    lease.gen.close()


class Overtaken(Death):
    """Another job takes over as soon as a call of an object store is made."""

    def __init__(self, world: Cooling, step: str) -> None:
        super().__init__("never")
        self.world = world
        self.moment = step

    def at(self, step: str) -> None:
        if step == self.moment and self.moment not in self.passed:
            self.passed.append(step)
            self.world.clock.advance(2 * TTL_MS)
            with self.world.lease(self.world.packs(), "other").held():
                pass
        super().at(step)


@pytest.mark.parametrize("step", ["create:3:before", "create:3:after", "read:1:after"])
def test_a_job_that_is_overtaken_says_so_and_moves_nothing(
    world: Cooling, step: str
) -> None:
    said = world.told()
    overtaken = Overtaken(world, step)
    document = world.cool(objects=DyingObjects(world.objects, overtaken))

    assert step in overtaken.passed
    assert document["fenced"]
    assert "warm>cold" not in document["moved"]
    assert world.tiers()["cold"] == 0
    assert world.told() == said
    assert world.cool()["moved"] == {"warm>cold": SESSIONS}
    for _ in range(2):
        world.compact()
        world.collect()
    world.job(holder="sweeper").sweep(at_ms=world.clock.now_ms() + DAY_MS)
    assert list(world.unsaid()) == []


def test_an_owner_refuses_a_job_that_was_overtaken(world: Cooling) -> None:
    world.store.tiering.admit(7)
    with pytest.raises(FencedError, match="token 7"):
        world.store.call("tier_flip", copied=[], token=6)
    with pytest.raises(FencedError):
        world.store.call("tier_repoint", moved=[], token=6)
    with pytest.raises(FencedError):
        list(world.store.call("tier_pointers", token=6))
    assert world.store.call("tier_flip", copied=[], token=7) == []


def test_an_owner_that_starts_anew_refuses_it_too(world: Cooling) -> None:
    world.packs().fence(9)
    with pytest.raises(FencedError, match="token 9"):
        world.store.call("tier_flip", copied=[], token=3)


def test_a_stale_job_cannot_flip_behind_a_compaction(world: Cooling) -> None:
    """It copied, slept, and wakes when its pack, which nobody used, has gone."""
    stale = world.packs()
    stale.fence(1)
    world.store.seal()
    plans = [
        plan_of(name.key(), stored, "warm", "cold", world.clock.now_ms())
        for name in world.names()
        if (stored := world.store.warm.heads([name.key()])[0]) is not None
    ]
    images = dict(world.store.call("tier_images", plans=plans))
    stale.write(images[plan.id] for plan in plans)
    said = world.told()
    world.compact()
    world.collect()
    assert world.pack_names() == set()
    with pytest.raises(FencedError):
        world.store.call("tier_flip", copied=[], token=1)
    assert world.told() == said


# -- one session --------------------------------------------------------------------


def test_one_session_goes_where_it_is_asked_to(world: Cooling) -> None:
    name = world.names()[0]
    said = world.told()
    for target, path in (
        ("cold", {"hot>warm": 1, "warm>cold": 1}),
        ("hot", {"cold>warm": 1, "warm>hot": 1}),
        ("warm", {"hot>warm": 1}),
        ("warm", {}),
        ("cold", {"warm>cold": 1}),
        ("warm", {"cold>warm": 1}),
        ("hot", {"warm>hot": 1}),
    ):
        dry = world.job().move(name.key(), target, dry_run=True)  # type: ignore[arg-type]
        report = world.job().move(name.key(), target)  # type: ignore[arg-type]
        assert report.moved == dry.moved == path
        facts = world.store.call("tier_facts_of", key=name.key())
        assert facts.tier == target
    assert world.told() == said


def test_a_session_that_is_not_there_cannot_be_moved(world: Cooling) -> None:
    with pytest.raises(NotFoundError):
        world.job().move(SessionName("t", "nobody").key(), "cold")
    tenant, session = world.names()[0]
    world.store.erase(tenant, session=session)
    with pytest.raises(NotFoundError):
        world.job().move(SessionName(tenant, session).key(), "cold")


def test_an_erased_session_does_not_go_down(world: Cooling) -> None:
    tenant, session = world.names()[0]
    world.store.erase(tenant, session=session)
    world.cool()
    assert world.tiers()["cold"] == SESSIONS - 1
    assert SessionName(tenant, session).key() not in world.cold()


def test_a_session_that_somebody_reads_stays(world: Cooling) -> None:
    key = world.names()[0].key()
    world.moves.lease(key, world.clock.now_ms() + 1000)
    document = world.cool(table=PolicyTable())
    assert document["moved"]["warm>cold"] == SESSIONS - 1
    assert document["skipped_why"] == {"it has changed since it was planned": 1}
    assert key not in world.cold()
    world.clock.advance(2000)
    assert world.cool()["moved"]["warm>cold"] == 1


# -- the sweeper -----------------------------------------------------------------


def left_behind(world: Cooling) -> None:
    plans = [
        plan_of(name.key(), stored, source, target, world.clock.now_ms())
        for name in world.names()
        for source, target in (("warm", "cold"), ("hot", "warm"))
        if (stored := world.store.warm.heads([name.key()])[0]) is not None
    ]
    world.store.call("tier_plan", plans=plans)


def test_the_sweeper_does_what_was_planned_and_left(world: Cooling) -> None:
    said = world.told()
    left_behind(world)
    assert world.job().sweep().swept == 0
    assert len(world.store.call("tier_unfinished", before_ms=1 << 50)) == 2 * SESSIONS
    dry = world.job().sweep(at_ms=world.clock.now_ms() + DAY_MS, dry_run=True)
    assert dry.swept == 2 * SESSIONS
    world.clock.advance(SWEEP_AFTER_MS + 1)
    report = world.job().sweep()

    assert report.swept == 2 * SESSIONS
    assert report.moved == {"warm>cold": SESSIONS}
    assert world.tiers()["cold"] == SESSIONS
    assert world.store.call("tier_unfinished", before_ms=1 << 50) == []
    assert world.told() == said


def test_the_sweeper_gives_up_what_has_moved_on(world: Cooling) -> None:
    left_behind(world)
    for tenant, session in world.names():
        world.store.end(tenant, session)
    world.clock.advance(SWEEP_AFTER_MS + 1)
    report = world.job().sweep()
    assert report.swept == 2 * SESSIONS
    assert not report.moved
    assert report.skipped == {"it has changed since it was planned": SESSIONS}
    assert world.store.call("tier_unfinished", before_ms=1 << 50) == []


def test_a_run_sweeps_first(world: Cooling) -> None:
    left_behind(world)
    world.clock.advance(SWEEP_AFTER_MS + 1)
    report = world.job().run(RunBudget()).document()
    assert report["swept"] == 2 * SESSIONS
    assert report["moved"]["warm>cold"] == SESSIONS


def test_a_clock_that_goes_back_loses_nothing(world: Cooling) -> None:
    said = world.told()
    world.cool()
    world.clock.advance(-60 * DAY_MS)
    world.use(world.packs())
    assert world.told() == said
    for name in world.names():
        assert world.job().move(name.key(), "warm").moved == {"cold>warm": 1}
        assert world.job().move(name.key(), "cold").moved == {"warm>cold": 1}
    assert world.told() == said
    for _ in range(2):
        world.compact()
        world.collect()
    assert world.told() == said
    world.clock.advance(100 * DAY_MS)
    for _ in range(2):
        world.compact()
        world.collect()
    assert list(world.unsaid()) == []
    assert world.told() == said
