"""The key of a store: only its master key opens it, until it is rotated."""

import pytest

from support.encrypting import MASTER_A, MASTER_B, Master, ring_of, save
from support.faulty_store import CrashError, FaultyStore
from turnstate.schemas.errors import CorruptDataError, UnavailableError
from turnstate.storage.encryption import store_keys as module
from turnstate.storage.encryption.key_rows import KeyRow
from turnstate.storage.encryption.keys import KeyRing
from turnstate.storage.encryption.store_keys import (
    begin_rotation,
    check_master,
    end_rotation,
    rewrap_some,
    store_keys,
    unlocked,
)
from turnstate.storage.warm.tables import KEYS, life_prefix

LIVES = [life_prefix(b"s%d" % number, 1) for number in range(20)]
NONCE = b"0" * 12


def rewrapped(store: FaultyStore, ring: KeyRing) -> int:
    total, at = 0, b""
    while True:
        after, changed = rewrap_some(store, ring, at)
        total += changed
        if after is None:
            return total
        at = after


def test_another_master_key_is_refused_and_nothing_is_changed() -> None:
    store = FaultyStore("log")
    ring_of(store, Master(MASTER_A))
    before = dict(store.rows_by_table[KEYS])
    with pytest.raises(UnavailableError, match="master b") as refused:
        ring_of(store, Master(MASTER_B))
    assert (refused.value.field, refused.value.code) == ("encryption", "wrong_key")
    (found,) = store_keys(store)
    with pytest.raises(UnavailableError, match="setting encryption is empty") as none:
        check_master(found, None)
    assert none.value.code == "encrypted"
    assert store.rows_by_table[KEYS] == before


def test_a_store_that_may_not_be_written_gets_no_key() -> None:
    store = FaultyStore("log")
    unlocked(store, Master(), may_make=False)
    assert not store.rows_by_table[KEYS]


def test_a_damaged_row_is_named() -> None:
    store = FaultyStore("log")
    ring_of(store)
    (at,) = store.rows_by_table[KEYS]
    store.rows_by_table[KEYS][at] = b"\xc1"
    with pytest.raises(CorruptDataError, match="key of the store"):
        ring_of(store)


def test_a_rotation_wraps_everything_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REWRAPPED_AT_ONCE", 7)
    store = FaultyStore("log")
    ring = ring_of(store, Master(MASTER_A))
    save(store, ring, *LIVES)
    ids = [ring.current(life).id for life in LIVES]
    texts = [ring.find(key_id).cipher.encrypt(NONCE, b"t", None) for key_id in ids]
    ring.destroy({b"s3": 1})
    before = set(store.rows_by_table[KEYS].values())

    number = begin_rotation(store, ring, Master(MASTER_A), Master(MASTER_B))
    with pytest.raises(UnavailableError):
        ring_of(store, Master(MASTER_A))
    assert rewrapped(store, ring) == len(LIVES) - 1
    assert rewrapped(store, ring) == 0
    end_rotation(store, number)

    assert [key.master for key in store_keys(store)] == [MASTER_B]
    kept = before & set(store.rows_by_table[KEYS].values())
    assert all(KeyRow.decode(row).is_destroyed for row in kept)
    later = ring_of(store, Master(MASTER_B))
    for both in (ring, later):
        for place, (key_id, text) in enumerate(zip(ids, texts, strict=True)):
            if place != 3:
                assert both.find(key_id).cipher.decrypt(NONCE, text, None) == b"t"


def test_a_rotation_that_dies_is_mended_by_the_next() -> None:
    store = FaultyStore("log")
    ring = ring_of(store, Master(MASTER_A))
    save(store, ring, *LIVES)
    begin_rotation(store, ring, Master(MASTER_A), Master(MASTER_B))
    store.fails = "before"
    with pytest.raises(CrashError):
        rewrap_some(store, ring, b"")

    ring = ring_of(store, Master(MASTER_B))
    assert {ring.find(ring.current(life).id).row.store_key for life in LIVES} == {1}
    number = begin_rotation(store, ring, Master(MASTER_B), Master(MASTER_B))
    assert (number, rewrapped(store, ring)) == (3, len(LIVES))
    end_rotation(store, number)
    later = ring_of(store, Master(MASTER_B))
    assert {later.find(ring.current(life).id).row.store_key for life in LIVES} == {3}


def test_a_rotation_that_never_began_changes_nothing() -> None:
    store = FaultyStore("log")
    ring = ring_of(store, Master(MASTER_A))
    store.fails = "before"
    with pytest.raises(CrashError):
        begin_rotation(store, ring, Master(MASTER_A), Master(MASTER_B))
    ring_of(store, Master(MASTER_A))


def test_a_key_made_while_keys_are_wrapped_anew_has_the_new_one() -> None:
    store = FaultyStore("log")
    ring = ring_of(store, Master(MASTER_A))
    save(store, ring, *LIVES[:5])
    number = begin_rotation(store, ring, Master(MASTER_A), Master(MASTER_B))
    save(store, ring, *LIVES[5:])
    assert rewrapped(store, ring) == 5
    end_rotation(store, number)
    later = ring_of(store, Master(MASTER_B))
    assert all(later.current(life).row.store_key == number for life in LIVES)
