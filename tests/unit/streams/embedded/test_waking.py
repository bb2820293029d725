"""What waits for cold sessions: states, limits by a clock that a test turns."""

from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from support.commands import line
from support.cooling import Cooling
from turnstate.agents.session.step import Answer
from turnstate.schemas.admission import Verdict
from turnstate.schemas.errors import CorruptDataError, UnavailableError
from turnstate.schemas.ids import SessionName
from turnstate.storage.session_image import SessionImage
from turnstate.storage.warm.cold_rows import ColdHead
from turnstate.storage.warm.rocksdb import WarmStore
from turnstate.streams.embedded.submissions import Submission, settled_letters
from turnstate.streams.embedded.waking import (
    FETCHED_MAX,
    LATE_MAX,
    AwaitedError,
    Waking,
)

LIMIT_S = 5.0
SESSIONS = [f"s{number:02}" for number in range(40)]


class Bench:
    """Waking over a store whose sessions are cold, with fetches by hand."""

    def __init__(self, store: WarmStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store = store
        self.now_s = 100.0
        self.nudged = self.refused = 0
        self.asked: dict[bytes, Future[SessionImage]] = {}
        self.order: list[bytes] = []
        self.images, _ = store.images([key_of(name) for name in SESSIONS])
        monkeypatch.setattr(store, "fetching", self.fetching)
        self.waking = Waking(
            store,
            nudge=self.nudge,
            refused=self.refuse,
            wait_s=LIMIT_S,
            now=lambda: self.now_s,
        )

    def nudge(self) -> None:
        self.nudged += 1

    def refuse(self, turns: int) -> None:
        self.refused += turns

    def fetching(self, key: bytes, cold: ColdHead) -> "Future[SessionImage]":
        del cold
        self.order.append(key)
        return self.asked.setdefault(key, Future())

    def come(self, session: str) -> None:
        """Let a fetch end."""
        key = key_of(session)
        self.asked.pop(key).set_result(self.images[key])

    def park(self, *sessions: str) -> "Future[list[Answer]]":
        """Submit a turn of each session, as a fold does that lacks them."""
        done: Future[list[Answer]] = Future()
        keys = [key_of(session) for session in sessions]
        records = [line(session, 9) for session in sessions]
        _, failed = self.waking.images(keys)
        answers = [Answer(Verdict.REFUSED, 0, None, failed[key]) for key in keys]
        assert self.waking.lacked
        submission = Submission(records, 0, False, {}, (), done)
        assert self.waking.park(submission, answers) == len(sessions)
        return done

    def take(self, turns_max: int = 1000) -> list[bytes]:
        """Return the records that may be folded now."""
        group: list[Submission] = []
        self.waking.take(group, turns_max)
        return [record for each in group for record in each.records]


@pytest.fixture(name="bench")
def fixture_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    with Cooling(tmp_path) as world:
        world.publish([line(session, 0) for session in SESSIONS])
        world.cool()
        yield Bench(world.store.warm, monkeypatch)


def key_of(session: str) -> bytes:
    return SessionName("acme", session).key()


def error_of(done: "Future[list[Answer]]", at: int = 0) -> UnavailableError:
    error = done.result(0)[at].error
    assert isinstance(error, UnavailableError)
    assert not isinstance(error, AwaitedError)
    return error


def test_what_has_come_is_ready_for_one_group(bench: Bench) -> None:
    bench.park("s00")
    assert bench.take() == []
    assert bench.nudged == 0
    bench.come("s00")
    assert bench.nudged == 1
    assert bench.take() == [line("s00", 9)]
    found, failed = bench.waking.images([key_of("s00")])
    assert (list(found), failed) == ([key_of("s00")], {})
    assert bench.take() == []
    found, failed = bench.waking.images([key_of("s00")])
    assert (found, list(failed)) == ({}, [key_of("s00")])


def test_so_many_are_fetched_or_in_memory_and_no_more(bench: Bench) -> None:
    bench.park(*SESSIONS)
    bench.take()
    assert len(bench.asked) == FETCHED_MAX
    for session in SESSIONS[:FETCHED_MAX]:
        bench.come(session)
    # Only some of them fit into the group; the others stay in memory.
    assert len(bench.take(turns_max=3)) == 3
    assert len(bench.asked) == 3
    assert bench.waking.due_s(60.0) == 0.0
    assert len(bench.take()) == FETCHED_MAX - 3
    assert len(bench.asked) == FETCHED_MAX


def test_one_that_does_not_come_is_refused_though_others_come(bench: Bench) -> None:
    done = bench.park(*SESSIONS)
    bench.take()
    for session in SESSIONS[1:]:
        assert bench.refused == int(bench.now_s > 105.0)
        bench.now_s += 0.2
        bench.come(session)
        bench.take()
    # The last ones came after eight seconds, most of them in the queue.
    assert bench.now_s > 107
    assert bench.refused == 1
    assert not bench.waking
    assert not done.done(), "the group with the others is not committed"


def test_the_queue_is_given_up_when_nothing_comes(bench: Bench) -> None:
    done = bench.park(*SESSIONS)
    bench.take()
    bench.now_s += LIMIT_S - 0.5
    assert bench.waking.due_s(60.0) == pytest.approx(0.5)
    bench.come("s00")
    assert bench.take() == [line("s00", 9)]
    bench.now_s += 1.0
    bench.take()
    # Those under way are; those in the queue had hope half a second ago.
    assert bench.refused == FETCHED_MAX - 1
    bench.now_s += LIMIT_S
    bench.take()
    bench.now_s += LIMIT_S
    bench.take()
    assert bench.refused == len(SESSIONS) - 1
    assert not bench.waking
    assert not done.done()


def test_every_turn_is_told_that_the_tier_is_away(bench: Bench) -> None:
    first, second = bench.park("s00", "s01", "s00"), bench.park("s01")
    bench.take()
    bench.now_s += LIMIT_S
    bench.take()
    assert bench.refused == 4
    for done in (first, second):
        for at in range(len(done.result(0))):
            assert "the cold tier did not answer within 5 s" in str(error_of(done, at))
            assert error_of(done, at).code == "cold_away"


def test_what_comes_late_is_kept_for_who_tries_again_and_not_for_ever(
    bench: Bench,
) -> None:
    for session in SESSIONS[: LATE_MAX + 4]:
        bench.park(session)
        bench.take()
        bench.now_s += LIMIT_S
        bench.take()
    assert bench.refused == LATE_MAX + 4
    late = key_of("s10")
    bench.come("s10")
    bench.park("s10")
    bench.order.clear()
    bench.take()
    assert bench.take() == [line("s10", 9)]
    assert late not in bench.order
    bench.park("s00")
    bench.take()
    assert bench.order == [key_of("s00")], "the oldest was forgotten"


def test_a_failure_is_told_and_the_next_try_asks_anew(bench: Bench) -> None:
    done = bench.park("s00")
    bench.take()
    bench.asked.pop(key_of("s00")).set_exception(CorruptDataError("torn"))
    bench.take()
    assert error_of(done).code == "cold_damaged"
    bench.park("s00")
    bench.take()
    bench.come("s00")
    assert bench.take() == [line("s00", 9)]


def test_a_fetch_that_cannot_be_begun_is_told(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def behind(key: bytes, cold: ColdHead) -> "Future[SessionImage]":
        del key, cold
        raise UnavailableError("the cold tier is behind", code="cold_away")

    monkeypatch.setattr(bench.store, "fetching", behind)
    done = bench.park("s00")
    assert bench.take() == []
    assert "behind" in str(error_of(done))
    assert bench.refused == 1
    assert not bench.waking


def test_the_end_gives_all_of_them_one_more_limit(bench: Bench) -> None:
    done = bench.park(*SESSIONS)
    bench.take()
    bench.waking.end()
    for at in range(4):
        bench.now_s += 1.0
        bench.come(SESSIONS[at])
        bench.take()
    bench.now_s += 1.0
    bench.take()
    assert not bench.waking
    assert bench.refused == len(SESSIONS) - 4
    assert not done.done()


def test_what_is_drained_is_everything(bench: Bench) -> None:
    done = bench.park("s00", "s01")
    bench.take()
    for part in bench.waking.drained():
        part.done.set_exception(UnavailableError("stopped"))
    with pytest.raises(UnavailableError, match="stopped"):
        done.result(0)
    assert not bench.waking


def test_letters_are_settled_only_by_what_is_not_sent_again() -> None:
    def submission(*settles: bytes) -> Submission:
        return Submission([b"x"], 0, True, {}, settles, Future())

    good = Answer(Verdict.ACCEPTED, 1, "t", None)
    away = Answer(Verdict.REFUSED, 0, None, UnavailableError("away"))
    wrong = Answer(Verdict.REFUSED, 0, None, CorruptDataError("no turn"))
    group = [submission(), submission(b"1"), submission(b"2"), submission(b"3")]
    assert settled_letters(group, [away, good, away, wrong]) == [b"1", b"3"]
