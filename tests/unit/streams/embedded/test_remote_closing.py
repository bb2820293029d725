"""A request that closing owners did not read goes to the one that stays."""

from pathlib import Path
from typing import Any

import pytest

from turnstate.schemas.errors import UnavailableError
from turnstate.streams.embedded import remote
from turnstate.streams.embedded.link import NotRead
from turnstate.streams.embedded.messages import ConnectionLost
from turnstate.streams.embedded.owner import OwnedStore
from turnstate.streams.embedded.remote import RemoteStore
from turnstate.streams.settings import Settings

CLOSING = 12
"""More owners than are asked where one after another dies."""


class Closing:
    """A connection to an owner that closes before it reads anything."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.asked = 0

    def begin(self, method: str, arguments: dict[str, Any]) -> None:
        self.asked += 1
        raise self.error

    def look_every(self, seconds: float | None) -> None:
        """There is nothing to wait for."""

    def is_lost(self) -> bool:
        return False

    def close(self) -> None:
        """It is gone."""


def store_of(closing: Closing, owned: OwnedStore) -> RemoteStore:
    """Reach owners that close, and at last the store itself."""
    left = iter(range(CLOSING - 1))

    def reach(settings: Settings) -> Any:
        return owned if next(left, None) is None else closing

    return RemoteStore(owned.settings, reach, closing)  # type: ignore[arg-type]


def test_owners_that_close_one_after_another_are_left_behind(tmp_path: Path) -> None:
    closing = Closing(NotRead("the owner is closing"))
    with store_of(closing, OwnedStore(Settings(data=tmp_path))) as store:
        turn = b'{"tenant":"t","session":"s","role":"user","turn_id":"1"}'
        assert store.publish([turn])[0].version == 1
    assert closing.asked == CLOSING


def test_so_are_they_where_rows_are_asked_for(tmp_path: Path) -> None:
    closing = Closing(NotRead("the owner is closing"))
    with store_of(closing, OwnedStore(Settings(data=tmp_path))) as store:
        assert list(store.sessions()) == []
    assert closing.asked == CLOSING


def test_owners_that_close_for_ever_are_told_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "OWNER_WAIT_S", 0.1)
    closing = Closing(NotRead("the owner is closing"))
    store = RemoteStore(Settings(data=tmp_path), lambda _: closing, closing)  # type: ignore[arg-type,return-value]
    with pytest.raises(UnavailableError) as lost:
        store.state("t", "s")
    assert lost.value.code == "owner_lost"


def test_owners_that_die_amid_an_answer_are_asked_a_few_times(tmp_path: Path) -> None:
    closing = Closing(ConnectionLost("reset"))
    store = RemoteStore(Settings(data=tmp_path), lambda _: closing, closing)  # type: ignore[arg-type,return-value]
    with pytest.raises(UnavailableError):
        list(store.sessions())
    assert closing.asked == 4
