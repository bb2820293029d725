"""Asking ahead fills the block cache, is bounded, and never gets in the way."""

import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from turnstate.agents.ports import Record
from turnstate.agents.session.rebuild import rebuild
from turnstate.schemas.dialogue.phases import default_graph
from turnstate.schemas.errors import CorruptDataError
from turnstate.schemas.ids import SessionName
from turnstate.schemas.position import Position
from turnstate.storage.stored_head import StoredHead
from turnstate.storage.warm.cold_rows import ColdHead
from turnstate.storage.warm.preload import Preloader
from turnstate.storage.warm.rocksdb import WarmStore
from turnstate.storage.warm.tables import FRAMES
from turnstate.streams.clock import VirtualClock

KEY = SessionName("t", "s").key()
TURNS = 200


class Damaged(WarmStore):
    """A store in which no session can be read."""

    def located(self, keys: object) -> list[StoredHead | ColdHead | None]:
        raise CorruptDataError("every row is damaged")


class Slow(WarmStore):
    """A store that reads when it is let."""

    let = threading.Event()

    def located(self, keys: object) -> list[StoredHead | ColdHead | None]:
        self.let.wait(10)
        return [None]


def filled(path: Path) -> None:
    """Make a store with a session whose rows lie in files."""
    turns = [
        Record(
            msgspec.json.encode(
                {"tenant": "t", "session": "s", "role": "user", "content": "x" * 500}
            ),
            Position(b"log", 0, at),
        )
        for at in range(TURNS)
    ]
    session = rebuild(
        KEY, turns, graph=default_graph(), log_name="log", clock=VirtualClock(1)
    )
    store = WarmStore(path, log_name="log")
    for change in session.changes:
        store.commit([change])
    store.flush()
    store.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[WarmStore]:
    filled(tmp_path)
    found = WarmStore(tmp_path, log_name="log")
    yield found
    found.close()


def cached_bytes(store: WarmStore) -> int:
    found = store._tables[FRAMES].property_int_value("rocksdb.block-cache-usage")
    assert isinstance(found, int)
    return found


def test_a_read_finds_what_was_asked_for_ahead(store: WarmStore) -> None:
    """The preload reads blocks from the disk; the read after it reads none."""
    before = cached_bytes(store)
    preloader = Preloader(store)
    assert preloader.ask([KEY, KEY]) == 1
    preloader.wait()
    ahead = cached_bytes(store)
    (stored,) = store.heads([KEY])
    assert stored is not None
    assert list(store.frames(KEY, 1, TURNS - 10))

    assert before < ahead
    assert cached_bytes(store) == ahead
    assert (preloader.loaded, preloader.failed) == (1, 0)
    preloader.close()


def test_a_session_that_is_not_here_is_no_failure(store: WarmStore) -> None:
    preloader = Preloader(store)
    assert preloader.ask([b"\0\1tnobody"]) == 1
    preloader.wait()

    assert (preloader.loaded, preloader.failed) == (0, 0)
    preloader.close()


def test_damage_is_left_to_who_reads(tmp_path: Path) -> None:
    damaged = Damaged(tmp_path, log_name="log")
    preloader = Preloader(damaged)
    preloader.ask([KEY])
    preloader.wait()
    preloader.close()
    damaged.close()

    assert (preloader.loaded, preloader.failed) == (0, 1)


def test_wishes_are_bounded_and_dropped_at_the_end(tmp_path: Path) -> None:
    slow = Slow(tmp_path, log_name="log")
    preloader = Preloader(slow, waiting_max=3)
    assert preloader.ask(b"\0\1t%d" % number for number in range(10)) == 3
    assert preloader.ask([b"\0\1tmore"]) == 0
    Slow.let.set()
    preloader.close()
    preloader.close()
    slow.close()

    assert preloader.failed == 0
