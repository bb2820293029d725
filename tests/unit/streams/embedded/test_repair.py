"""What is damaged or fell behind is rebuilt from the log, to the same digest (B6)."""

import random
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from turnstate.agents.ports import Record
from turnstate.agents.session.rebuild import rebuild
from turnstate.schemas.dialogue.head import digest
from turnstate.schemas.dialogue.phases import default_graph
from turnstate.schemas.errors import CorruptDataError
from turnstate.schemas.ids import SessionName
from turnstate.schemas.position import Position
from turnstate.storage.repair import contiguous
from turnstate.storage.stored_head import encode_stored_head
from turnstate.storage.warm.tables import (
    FRAMES,
    HEADS,
    INDEX,
    SEGMENTS,
    after_prefix,
    session_prefix,
)
from turnstate.streams.clock import SystemClock
from turnstate.streams.embedded import upkeep
from turnstate.streams.embedded.rebuild_store import rebuild_store
from turnstate.streams.embedded.repair import bring_up_to_date
from turnstate.streams.embedded.store import STORE_FOLDER, EmbeddedStore
from turnstate.streams.settings import Settings

CONVERGENCE_S = 0.2
"""B6: a session that fell behind is up to date again within 200 ms."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    """Give a store with every kind of operation in it."""
    with EmbeddedStore(Settings(data=tmp_path / "data")) as opened:
        fill(opened)
        yield opened


def turn(session: str, number: int, **fields: object) -> bytes:
    """Return a turn as JSON."""
    body = {"turn_id": f"id{number}", "role": "user", "content": f"turn {number}"}
    return msgspec.json.encode({"tenant": "t", "session": session, **body, **fields})


def key_of(session: str) -> bytes:
    """Return a session's key."""
    return SessionName("t", session).key()


def fill(store: EmbeddedStore) -> None:
    """Publish turns, duplicates, conflicts, operations; seal in the middle."""
    for number in range(40):
        store.publish([turn(f"s{at}", number) for at in range(4)])
        if number == 20:
            upkeep.seal(store)
            store.publish([turn("gone", 1)])
            upkeep.erase(store, "t", session="gone")
            store.publish([turn("gone", 2)])
    store.publish([turn("s1", 5), turn("s1", 6, content="other"), b"no turn"])
    store.publish([turn("s2", 90, if_version=3), turn("s2", 91, parent="unknown")])
    redact = {"tenant": "t", "session": "s1", "role": "system", "op": "redact"}
    store.publish([msgspec.json.encode({**redact, "target": "id7"})])
    store.rollback("t", "s1", 10)
    store.fork("t", "s2", "idea", version=12)


def digests(store: EmbeddedStore) -> dict[str, str]:
    """Return every session's digest."""
    return {row["session"]: row["digest"] for row in store.sessions()}


def lose(store: EmbeddedStore, session: str, *names: str) -> None:
    """Delete rows of a session behind the engine's back."""
    key = key_of(session)
    batch = store.warm.batch()
    for name in names:
        if name == HEADS:
            batch.delete(HEADS, key)
        else:
            prefix = session_prefix(key)
            batch.delete_range(name, prefix, after_prefix(prefix))
    store.warm.write(batch, sync=False)
    store.engine.hot.drop(key)


EVERYTHING = (HEADS, FRAMES, SEGMENTS, INDEX)


@pytest.mark.parametrize(
    "lost", [(HEADS,), (FRAMES,), (SEGMENTS,), (INDEX,), (SEGMENTS, HEADS), EVERYTHING]
)
def test_lost_rows_come_back(store: EmbeddedStore, lost: tuple[str, ...]) -> None:
    """Whatever is lost of a session, the log gives it again, to the digest."""
    before = digests(store)
    for session in ("s1", "s2", "gone"):
        lose(store, session, *lost)
    named = {row["session"] for row in upkeep.verify(store)["bad"]}
    assert {"s1", "s2"} <= named
    report = upkeep.repair(store)
    assert (report["failed"], report["bad"]) == ([], [])
    assert {row["session"] for row in report["repaired"]} == named
    assert digests(store) == before
    store.publish([turn("s1", 400), turn("s1", 5)])
    assert upkeep.verify(store)["bad"] == []
    assert upkeep.repair(store)["repaired"] == []


def rolled_back(store: EmbeddedStore, session: str, turns: int) -> None:
    """Put a session back to what it was some batches ago, as if they were lost."""
    key = key_of(session)
    end = store.engine.log.end
    records = [
        Record(raw, Position(store.engine.log.identity, 0, offset))
        for offset, raw in store.engine.log.read()
        if b'"session":"%b"' % session.encode() in raw and offset < end
    ]
    old = rebuild(
        key,
        records[:turns],
        graph=default_graph(),
        log_name="log",
        clock=SystemClock(),
    )
    lose(store, session, *EVERYTHING)
    batch = store.warm.batch()
    for change in old.changes:
        batch.stage(change)
    store.warm.write(batch, sync=False)


