"""Data keys: one a life of a session, kept, found, counted, destroyed."""

import pytest

from support.encrypting import Master, ring_of, save
from support.faulty_store import FaultyStore
from turnstate.schemas.errors import (
    ChecksumError,
    CorruptDataError,
    ErasedKeyError,
)
from turnstate.storage.encryption import keys as module
from turnstate.storage.encryption.cipher import ID_BYTES
from turnstate.storage.encryption.key_rows import KeyRow
from turnstate.storage.encryption.keys import NOBODY, SAMPLES_MAX
from turnstate.storage.warm.tables import KEYS, life_prefix

NONCE = b"0" * 12
ANN, BOB = life_prefix(b"ann", 1), life_prefix(b"bob", 1)
ANN_AGAIN = life_prefix(b"ann", 2)
SAMPLED = bytes(12)
"""A nonce that begins with two zero bytes."""


def test_a_life_has_one_key_which_is_found_again() -> None:
    store = FaultyStore("log")
    ring = ring_of(store)
    save(store, ring, ANN, BOB, ANN_AGAIN, NOBODY)
    ids = [ring.current(life).id for life in (ANN, BOB, ANN_AGAIN, NOBODY)]
    assert len(set(ids)) == 4
    secret = ring.current(ANN).cipher.encrypt(NONCE, b"text", None)

    later = ring_of(store)
    assert [later.current(life).id for life in (ANN, BOB, ANN_AGAIN, NOBODY)] == ids
    assert later.find(ids[0]).cipher.decrypt(NONCE, secret, None) == b"text"
    assert later.current(ANN).is_saved


def test_keys_of_one_session_lie_side_by_side() -> None:
    store = FaultyStore("log")
    ring = ring_of(store)
    save(store, ring, ANN, BOB)
    save(store, ring, ANN_AGAIN)
    first, second = ring.current(ANN).id, ring.current(ANN_AGAIN).id
    assert first[:8] == second[:8] != ring.current(BOB).id[:8]
    assert (first[8:], second[8:]) == (bytes(4), bytes(3) + b"\1")


def test_two_lives_of_one_batch_have_two_keys() -> None:
    ring = ring_of(FaultyStore("log"))
    assert ring.current(ANN).id != ring.current(ANN_AGAIN).id
    assert ring.current(ANN) is ring.current(ANN)


def test_a_key_whose_batch_was_never_written_is_not_lost() -> None:
    store = FaultyStore("log")
    ring = ring_of(store)
    made = ring.current(ANN)
    was_saved = made.is_saved
    # The batch is thrown away; the next one has to bring the same key.
    assert ring.current(ANN) is made
    save(store, ring, ANN)
    assert (was_saved, made.is_saved) == (False, True)
    assert ring_of(store).find(made.id).row == made.row


def test_no_key_is_let_go_before_it_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "CACHED_MAX", 2)
    store = FaultyStore("log")
    ring = ring_of(store)
    lives = [life_prefix(b"s%d" % number, 1) for number in range(9)]
    made = [ring.current(life) for life in lives]
    assert [ring.find(key.id) for key in made] == made
    assert [ring.current(life).id for life in lives] == [key.id for key in made]
    save(store, ring, *lives)
    texts = [key.cipher.encrypt(NONCE, b"text", None) for key in made]
    found = [ring.find(key.id).cipher for key in made]
    for cipher, text in zip(found, texts, strict=True):
        assert cipher.decrypt(NONCE, text, None) == b"text"


def test_destroying_takes_the_lives_up_to_one_and_no_other() -> None:
    store = FaultyStore("log")
    ring = ring_of(store)
    save(store, ring, ANN, BOB, ANN_AGAIN)
    ids = {life: ring.current(life).id for life in (ANN, BOB, ANN_AGAIN)}
    assert ring.destroy({b"ann": 1, b"nobody": 9}) == [ids[ANN]]
    assert ring.destroy({b"ann": 1}) == []
    for again in (ring, ring_of(store)):
        with pytest.raises(ErasedKeyError, match="erased"):
            again.find(ids[ANN])
        assert again.is_destroyed(ids[ANN])
        assert not again.is_destroyed(ids[BOB])
        assert again.find(ids[ANN_AGAIN]).id == ids[ANN_AGAIN]
        assert (again.last_destroyed(b"ann"), again.last_destroyed(b"bob")) == (1, 0)


