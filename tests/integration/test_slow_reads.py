"""A read of a cold session has one limit, however many requests it takes."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.commands import line
from support.cooling import Cooling, long_lines
from support.cutting_proxy import CuttingProxy, Fault
from support.object_stores import s3_objects
from support.slow_bucket import LIMIT_S, Slow, refused
from turnstate.schemas.errors import UnavailableError


@pytest.fixture(name="hasty")
def fixture_hasty(tmp_path: Path) -> Iterator[Slow]:
    with Slow(tmp_path, cold_wait_s=LIMIT_S) as world:
        yield world
        world.bucket.go_on()


def test_a_read_has_one_limit_and_a_later_one_finds_what_came(hasty: Slow) -> None:
    hasty.publish(long_lines(300, size=2000))
    hasty.cool()
    digest = hasty.store.state("t", "long")["digest"]
    hasty.anew()
    hasty.clock.advance(1_000_000)
    hasty.bucket.hang()
    for read in (
        lambda: hasty.store.state("t", "long"),
        lambda: hasty.store.turns("t", "long"),
        lambda: hasty.store.history("t", "long"),
        lambda: hasty.store.head("t", "long", 3),
    ):
        began = time.monotonic()
        with pytest.raises(UnavailableError, match="cold tier did not answer") as told:
            read()
        assert LIMIT_S <= time.monotonic() - began < LIMIT_S + 1
        assert (told.value.code, told.value.exit_code) == ("cold_away", 6)
    assert len(hasty.bucket.reads) == 1, "all of them waited for one fetch"
    hasty.bucket.go_on()
    time.sleep(0.3)
    before = len(hasty.bucket.reads)
    assert hasty.store.state("t", "long")["digest"] == digest
    assert len(hasty.bucket.reads) == before + 1, "the front had come by itself"


def test_many_slow_answers_are_one_slow_read(hasty: Slow) -> None:
    """Each answer comes in time; all of them together do not."""
    hasty.publish(long_lines(900, size=2000))
    hasty.cool()
    hasty.anew()
    hasty.bucket.delay_s = 0.4 * LIMIT_S
    began = time.monotonic()
    with pytest.raises(UnavailableError, match="cold tier did not answer"):
        hasty.store.turns("t", "long", limit=10_000)
    assert LIMIT_S <= time.monotonic() - began < 1.3 * LIMIT_S
    assert len(hasty.bucket.reads) >= 3
    # Tried again, it begins with all that had come.
    for _ in range(10):
        try:
            assert hasty.store.turns("t", "long", limit=10_000)["next"] is None
            break
        except UnavailableError:
            continue
    else:
        raise AssertionError("it never gets any further")


def test_a_bucket_that_holds_its_answers(
    s3_server: dict[str, str], tmp_path: Path
) -> None:
    """A real S3 server behind a proxy: turns and reads in time, others at once."""
    endpoint = s3_server["endpoint"]
    with CuttingProxy(endpoint, hold_s=3.0) as proxy:
        objects = s3_objects(s3_server, endpoint=proxy.endpoint)
        with Cooling(tmp_path, objects, cold_wait_s=LIMIT_S) as world:
            world.publish([line("a", 0), line("b", 0), line("c", 0)])
            world.cool()
            world.use(world.packs())
            proxy.plan("GET", Fault.HOLD, times=2, has="packs/")
            began = time.monotonic()
            waiting = world.store.engine.submit([line("a", 1)])
            assert world.store.publish([line("new", 0)])[0].error is None
            assert time.monotonic() - began < LIMIT_S
            assert refused(waiting.result(5)[0]).code == "cold_away"
            with pytest.raises(UnavailableError, match="cold tier did not answer"):
                world.store.state("acme", "b")
            assert time.monotonic() - began < 2 * LIMIT_S + 1
            assert proxy.left() == 0
            assert world.store.publish([line("c", 1)])[0].version == 2
            time.sleep(3.2)
            assert world.store.publish([line("a", 1)])[0].version == 2
            assert world.store.state("acme", "b")["turn_count"] == 1
        objects.close()
