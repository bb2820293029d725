"""Totals, sealing, trimming and verifying of an open store."""

import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from turnstate.schemas.errors import CorruptDataError, InvalidInputError
from turnstate.schemas.ids import SessionName
from turnstate.storage.warm.tables import HEADS, LOG
from turnstate.streams.embedded import upkeep
from turnstate.streams.embedded.store import EmbeddedStore
from turnstate.streams.settings import Settings


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    """Give an empty store."""
    with EmbeddedStore(Settings(data=tmp_path / "data")) as opened:
        yield opened


def turn(session: str, number: int, **fields: object) -> bytes:
    """Return a turn as JSON."""
    body = {"turn_id": f"id{number}", "role": "user", "content": f"turn {number}"}
    return msgspec.json.encode({"tenant": "t", "session": session, **body, **fields})


def fill(store: EmbeddedStore, sessions: int = 5, turns: int = 10) -> None:
    """Publish some turns, in as many commits as turns."""
    for number in range(turns):
        store.publish([turn(f"s{at}", number) for at in range(sessions)])


def test_stats_have_the_shape_of_the_design(store: EmbeddedStore) -> None:
    """Text is what was said; disk is what du says; sizes are never negative."""
    fill(store)
    store.publish([b"no turn", turn("call", 1, content=None, tool_calls=[_call("{}")])])
    found = upkeep.stats(store)
    assert found["sessions"] == 6
    assert found["turns"] == 51
    assert found["text_bytes"] == 5 * sum(len(f"turn {n}") for n in range(10)) + 2
    assert found["dead_letters"] == 1
    assert found["tiers"]["hot"]["sessions"] + found["tiers"]["warm"]["sessions"] == 6
    assert found["tiers"]["cold"] == {"sessions": 0, "bytes": 0}
    assert found["state_bytes"] > 0
    assert found["log_bytes"] > 0
    folder = str(store.settings.data)
    told = subprocess.run(["du", "-sk", folder], capture_output=True, check=True)
    assert abs(found["disk_bytes"] - int(told.stdout.split()[0]) * 1024) <= 8192


def _call(arguments: str) -> dict[str, object]:
    function = {"name": "find", "arguments": arguments}
    return {"id": "c1", "type": "function", "function": function}


def test_an_empty_store_has_totals(store: EmbeddedStore) -> None:
    """Nothing is there, nothing is wrong."""
    found = upkeep.stats(store)
    assert (found["sessions"], found["text_bytes"]) == (0, 0)
    assert upkeep.verify(store)["bad"] == []
    assert upkeep.seal(store) == {"sealed": 0, "sessions": 0}
    assert upkeep.repair(store)["repaired"] == []


def test_sealing_is_complete_and_may_be_repeated(store: EmbeddedStore) -> None:
    """Every session with frames is sealed once, those of a tenant alone if asked."""
    fill(store, sessions=70, turns=2)
    store.publish([turn("s", 1, tenant="other")])
    assert upkeep.seal(store, "other") == {"sealed": 1, "sessions": 1}
    assert upkeep.seal(store) == {"sealed": 70, "sessions": 70}
    assert upkeep.seal(store) == {"sealed": 0, "sessions": 0}
    assert upkeep.verify(store)["bad"] == []


def test_verifying_counts_and_tells(store: EmbeddedStore) -> None:
    """Sessions, frames and versions are counted; progress is told."""
    fill(store)
    told: list[int] = []
    found = upkeep.verify(store, progress=told.append)
    assert (found["sessions"], found["versions"], found["bad"]) == (5, 50, [])
    assert told == [1, 2, 3, 4, 5]
    assert upkeep.verify(store, "nobody")["sessions"] == 0


def test_verifying_goes_on_past_damage(store: EmbeddedStore) -> None:
    """Each damaged session is named, the others are still looked at."""
    fill(store)
    for name in ("s1", "s3"):
        damage(store, SessionName("t", name).key())
    found = upkeep.verify(store)
    assert found["sessions"] == 5
    assert [(row["tenant"], row["session"]) for row in found["bad"]] == [
        ("t", "s1"),
        ("t", "s3"),
    ]
    assert all(row["tier"] == "warm" and row["why"] for row in found["bad"])


def damage(store: EmbeddedStore, key: bytes) -> None:
    """Flip a bit of a head where it is stored."""
    row = bytearray(store.warm.get(HEADS, key) or b"")
    row[-1] ^= 1
    put(store, HEADS, key, bytes(row))


def put(store: EmbeddedStore, table: str, key: bytes, row: bytes | None) -> None:
    """Put or remove one row behind the engine's back."""
    batch = store.warm.batch()
    if row is None:
        batch.delete(table, key)
    else:
        batch.put(table, key, row)
    store.warm.write(batch, sync=False)


def test_a_damaged_log_is_found(store: EmbeddedStore) -> None:
    """Chunks are under checksums, and none may be missing."""
    fill(store)
    rows = list(store.warm.rows(LOG))
    for place in range(len(rows)):
        key, row = rows[place]
        put(store, LOG, key, row[:-1] + bytes([row[-1] ^ 1]))
        assert any(row["tier"] == "log" for row in upkeep.verify(store)["bad"])
        put(store, LOG, key, None)
        if place:
            assert any(row["tier"] == "log" for row in upkeep.verify(store)["bad"])
        put(store, LOG, key, row)
    assert upkeep.verify(store)["bad"] == []


def test_a_hot_head_that_differs_is_found(store: EmbeddedStore) -> None:
    """The two tiers are compared."""
    fill(store, sessions=2)
    one, two = (SessionName("t", name).key() for name in ("s0", "s1"))
    other = store.engine.hot.peek(two)
    assert other is not None
    head = msgspec.structs.replace(other.head, turn_count=77)
    store.engine.hot.replace(two, msgspec.structs.replace(other, head=head))
    bad = upkeep.verify(store)["bad"]
    assert [(row["session"], row["tier"]) for row in bad] == [("s1", "hot")]
    assert store.engine.hot.peek(one) is not None


def test_verifying_while_turns_come(store: EmbeddedStore) -> None:
    """A commit or a seal in the middle is no damage."""
    fill(store, sessions=20, turns=3)
    stop = threading.Event()

    def publish() -> None:
        number = 3
        while not stop.is_set():
            store.publish([turn(f"s{at}", number) for at in range(20)])
            if number % 10 == 0:
                upkeep.seal(store)
            number += 1

    writer = threading.Thread(target=publish)
    writer.start()
    try:
        for _ in range(5):
            assert upkeep.verify(store)["bad"] == []
    finally:
        stop.set()
        writer.join()
    assert upkeep.verify(store)["bad"] == []


def test_a_log_is_trimmed_only_while_nothing_is_wrong(store: EmbeddedStore) -> None:
    """What is trimmed is gone; state, later turns and verification do not mind."""
    fill(store)
    with pytest.raises(InvalidInputError):
        upkeep.trim_log(store, 51)
    found = upkeep.trim_log(store, 27)
    assert found == {"begin": 25, "end": 50}
    store.publish([turn("s1", 11), turn("s1", 3)])
    assert store.state("t", "s1")["version"] == 11
    assert upkeep.verify(store)["bad"] == []
    damage(store, SessionName("t", "s2").key())
    with pytest.raises(CorruptDataError):
        upkeep.trim_log(store, 50)
    failed = upkeep.repair(store)["failed"]
    assert [row["session"] for row in failed] == ["s2"]
    assert "backup" in failed[0]["why"]