def test_a_destroyed_key_leaves_nothing_of_itself() -> None:
    store = FaultyStore("log")
    ring = ring_of(store)
    save(store, ring, ANN)
    key_id = ring.current(ANN).id
    wrapped = KeyRow.decode(store.rows_by_table[KEYS][key_id]).wrapped
    ring.destroy({b"ann": 1})
    left = store.rows_by_table[KEYS][key_id]
    assert wrapped[12:] not in b"".join(store.rows_by_table[KEYS].values())
    assert KeyRow.decode(left).is_destroyed


def test_what_comes_after_its_destruction_has_another_key() -> None:
    store = FaultyStore("log")
    ring = ring_of(store)
    save(store, ring, ANN)
    before = ring.current(ANN).id
    ring.destroy({b"ann": 1})
    assert ring.current(ANN).id not in (before, None)
    save(store, ring, ANN)
    assert ring_of(store).current(ANN).id == ring.current(ANN).id != before


def test_a_full_key_is_followed_by_the_next() -> None:
    store = FaultyStore("log")
    ring = ring_of(store)
    save(store, ring, ANN)
    key = ring.current(ANN)
    for _ in range(SAMPLES_MAX):
        assert ring.current(ANN) is key
        ring.used(key, b"\0\1" + bytes(10))
        ring.used(key, SAMPLED)
        if not key.is_saved:
            save(store, ring, ANN)
    batch = store.batch()
    batch.put_local(KEYS, key.id, key.row.encode())
    store.write(batch, sync=True)
    for again in (ring, ring_of(store)):
        after = again.current(ANN)
        assert after.id != key.id
        assert again.find(key.id).row.samples == SAMPLES_MAX
    assert ring.destroy({b"ann": 1}) == [key.id]


def test_a_use_that_is_counted_does_not_bring_a_destroyed_key_back() -> None:
    store = FaultyStore("log")
    ring = ring_of(store)
    save(store, ring, ANN)
    key = ring.current(ANN)
    ring.destroy({b"ann": 1})
    ring.used(key, SAMPLED)
    assert key.row.is_destroyed


def test_a_key_that_is_not_here_and_a_damaged_one_are_no_erased_ones() -> None:
    store = FaultyStore("log")
    ring = ring_of(store)
    save(store, ring, ANN)
    key_id = ring.current(ANN).id
    with pytest.raises(CorruptDataError, match="not in this store") as lost:
        ring.find(b"x" * ID_BYTES)
    assert lost.value.code == "key_lost"
    rows = store.rows_by_table[KEYS]
    whole = rows[key_id]
    rows[key_id] = whole[:-1] + bytes([whole[-1] ^ 1])
    with pytest.raises(ChecksumError, match="was changed"):
        ring_of(store).find(key_id)
    for bad in (whole[:5], b"\2" + whole[1:], b"\0" + whole[1:]):
        rows[key_id] = bad
        with pytest.raises(CorruptDataError):
            ring_of(store).find(key_id)


def test_a_key_in_the_place_of_another_is_refused() -> None:
    store = FaultyStore("log")
    ring = ring_of(store)
    save(store, ring, ANN, BOB)
    ann, bob = ring.current(ANN).id, ring.current(BOB).id
    rows = store.rows_by_table[KEYS]
    rows[ann], rows[bob] = rows[bob], rows[ann]
    with pytest.raises(ChecksumError):
        ring_of(store).find(ann)


def test_the_master_key_is_asked_once_an_opening_and_never_for_a_turn() -> None:
    store = FaultyStore("log")
    master = Master()
    ring_of(store, master)
    assert master.asked == 1
    ring = ring_of(store, master)
    assert master.asked == 2
    save(store, ring, *(life_prefix(b"s%d" % number, 1) for number in range(50)))
    ring.destroy({b"s1": 1})
    assert master.asked == 2
