"""Whatever row of a session is wrong, verifying names it; a whole one has no fault."""

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from turnstate.agents.ports import Record
from turnstate.agents.session.rebuild import refolder
from turnstate.schemas.dialogue.phases import default_graph
from turnstate.schemas.ids import SessionName
from turnstate.schemas.position import Position
from turnstate.storage.seal import sealed
from turnstate.storage.session_keys import every_key
from turnstate.storage.stored_head import encode_stored_head
from turnstate.storage.verify import Verified, verify_session
from turnstate.storage.warm.rocksdb import WarmStore
from turnstate.storage.warm.tables import (
    FRAMES,
    HEADS,
    INDEX,
    SEGMENTS,
    aside_key,
    life_prefix,
    session_prefix,
)
from turnstate.streams.clock import VirtualClock

KEY = SessionName("t", "s").key()
PREFIX = life_prefix(KEY, 1)


def turn(number: int, **fields: object) -> bytes:
    """Return a turn as JSON."""
    body = {"turn_id": f"id{number}", "role": "user", "content": f"turn {number}"}
    return msgspec.json.encode({"tenant": "t", "session": "s", **body, **fields})


@pytest.fixture
def store(tmp_path: Path) -> Iterator[WarmStore]:
    """Give a store with one session: 70 turns sealed, then an edit and 5 turns."""
    opened = WarmStore(tmp_path / "warm", log_name="log")
    agent = refolder(opened, default_graph(), "log", VirtualClock(1_700_000_000_000))
    raws = [turn(number) for number in range(70)]
    raws += [turn(70, op="edit", target="id3", role="system")]
    raws += [turn(number) for number in range(71, 76)]
    for at, raw in enumerate(raws):
        record = Record(raw, Position(b"log", 0, at))
        opened.commit(agent.fold([record]).changes, sync=False)
        if at == 69:
            seal(opened)
            agent.tails.forget(KEY)
    yield opened
    opened.close()


def seal(store: WarmStore) -> None:
    """Seal the session."""
    (stored,) = store.heads([KEY])
    assert stored is not None
    done = sealed(store, KEY, stored, default_graph(), 0)
    assert done is not None
    batch = store.batch()
    batch.stage_seal(done)
    store.write(batch, sync=False)


def verified(store: WarmStore) -> Verified:
    """Verify the session."""
    (stored,) = store.heads([KEY])
    assert stored is not None
    return verify_session(store, KEY, stored, default_graph())


def change(store: WarmStore, table: str, key: bytes, row: bytes | None) -> None:
    """Put or remove one row."""
    batch = store.batch()
    if row is None:
        batch.delete(table, key)
    else:
        batch.put(table, key, row)
    store.write(batch, sync=False)


def nth(store: WarmStore, table: str, place: int) -> tuple[bytes, bytes]:
    """Return a row of the session."""
    return list(store.rows(table, PREFIX))[place]


def flip(row: bytes, place: int) -> bytes:
    """Return a row with one bit flipped."""
    changed = bytearray(row)
    changed[place] ^= 4
    return bytes(changed)


def test_a_whole_session_has_no_fault(store: WarmStore) -> None:
    """Sealed and unsealed parts, edits and index agree."""
    found = verified(store)
    assert (found.faults, found.frames, found.versions) == ([], 2 + 6, 76)
    seal(store)
    found = verified(store)
    assert (found.faults, found.frames, found.versions) == ([], 3, 76)


@pytest.mark.parametrize("table", [FRAMES, SEGMENTS])
@pytest.mark.parametrize("place", [0, 20, 60, -1])
def test_a_flipped_bit(store: WarmStore, table: str, place: int) -> None:
    """Headers and bodies are under checksums."""
    for number in range(len(list(store.rows(table, PREFIX)))):
        key, row = nth(store, table, number)
        change(store, table, key, flip(row, place))
        assert verified(store).faults, (table, number)
        change(store, table, key, row)
    assert verified(store).faults == []


@pytest.mark.parametrize("table", [FRAMES, SEGMENTS, INDEX])
def test_a_missing_row(store: WarmStore, table: str) -> None:
    """Every row is missed: frames, segments, the state at the seal, index entries."""
    for number in range(len(list(store.rows(table, PREFIX)))):
        key, row = nth(store, table, number)
        change(store, table, key, None)
        assert verified(store).faults, (table, number)
        change(store, table, key, row)
    assert verified(store).faults == []


def _swap_frames(store: WarmStore) -> None:
    (first, one), (second, two) = nth(store, FRAMES, 1), nth(store, FRAMES, 2)
    change(store, FRAMES, first, two)
    change(store, FRAMES, second, one)


def _foreign_frame(store: WarmStore) -> None:
    record = Record(turn(0, session="other"), Position(b"log", 0, 99))
    agent = refolder(store, default_graph(), "log", VirtualClock(1_700_000_000_000))
    (other,) = agent.fold([record]).changes
    change(store, FRAMES, nth(store, FRAMES, 1)[0], other.frame)


def _rolled_back(store: WarmStore) -> None:
    (stored,) = store.heads([KEY])
    assert stored is not None
    link = msgspec.structs.replace(stored, link=bytes(16))
    change(store, HEADS, KEY, encode_stored_head(link))


def _old_segment_link(store: WarmStore) -> None:
    (stored,) = store.heads([KEY])
    assert stored is not None
    link = msgspec.structs.replace(stored, segment_link=bytes(16))
    change(store, HEADS, KEY, encode_stored_head(link))


def _another_state(store: WarmStore) -> None:
    (stored,) = store.heads([KEY])
    assert stored is not None
    head = msgspec.structs.replace(stored.head, turn_count=99)
    changed = msgspec.structs.replace(stored, head=head)
    change(store, HEADS, KEY, encode_stored_head(changed))


def _other_text_bytes(store: WarmStore) -> None:
    (stored,) = store.heads([KEY])
    assert stored is not None
    changed = msgspec.structs.replace(stored, text_bytes=1)
    change(store, HEADS, KEY, encode_stored_head(changed))


def _wrong_entry(store: WarmStore) -> None:
    (one, first), (two, _) = nth(store, INDEX, -1), nth(store, INDEX, -2)
    assert one != two
    change(store, INDEX, two, first)


def _invented_entry(store: WarmStore) -> None:
    key, row = nth(store, INDEX, -1)
    change(store, INDEX, flip(key, -1), row)


def _invented_edit(store: WarmStore) -> None:
    change(store, INDEX, aside_key(PREFIX, 5), b"")


@pytest.mark.parametrize(
    "damage",
    [
        _swap_frames,
        _foreign_frame,
        _rolled_back,
        _old_segment_link,
        _another_state,
        _other_text_bytes,
        _wrong_entry,
        _invented_entry,
        _invented_edit,
    ],
)
def test_well_formed_rows_that_do_not_belong(
    store: WarmStore, damage: Callable[[WarmStore], None]
) -> None:
    """Rows with good checksums in the wrong place are found by link or by fold."""
    damage(store)
    assert verified(store).faults


def test_a_session_without_head_is_found_by_its_rows(store: WarmStore) -> None:
    """Every table is asked for sessions; each key comes once, others do not."""
    change(store, HEADS, KEY, None)
    told: list[str] = []
    found = list(every_key(store, b"", lambda table, _: told.append(table)))
    assert (found, told) == ([KEY], [])
    other = SessionName("tt", "s").key()
    assert session_prefix(other) != session_prefix(KEY)
    assert list(every_key(store, other[:4], lambda table, _: told.append(table))) == []
