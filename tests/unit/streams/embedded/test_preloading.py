"""Sessions that come back into use are read ahead: few at a time, and not for scans."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.commands import line
from turnstate.schemas.errors import InvalidInputError
from turnstate.schemas.ids import SessionName
from turnstate.streams.clock import VirtualClock
from turnstate.streams.embedded.owner import OwnedStore
from turnstate.streams.embedded.preloading import PRELOADED_MAX
from turnstate.streams.settings import Settings

MANY = 3 * PRELOADED_MAX


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    with OwnedStore(Settings(data=tmp_path), serving=False) as store:
        store.publish([line(str(number), 1) for number in range(MANY)])
    return Settings(data=tmp_path)


@pytest.fixture
def store(settings: Settings) -> Iterator[OwnedStore]:
    """Give a store with sessions of which none is hot."""
    with OwnedStore(settings, serving=False) as opened:
        yield opened


def loaded(store: OwnedStore) -> int:
    preloader = store.engine.preloading.preloader
    assert preloader is not None
    preloader.wait()
    assert preloader.failed == 0
    return preloader.loaded


def test_a_session_that_is_spoken_in_again_is_read_ahead_once(
    store: OwnedStore,
) -> None:
    store.publish([line("1", 2)])
    assert loaded(store) == 1
    store.publish([line("1", 3)])
    assert loaded(store) == 1


def test_one_that_begins_has_nothing_to_be_read(store: OwnedStore) -> None:
    store.publish([line("new", 1)])
    assert loaded(store) == 0


def test_catching_up_reads_nothing_ahead(store: OwnedStore) -> None:
    store.publish([line(str(number), 2) for number in range(MANY)])
    assert loaded(store) == 0


def test_the_first_read_of_a_warm_session_asks_for_its_rows(store: OwnedStore) -> None:
    assert store.state("acme", "7")["tier"] == "warm"
    assert loaded(store) == 1
    store.turns("acme", "7")
    assert loaded(store) == 1


def test_a_walk_over_all_sessions_reads_nothing_ahead(store: OwnedStore) -> None:
    assert len(list(store.sessions())) == MANY
    store.verify()
    assert loaded(store) == 0


def test_it_can_be_turned_off(settings: Settings) -> None:
    off = Settings.from_env({"TURNSTATE_PRELOAD": "off"}, data=settings.data)
    with OwnedStore(off, serving=False) as store:
        store.publish([line("1", 2)])
        store.state("acme", "2")
        assert store.engine.preloading.preloader is None
    with pytest.raises(InvalidInputError, match="preload"):
        Settings(preload="perhaps")


def test_nothing_is_asked_for_after_the_end(store: OwnedStore) -> None:
    store.close()
    store.engine.preloading.first_read(SessionName("acme", "1").key())
    assert loaded(store) == 0


def test_hot_learns_what_readers_use_and_nothing_of_scans(tmp_path: Path) -> None:
    """LRU-K counts a read of a hot session as it counts a turn."""
    clock = VirtualClock(1_000_000)
    key = SessionName("acme", "a").key()
    with OwnedStore(Settings(data=tmp_path), clock, serving=False) as store:
        store.publish([line("a", 1)])
        first = store.engine.hot.accesses(key)
        clock.advance(60_000)
        list(store.sessions())
        store.publish([line("b", 1)])
        assert store.engine.hot.accesses(key) == first
        assert store.state("acme", "a")["tier"] == "hot"
        store.publish([line("b", 2)])
        assert len(store.engine.hot.accesses(key).times_ms) == 2
