"""Dead letters: what was refused can be listed, shown, sent again, discarded."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from turnstate.agents.dead_letters import encode_dead_letter
from turnstate.schemas.errors import InvalidInputError, NotFoundError
from turnstate.storage.warm.tables import DEAD
from turnstate.streams.embedded import upkeep
from turnstate.streams.embedded.store import EmbeddedStore
from turnstate.streams.settings import Settings

BAD = b'{"tenant":"t","session":"s"}'
EARLY = msgspec.json.encode(
    {"tenant": "t", "session": "s", "role": "user", "content": "x", "if_version": 1}
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    """Give a store that refused two records."""
    with EmbeddedStore(Settings(data=tmp_path / "data")) as opened:
        opened.publish([BAD, EARLY])
        yield opened


def turn(number: int) -> bytes:
    """Return a turn."""
    return msgspec.json.encode(
        {"tenant": "t", "session": "s", "role": "user", "turn_id": str(number)}
    )


def rows(store: EmbeddedStore) -> list[dict[str, Any]]:
    """Return the list of letters."""
    found: list[dict[str, Any]] = upkeep.dead_letters(store)["dead_letters"]
    return found


def test_letters_are_listed_and_shown(store: EmbeddedStore) -> None:
    """In order, with reason, field and place; the bytes are as they came."""
    first, second = rows(store)
    assert (first["id"], first["field"], first["offset"]) == ("1", "role", 0)
    assert (second["id"], second["reason"]) == ("2", "version_conflict")
    assert upkeep.dead_letter(store, "1").raw == BAD
    for unknown in ("3", "0", "-1", "x", "", "9" * 30):
        with pytest.raises(NotFoundError):
            upkeep.dead_letter(store, unknown)


def test_a_letter_that_is_accepted_goes(store: EmbeddedStore) -> None:
    """Once what was missing is there the record is folded, and once only."""
    store.publish([turn(1)])
    report = upkeep.redrive(store, ["2"])
    assert (report["redriven"], report["accepted"]) == (1, 1)
    assert [row["id"] for row in rows(store)] == ["1"]
    assert store.state("t", "s")["version"] == 2
    with pytest.raises(NotFoundError):
        upkeep.redrive(store, ["2"])
    assert store.state("t", "s")["version"] == 2


def test_a_letter_that_is_refused_again_is_replaced(store: EmbeddedStore) -> None:
    """The new letter counts the attempt; there are never more than before."""
    for attempt in (1, 2):
        assert upkeep.redrive(store)["refused"] == 2
        found = rows(store)
        assert [row["attempt"] for row in found] == [attempt, attempt]
        assert {upkeep.dead_letter(store, row["id"]).raw for row in found} == {
            BAD,
            EARLY,
        }


def test_a_letter_of_a_duplicate_goes(store: EmbeddedStore) -> None:
    """What has come in another way is no second turn."""
    conflict = turn(7).replace(b'"user"', b'"tool"')
    store.publish([turn(7), conflict])
    (number,) = [row["id"] for row in rows(store) if row["reason"] == "conflict"]
    batch = store.warm.batch()
    letter = upkeep.dead_letter(store, number)
    same = msgspec.structs.replace(letter, raw=turn(7))
    batch.put(DEAD, int(number).to_bytes(8, "big"), encode_dead_letter(same))
    store.warm.write(batch, sync=False)
    assert upkeep.redrive(store, [number])["duplicates"] == 1
    assert number not in {row["id"] for row in rows(store)}
    assert store.state("t", "s")["version"] == 1


def test_a_letter_that_was_cut_is_not_sent(store: EmbeddedStore) -> None:
    """Above 16 MiB only the beginning is kept; named, it is refused by name."""
    store.publish([b"x" * ((16 << 20) + 1)])
    cut = rows(store)[-1]
    assert cut["bytes"] == (16 << 20) + 1
    assert len(upkeep.dead_letter(store, cut["id"]).raw) == 64 << 10
    with pytest.raises(InvalidInputError) as refused:
        upkeep.redrive(store, ["1", cut["id"]])
    assert refused.value.code == "letter_cut"
    report = upkeep.redrive(store)
    assert report["cut"] == [cut["id"]]
    assert upkeep.verify(store)["bad"] == []


def test_letters_are_discarded_all_or_none(store: EmbeddedStore) -> None:
    """An unknown one leaves the others; numbers may be doubled."""
    with pytest.raises(NotFoundError):
        upkeep.discard(store, ["1", "9"])
    assert len(rows(store)) == 2
    assert upkeep.discard(store, ["1", "2", "1"]) == {"discarded": 2}
    assert rows(store) == []


def test_a_damaged_letter_is_named(store: EmbeddedStore) -> None:
    """It is listed by its number, verified as bad, and can be discarded."""
    batch = store.warm.batch()
    batch.put(DEAD, (1).to_bytes(8, "big"), b"\xc1nonsense")
    store.warm.write(batch, sync=False)
    assert [row["id"] for row in rows(store)] == ["1", "2"]
    (bad,) = upkeep.verify(store)["bad"]
    assert (bad["tier"], bad["tenant"]) == ("dead", None)
    assert upkeep.discard(store, ["1"]) == {"discarded": 1}
    assert [row["id"] for row in rows(store)] == ["2"]
