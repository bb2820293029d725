"""Followers of an embedded store hear what sessions became, and what was erased."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.told import turn
from turnstate.schemas.errors import InvalidInputError
from turnstate.streams import client as clients
from turnstate.streams.embedded.access import open_store
from turnstate.streams.embedded.owner import OwnedStore
from turnstate.streams.settings import Settings


@pytest.fixture(name="store")
def fixture_store(tmp_path: Path) -> Iterator[OwnedStore]:
    with OwnedStore(Settings(data=tmp_path)) as opened:
        yield opened


def say(store: OwnedStore, session: str, first: int, last: int) -> None:
    """Publish turns of a session."""
    store.publish([turn(at, session, "t") for at in range(first, last + 1)])


def told(store: Any, token: str | None = "0", **options: Any) -> list[Any]:
    """Return what is there to hear."""
    return list(store.entities(token=token, follow=False, **options))


def names(upserts: list[Any]) -> list[tuple[Any, ...]]:
    """Return what names upserts."""
    fields = ("session", "incarnation", "boundary")
    return [tuple(each[field] for field in fields) for each in upserts]


def test_every_boundary_is_told_once_and_resumed(store: OwnedStore) -> None:
    say(store, "a", 1, 9)
    assert told(store) == []
    say(store, "b", 1, 4)
    say(store, "a", 10, 25)
    found = told(store)
    assert names(found) == [("a", 1, 10), ("a", 1, 20)]
    assert names(told(store, found[0]["token"])) == [("a", 1, 20)]
    assert told(store, found[1]["token"]) == []
    say(store, "b", 5, 10)
    (last,) = told(store, found[1]["token"])
    assert (last["session"], last["version"]) == ("b", 10)
    assert told(store, tenant="other") == []
    with pytest.raises(InvalidInputError):
        told(store, "nonsense")


def test_an_erase_is_a_removal(store: OwnedStore) -> None:
    say(store, "a", 1, 10)
    (upsert,) = told(store)
    store.call("erase", tenant="t", session="a")
    (removal,) = told(store, upsert["token"])
    assert removal["entity"] is None
    assert (removal["incarnation"], removal["boundary"]) == (1, 0)
    say(store, "a", 11, 20)
    found = told(store)
    assert [each["entity"] is None for each in found] == [True, False]
    assert names(found)[1] == ("a", 2, 10)


def test_other_processes_hear_it_too(store: OwnedStore) -> None:
    say(store, "a", 1, 10)
    with open_store(store.settings) as beside, clients.Client(beside) as client:
        (upsert,) = client.entities(token="0", follow=False)
    assert upsert["entity"]["version"] == 10
    assert upsert["entity"]["slots"]["slot0"] == {"value": 10, "siblings": []}


def test_who_waits_hears_it_when_it_comes(store: OwnedStore) -> None:
    heard: list[Any] = []
    stop = threading.Event()

    def listen() -> None:
        for upsert in store.entities(stopped=stop.is_set):
            heard.append(upsert)
            return

    listening = threading.Thread(target=listen)
    listening.start()
    number = 0
    while listening.is_alive() and number < 2_000:
        # Who listens has to be there before what it waits for.
        number += 10
        say(store, "live", number - 9, number)
        listening.join(0.05)
    stop.set()
    listening.join()
    assert heard[0]["session"] == "live"
    assert heard[0]["boundary"] % 10 == 0
