"""What a worker answers: only what it owns, only while it is fresh, in pages."""

import threading
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from support.told import turn
from turnstate.agents.ports import Record
from turnstate.schemas.dialogue.phases import default_graph
from turnstate.schemas.errors import NotFoundError, TurnstateError, UnavailableError
from turnstate.schemas.ids import SessionName
from turnstate.schemas.position import Position
from turnstate.storage.warm.tables import FRAMES, HEADS
from turnstate.streams.clock import SystemClock
from turnstate.streams.kafka import fresh
from turnstate.streams.kafka.membership import MembershipLease
from turnstate.streams.kafka.partition import Partition, PartitionSizes
from turnstate.streams.kafka.queries import (
    NoQuery,
    PageQuery,
    ReachQuery,
    SessionsQuery,
    StateQuery,
    VerifyQuery,
)
from turnstate.streams.kafka.restore import RestoreProgress
from turnstate.streams.kafka.worker_reads import WorkerReads

LOG = bytes(range(16))
SESSIONS = [f"s{number:02}" for number in range(12)]


class Owning:
    """A worker with one partition, without Kafka."""

    def __init__(self, folder: Path) -> None:
        self.partition = Partition(
            folder,
            0,
            partitions=1,
            changelog_id=bytes(16),
            sizes=PartitionSizes(1 << 20, 8 << 20, 3600),
            log_name="log",
            graph=default_graph(),
            clock=SystemClock(),
        )
        self.partitions = {0: self.partition}
        self.restoring: RestoreProgress | None = None
        self.membership = MembershipLease(3600.0)
        self.membership.renew(self.membership._now())
        self.offset = self.changelog = 0

    def reads(self) -> WorkerReads:
        return WorkerReads(self, partitions=1, log=LOG, calmly=lambda call: call())

    def take_over(self, generation: int) -> None:
        """Restore, as after a rebalance, from a changelog with no more than a claim."""
        claim = self.partition.claim(generation)
        self.partition.apply([(self.changelog, claim.value)])
        self.changelog += 1
        assert self.partition.restored(changed=False)

    def fold(self, *turns: bytes) -> None:
        """Fold turns as a checkpoint does."""
        records = [
            Record(raw, Position(LOG, 0, self.offset + at, 0))
            for at, raw in enumerate(turns)
        ]
        self.offset += len(turns)
        folded = self.partition.agent.fold(records)
        batch = self.partition.staged(folded)
        batch.mark(self.offset - 1, 0)
        self.partition.write(batch, self.changelog)
        self.changelog += 1
        self.partition.committed(folded, self.offset - 1, 0)


@pytest.fixture(name="owner")
def fixture_owner(tmp_path: Path) -> Generator[Owning]:
    owner = Owning(tmp_path / "0" / "store")
    owner.partition.restored(changed=False)
    owner.fold(*(turn(at, session) for session in SESSIONS for at in range(3)))
    yield owner
    owner.partition.close()


def state(owner: Owning, session: str = "s00") -> Any:
    return owner.reads().state(StateQuery(tenant="t", session=session))


def code_of(call: Callable[[], Any]) -> str:
    with pytest.raises(UnavailableError) as caught:
        call()
    return caught.value.code


def test_an_answer_says_what_it_reflects(owner: Owning) -> None:
    document = state(owner)
    assert document["version"] == 3
    assert document["reflects"] == f"{LOG.hex()}:0:{owner.offset - 1}"
    (row,) = owner.reads().positions(NoQuery())["partitions"]
    assert (row["partition"], row["fresh"]) == (0, True)
    assert row["reflects"] == document["reflects"]


def test_nothing_folded_reflects_the_beginning(tmp_path: Path) -> None:
    owner = Owning(tmp_path / "store")
    owner.partition.restored(changed=False)
    page = owner.reads().sessions(SessionsQuery(partition=0))
    assert page == {"rows": [], "next": None, "reflects": "0"}
    owner.partition.close()


def test_a_partition_that_is_not_ready_is_not_read(owner: Owning) -> None:
    owner.partition.is_fresh = False
    assert code_of(lambda: state(owner)) == "not_fresh"
    owner.restoring = RestoreProgress(30, 120, 1.0)
    with pytest.raises(UnavailableError, match="being restored, 25 % done"):
        state(owner)
    owner.partition.is_fresh = True
    owner.membership.end()
    assert code_of(lambda: state(owner)) == "not_fresh"
    (row,) = owner.reads().positions(NoQuery())["partitions"]
    assert not row["fresh"]
    del owner.partitions[0]
    assert code_of(lambda: state(owner)) == "not_here"


