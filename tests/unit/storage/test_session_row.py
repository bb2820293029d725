"""Lists say the same of a session wherever it lies, and say where that is."""

from pathlib import Path

from support.cooling import Cooling, real_lines
from turnstate.schemas.dialogue.head import digest
from turnstate.storage.session_row import SessionRow, session_row
from turnstate.storage.stored_head import StoredHead

ABOUT_PLACE = {"tier", "moved_ms", "is_sealed"}


def facts(row: SessionRow) -> dict[str, object]:
    return {n: v for n, v in row._asdict().items() if n not in ABOUT_PLACE}


def test_a_row_is_the_same_hot_warm_and_cold(tmp_path: Path) -> None:
    with Cooling(tmp_path) as world:
        world.publish(real_lines(5))
        store = world.store
        hot = dict(store.rows())
        for key in hot:
            store.engine.hot.drop(key)
        warm = dict(store.rows())
        world.cool()
        cold = dict(store.rows())

        assert {row.tier for row in hot.values()} == {"hot"}
        assert {row.tier for row in warm.values()} == {"warm"}
        assert {row.tier for row in cold.values()} == {"cold"}
        assert len(hot) == 5
        for key, row in hot.items():
            assert facts(row) == facts(warm[key]) == facts(cold[key])
            assert not row.moved_ms
            assert cold[key].moved_ms == world.clock.now_ms()
            assert cold[key].is_sealed
            stored = store.warm.heads([key])[0]
            assert stored is not None
            assert row.digest == digest(stored.head)


def test_what_is_not_sealed_says_so() -> None:
    head = StoredHead()
    changed = head.head.__class__(version=3)
    assert session_row(head).is_sealed
    assert not session_row(StoredHead(head=changed)).is_sealed
    assert session_row(head).tier == "warm"
    assert session_row(head, is_hot=True).tier == "hot"


def test_an_erased_session_is_a_tombstone_in_lists_of_rows(tmp_path: Path) -> None:
    with Cooling(tmp_path) as world:
        world.publish(real_lines(2))
        first, second = world.names()
        world.store.erase(first.tenant, session=first.session)
        rows = dict(world.store.rows())

        assert rows[first.key()].is_tombstone
        assert not rows[second.key()].is_tombstone
        assert world.names() == [second]
