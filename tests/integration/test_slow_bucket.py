"""A bucket that hangs holds up the turns of its own sessions alone."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.commands import line
from support.hanging_objects import WAIT_S
from support.kept import log_records
from support.slow_bucket import LIMIT_S, Slow, refused
from turnstate.schemas.errors import NotFoundError, UnavailableError
from turnstate.schemas.ids import SessionName
from turnstate.storage.session_image import EncodedImage, decode_image
from turnstate.storage.warm.cold_rows import ColdHead


@pytest.fixture(name="world")
def fixture_world(tmp_path: Path) -> Iterator[Slow]:
    with Slow(tmp_path, cold_wait_s=20) as world:
        yield world
        world.bucket.go_on()


@pytest.fixture(name="hasty")
def fixture_hasty(tmp_path: Path) -> Iterator[Slow]:
    with Slow(tmp_path, cold_wait_s=LIMIT_S) as world:
        yield world
        world.bucket.go_on()


def turn_ids(world: Slow, session: str) -> list[str]:
    return [turn["turn_id"] for turn in world.store.turns("acme", session)["turns"]]


# -- others go on ---------------------------------------------------------------


def test_others_are_acknowledged_while_a_cold_session_is_fetched(world: Slow) -> None:
    world.cooled("a")
    waiting = world.send(line("a", 2))
    world.bucket.wait_for_reads(1)
    for at in range(50):
        answers = world.store.publish([line("b", at), line("c", at)])
        assert [answer.error for answer in answers] == [None, None]
    # Tasks of jobs and readers have their turn as well.
    assert world.store.engine.call(lambda: 7).result(5) == 7
    assert world.store.state("acme", "b")["turn_count"] == 50
    assert not waiting.done()

    world.bucket.go_on()
    (answer,) = waiting.result(10)
    assert (answer.error, answer.version) == (None, 3)
    assert turn_ids(world, "a") == ["t0", "t1", "t2"]
    assert world.store.verify()["bad"] == []


def test_turns_of_one_session_keep_their_order_across_submissions(world: Slow) -> None:
    world.cooled("a")
    first = world.send(line("a", 2), line("other", 0), line("a", 3))
    world.bucket.wait_for_reads(1)
    second = world.send(line("a", 4))
    third = world.send(line("more", 0), line("a", 5))
    after = world.send(line("other", 1), line("more", 1))
    # What is not of the cold session goes in its own order, and at once.
    assert [answer.version for answer in after.result(5)] == [2, 2]
    assert not any(each.done() for each in (first, second, third))

    world.bucket.go_on()
    assert [answer.version for answer in first.result(10)] == [3, 1, 4]
    assert [answer.version for answer in second.result(10)] == [5]
    assert [answer.version for answer in third.result(10)] == [1, 6]
    assert turn_ids(world, "a") == [f"t{at}" for at in range(6)]
    assert log_records(world.store)[-1] == line("a", 5)
    assert len(world.bucket.reads) == 1


def test_what_comes_while_it_is_woken_goes_behind_what_waits(world: Slow) -> None:
    """The image comes while newer turns of the session are in the inbox."""
    world.cooled("a")
    old = world.send(line("a", 2), line("a", 3))
    world.bucket.wait_for_reads(1)
    busy, entered = threading.Event(), threading.Event()

    def held() -> None:
        entered.set()
        busy.wait(WAIT_S)

    task = world.store.engine.call(held)
    assert entered.wait(5)
    new = [world.send(line("a", at)) for at in (4, 5)]
    world.bucket.go_on()
    time.sleep(0.1)
    newer = [world.send(line("a", at)) for at in (6, 7)]
    busy.set()
    task.result(5)

    versions = [each.result(10)[0].version for each in (old, *new, *newer)]
    assert versions == [3, 5, 6, 7, 8]
    assert turn_ids(world, "a") == [f"t{at}" for at in range(8)]


def test_a_thousand_publishers_of_a_cold_session_cause_one_fetch(world: Slow) -> None:
    world.cooled("a")
    with ThreadPoolExecutor(100) as pool:
        sent = [pool.submit(world.store.publish, [line("a", at)]) for at in range(1000)]
        world.bucket.wait_for_reads(1)
        world.bucket.go_on()
        answers = [each.result(WAIT_S)[0] for each in sent]
    assert [answer.error for answer in answers] == [None] * 1000
    assert len(world.bucket.reads) == 1
    assert world.store.state("acme", "a")["turn_count"] == 1000


def test_many_sessions_wake_though_only_a_few_are_fetched_at_once(
    hasty: Slow,
) -> None:
    """More than there are fetches, and more than come within the limit at once."""
    names = [f"s{at}" for at in range(50)]
    hasty.cooled(*names)
    waiting = hasty.send(*(line(name, 2) for name in names))
    hasty.bucket.wait_for_reads(16)
    assert len(hasty.bucket.reads) == 16
    hasty.bucket.go_on()
    assert {answer.version for answer in waiting.result(WAIT_S)} == {3}
    assert len(hasty.bucket.reads) == 50
    assert hasty.store.verify()["bad"] == []


def test_publishers_are_held_back_once_too_much_waits(tmp_path: Path) -> None:
    sizes = {"inbox_turns_max": 8, "batch_turns_max": 8}
    with Slow(tmp_path, cold_wait_s=20, **sizes) as world:
        world.cooled("a")
        waiting = [world.send(line("a", at)) for at in range(2, 10)]
        with ThreadPoolExecutor(1) as pool:
            held_back = pool.submit(world.store.publish, [line("b", 0)])
            time.sleep(0.3)
            assert not held_back.done()
            world.bucket.go_on()
            assert held_back.result(10)[0].error is None
        assert [each.result(10)[0].version for each in waiting] == [*range(3, 11)]


# -- away -----------------------------------------------------------------------


def test_away_is_refused_by_name_in_time_and_a_later_try_works(hasty: Slow) -> None:
    hasty.cooled("a")
    logged = len([record for record in log_records(hasty.store) if record])
    began = time.monotonic()
    answers = hasty.store.publish([line("a", 2), line("b", 0), line("a", 3)])
    took = time.monotonic() - began

    assert LIMIT_S <= took < LIMIT_S + 2
    for answer in (answers[0], answers[2]):
        error = refused(answer)
        assert isinstance(error, UnavailableError)
        assert (error.code, error.exit_code) == ("cold_away", 6)
        assert "cold tier did not answer within 1 s" in str(error)
        assert "try again" in str(error.hint)
    assert answers[1].error is None
    records = [record for record in log_records(hasty.store) if record]
    assert records[logged:] == [line("b", 0)]
    assert hasty.store.dead_letters()["dead_letters"] == []
    # What was asked for is still on its way; nobody asks for it twice.
    again = hasty.send(line("a", 2), line("a", 3))
    time.sleep(0.2)
    hasty.bucket.go_on()
    assert [answer.version for answer in again.result(10)] == [3, 4]
    assert turn_ids(hasty, "a") == ["t0", "t1", "t2", "t3"]
    assert len(hasty.bucket.reads) == 1


def test_what_came_too_late_is_there_for_the_next_try(hasty: Slow) -> None:
    hasty.cooled("a")
    refused(hasty.store.publish([line("a", 2)])[0])
    hasty.bucket.go_on()
    hasty.store.engine.call(lambda: time.sleep(0.2)).result()
    assert hasty.store.publish([line("a", 2)])[0].version == 3
    assert len(hasty.bucket.reads) == 1


def test_a_fetch_that_fails_is_told_at_once_and_tried_anew(world: Slow) -> None:
    world.cooled("a")
    waiting = world.send(line("a", 2))
    world.bucket.wait_for_reads(1)
    world.bucket.fails = True
    world.bucket.go_on()
    assert "the bucket is away" in str(refused(waiting.result(10)[0]))
    assert world.store.publish([line("a", 2)])[0].version == 3


def test_a_letter_of_a_cold_session_is_kept_while_its_tier_is_away(
    hasty: Slow,
) -> None:
    hasty.publish([line("a", 0)])
    wrong = line("a", 1, if_version=7)
    assert hasty.store.publish([wrong])[0].error is not None
    (letter,) = hasty.store.dead_letters()["dead_letters"]
    hasty.cool()
    hasty.anew()
    hasty.bucket.hang()
    assert hasty.store.redrive([letter["id"]])["refused"] == 1
    assert hasty.store.dead_letters()["dead_letters"] == [letter]


def test_closing_ends_in_time_though_the_bucket_hangs(hasty: Slow) -> None:
    hasty.cooled("a")
    waiting = hasty.send(line("a", 2), line("b", 0))
    hasty.bucket.wait_for_reads(1)
    began = time.monotonic()
    hasty.store.close()
    assert time.monotonic() - began < LIMIT_S + 2
    cold, other = waiting.result(0)
    assert refused(cold).code == "cold_away"
    assert other.error is None


def test_closing_commits_what_comes_in_time(world: Slow) -> None:
    world.cooled("a")
    waiting = world.send(line("a", 2))
    world.bucket.wait_for_reads(1)
    with ThreadPoolExecutor(1) as pool:
        closing = pool.submit(world.store.close)
        time.sleep(0.2)
        assert not closing.done()
        world.bucket.go_on()
        closing.result(10)
    assert waiting.result(0)[0].version == 3


# -- what happens meanwhile --------------------------------------------------------


def test_a_session_that_a_job_brings_back_meanwhile_is_not_woken_twice(
    world: Slow,
) -> None:
    world.cooled("a")
    waiting = world.send(line("a", 2))
    world.bucket.wait_for_reads(1)
    key = SessionName("acme", "a").key()
    quick = world.packs(world.bucket.objects)
    (cold,) = world.store.warm.located([key])
    assert isinstance(cold, ColdHead)
    fetched = {key: (cold, decode_image(quick.read(cold.pointer)))}
    now_ms = world.clock.now_ms()
    task = world.store.engine.call(lambda: world.moves.warm(fetched, now_ms))
    assert task.result(5) == [key]
    # It needs no bucket any more.
    assert waiting.result(5)[0].version == 3
    later = world.store.publish([line("a", 3)])[0]
    assert later.version == 4
    world.bucket.go_on()
    assert turn_ids(world, "a") == ["t0", "t1", "t2", "t3"]
    assert world.store.verify()["bad"] == []


def test_a_pack_that_is_rewritten_meanwhile_is_asked_for_anew(world: Slow) -> None:
    world.cooled("a")
    key = SessionName("acme", "a").key()
    (cold,) = world.store.warm.located([key])
    assert isinstance(cold, ColdHead)
    waiting = world.send(line("a", 2))
    world.bucket.wait_for_reads(1)
    quick = world.packs(world.bucket.objects)
    quick.fence(99)
    old = cold.pointer
    data = quick.read(old)
    copy = EncodedImage(key, old.incarnation, old.version, data, old.front_bytes)
    (new,) = quick.write([copy])
    moved = {key: (old, new)}
    task = world.store.engine.call(lambda: world.moves.repoint(moved))
    assert task.result(5) == [key]
    world.bucket.go_on()
    assert waiting.result(10)[0].version == 3
    assert world.bucket.reads == [old.pack, new.pack]


def test_a_session_that_is_erased_while_turns_wait_stays_erased(world: Slow) -> None:
    world.cooled("a")
    waiting = world.send(line("a", 2, "the secret of a"))
    world.bucket.wait_for_reads(1)
    with ThreadPoolExecutor(1) as pool:
        erasing = pool.submit(world.store.erase, "acme", session="a")
        time.sleep(0.2)
        assert not erasing.done()
        world.bucket.go_on()
        assert erasing.result(WAIT_S)["found_after"] == 0
    assert waiting.result(10)[0].error is None
    with pytest.raises(NotFoundError):
        world.store.state("acme", "a")
    assert not any(b"secret" in record for record in log_records(world.store))
    assert world.store.publish([line("a", 9)])[0].version == 1


def test_sealing_what_is_idle_never_asks_the_bucket(world: Slow) -> None:
    """Its frames were counted before it went cold; the owner must not look there."""
    world.cooled("a", "b")
    world.clock.advance(1000 * world.settings.seal_after_s + 1)
    assert world.store.publish([line("c", 0)])[0].error is None
    world.store.engine.call(world.store.engine.sealer.seal_idle).result(5)
    assert world.bucket.reads == []


# -- kill -9 ----------------------------------------------------------------------

PUBLISHER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from support.commands import line
from support.slow_bucket import Slow
world = Slow(Path(sys.argv[1]), cold_wait_s=600, fsync="batch")
world.cooled("a")
world.send(line("a", 2), line("mixed", 0))
world.bucket.wait_for_reads(1)
for at in range(1_000_000):
    (answer,) = world.store.publish([line("b", at)])
    print(at, answer.version, flush=True)
"""


def test_a_kill_while_turns_wait_loses_nothing_acknowledged(tmp_path: Path) -> None:
    tests = Path(__file__).parents[1]
    with subprocess.Popen(
        [sys.executable, "-c", PUBLISHER, str(tmp_path), str(tests)],
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        told = [process.stdout.readline().split() for _ in range(100)]
        process.kill()
        told += [row.split() for row in process.stdout.read().splitlines()]
    acknowledged = [int(row[0]) for row in told if len(row) == 2]
    assert len(acknowledged) >= 100

    with Slow(tmp_path) as world:
        kept = turn_ids(world, "b")
        assert kept[: len(acknowledged)] == [f"t{at}" for at in acknowledged]
        assert len(kept) <= len(acknowledged) + 1
        assert turn_ids(world, "a") == ["t0", "t1"]
        assert world.store.verify()["bad"] == []
        again = world.store.publish([line("a", 2), line("mixed", 0)])
        assert [answer.version for answer in again] == [3, 1]