def test_what_was_read_while_it_moved_is_not_answered(owner: Owning) -> None:
    head = owner.partition.head

    def meanwhile(key: bytes) -> Any:
        owner.partition.is_fresh = False
        return head(key)

    owner.partition.head = meanwhile  # type: ignore[method-assign]
    assert code_of(lambda: state(owner)) == "not_fresh"
    owner.partition.is_fresh = True

    generations = iter(range(2, 9))

    def restored_meanwhile(key: bytes) -> Any:
        owner.take_over(next(generations))
        return head(key)

    owner.partition.head = restored_meanwhile  # type: ignore[method-assign]
    assert code_of(lambda: state(owner)) == "not_fresh"
    # Nor is an error that may come from a store half restored.
    assert code_of(lambda: state(owner, "nobody")) == "not_fresh"
    owner.partition.head = head  # type: ignore[method-assign]
    with pytest.raises(NotFoundError):
        state(owner, "nobody")


def test_a_store_waits_for_its_readers(owner: Owning) -> None:
    reading, go_on = threading.Event(), threading.Event()
    codes: list[str] = []

    def read() -> None:
        try:
            with owner.reads().parts.fresh(0):
                reading.set()
                go_on.wait(10)
        except TurnstateError as error:
            codes.append(error.code)

    reader = threading.Thread(target=read)
    reader.start()
    assert reading.wait(10)
    assert not owner.partition.gate.shut(0.01)
    assert code_of(lambda: state(owner)) == "not_fresh"
    closing = threading.Thread(target=owner.partition.close)
    closing.start()
    closing.join(0.1)
    assert closing.is_alive()
    go_on.set()
    closing.join(10)
    reader.join(10)
    assert codes == ["not_fresh"]


def test_too_many_readers_are_told_so(
    owner: Owning, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fresh, "WAIT_S", 0.01)
    reads = owner.reads()
    with reads.parts.fresh(0), reads.parts.fresh(0):
        assert code_of(lambda: reads.stats(PageQuery(partition=0))) == "busy"


def pages(ask: Callable[[dict[str, Any]], Any]) -> list[Any]:
    found: list[Any] = []
    place: dict[str, Any] = {}
    while True:
        page = ask(place)
        found.append(page)
        following = page["next"]
        if following is None:
            return found
        if isinstance(following, bytes):
            place = {"after": following}
        else:
            place = {"table": following[0], "after": following[1]}


def test_pages_hold_each_session_once(
    owner: Owning, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = owner.reads()
    found = pages(
        lambda place: reads.sessions(SessionsQuery(partition=0, limit=5, **place))
    )
    assert [len(page["rows"]) for page in found] == [5, 5, 2]
    rows = [row["session"] for page in found for row in page["rows"]]
    assert rows == SESSIONS
    for query, wanted in (
        (SessionsQuery(partition=0, tenant="t", prefix="s1"), ["s10", "s11"]),
        (SessionsQuery(partition=0, prefix="s1"), ["s10", "s11"]),
        (SessionsQuery(partition=0, tenant="other"), []),
        (SessionsQuery(partition=0, tier="hot"), SESSIONS),
        (SessionsQuery(partition=0, tier="warm"), []),
    ):
        page = reads.sessions(query)
        assert [row["session"] for row in page["rows"]] == wanted
    # However little time there is, each page goes on.
    monkeypatch.setattr(fresh, "SLICE_S", -1.0)
    found = pages(lambda place: reads.stats(PageQuery(partition=0, **place)))
    assert len(found) > len(SESSIONS)
    assert sum(page["turns"] for page in found) == 36
    assert [page for page in found if "state_bytes" in page] == found[:1]
    found = pages(lambda place: reads.verify(VerifyQuery(partition=0, **place)))
    assert sum(page["sessions"] for page in found) == len(SESSIONS)
    assert sum(page["versions"] for page in found) == 36
    assert not any(page["bad"] for page in found)


def test_damage_is_found_wherever_it_is(owner: Owning) -> None:
    store = owner.partition.store
    batch = store.batch()
    batch.delete(HEADS, SessionName("t", "s03").key())
    at, frame = next(iter(store.rows(FRAMES)))
    batch.put(FRAMES, at, frame[:-1] + bytes([frame[-1] ^ 1]))
    store.write(batch, sync=False)
    reads = owner.reads()
    found = pages(lambda place: reads.verify(VerifyQuery(partition=0, **place)))
    bad = [fault for page in found for fault in page["bad"]]
    assert [fault["session"] for fault in bad] == ["s00", "s03"]
    assert bad[1]["why"] == "there are rows of the session and no head"
    assert sum(page["sessions"] for page in found) == len(SESSIONS)


def test_reach_waits_for_a_version_and_for_a_place_in_the_log(owner: Owning) -> None:
    reads = owner.reads()

    def reach(at_least: int | str, timeout_ms: int = 0) -> Any:
        query = ReachQuery(
            tenant="t", session="s00", at_least=at_least, timeout_ms=timeout_ms
        )
        return reads.reach(query)

    for at_least in (3, "1-3", f"{LOG.hex()}:0:{owner.offset - 1}"):
        assert reach(at_least)["reached"]
    for at_least in (4, "1-4", f"{LOG.hex()}:0:{owner.offset}"):
        assert code_of(partial(reach, at_least)) == "not_yet"
    later = threading.Timer(0.1, lambda: owner.fold(turn(9, "s00")))
    later.start()
    assert reach(4, timeout_ms=10_000)["reached"]
    later.join()