def test_a_session_that_fell_behind_is_brought_up_to_date(store: EmbeddedStore) -> None:
    """From the recorded position on: in time, in order, and only once."""
    before = digests(store)
    rolled_back(store, "s1", 25)
    assert digests(store) != before
    bad = upkeep.verify(store)["bad"]
    assert [(row["session"], "behind" in row["why"]) for row in bad] == [("s1", True)]
    begun = time.monotonic()
    keys = [key_of("s1")]
    added = store.engine.call(lambda: bring_up_to_date(store.engine, keys)).result()
    assert time.monotonic() - begun < CONVERGENCE_S
    assert added == 40 + 2 - 25
    again = store.engine.call(lambda: bring_up_to_date(store.engine, keys)).result()
    assert again == 0
    assert digests(store) == before
    assert upkeep.verify(store)["bad"] == []


def test_repair_brings_up_to_date_too(store: EmbeddedStore) -> None:
    """The command finds it by itself."""
    before = digests(store)
    rolled_back(store, "s2", 10)
    assert [row["session"] for row in upkeep.repair(store)["repaired"]] == ["s2"]
    assert digests(store) == before


def records(count: int) -> list[Record]:
    """Return the records of a plain session."""
    return [
        Record(turn("x", number), Position(b"log", 0, number))
        for number in range(count)
    ]


def rebuilt(given: list[Record]) -> bytes:
    """Return the digest that some records rebuild to."""
    session = rebuild(
        key_of("x"), given, graph=default_graph(), log_name="log", clock=SystemClock()
    )
    assert session.stored is not None
    return digest(session.stored.head)


@pytest.mark.parametrize("seed", range(20))
def test_disorder_is_refused(seed: int) -> None:
    """A record that comes too early, too late or twice never changes a state."""
    given = records(150)
    assert rebuilt(given) == rebuilt(list(given))
    chance = random.Random(seed)
    at = chance.randrange(1, 150)
    moved = [*given[:at], given[chance.randrange(at)], *given[at:]]
    with pytest.raises(CorruptDataError):
        rebuilt(moved)
    with pytest.raises(CorruptDataError):
        rebuilt(given[:at][::-1] + given[at:] if at > 1 else given[::-1])


def test_a_hole_in_the_log_is_refused() -> None:
    """No offset is skipped, at the beginning, inside or at the end."""
    whole = [(offset, b"") for offset in range(3, 9)]
    assert list(contiguous(whole, 3, 9)) == whole
    for begin, end, entries in (
        (2, 9, whole),
        (3, 10, whole),
        (3, 9, whole[:2] + whole[3:]),
        (3, 9, []),
    ):
        with pytest.raises(CorruptDataError):
            list(contiguous(entries, begin, end))


def test_a_log_that_says_otherwise_is_not_followed(store: EmbeddedStore) -> None:
    """Where head and log disagree, the session is left alone and named."""
    key = key_of("s1")
    (stored,) = store.warm.heads([key])
    assert stored is not None
    rolled_back(store, "s1", 25)
    (older,) = store.warm.heads([key])
    assert older is not None
    forged = msgspec.structs.replace(older, position=stored.position)
    batch = store.warm.batch()
    batch.put(HEADS, key, encode_stored_head(forged))
    prefix = session_prefix(key)
    batch.delete_range(INDEX, prefix, after_prefix(prefix))
    store.warm.write(batch, sync=False)
    report = upkeep.repair(store)
    assert [row["session"] for row in report["failed"]] == ["s1"]
    assert "another state" in report["failed"][0]["why"]


def test_a_whole_store_is_rebuilt(tmp_path: Path) -> None:
    """From the log alone: equal digests and letters, the old folder kept."""
    settings = Settings(data=tmp_path / "data")
    with EmbeddedStore(settings) as store:
        fill(store)
        before, letters = digests(store), upkeep.dead_letters(store)
        end = store.engine.log.end
    folder = settings.data / STORE_FOLDER
    report = rebuild_store(settings, default_graph(), SystemClock(), folder)
    assert Path(report["damaged"]).is_dir()
    with EmbeddedStore(settings) as store:
        assert digests(store) == before
        assert upkeep.dead_letters(store) == letters
        assert store.engine.log.end == end
        assert upkeep.verify(store)["bad"] == []
        store.publish([turn("s1", 500)])
        assert upkeep.verify(store)["bad"] == []
