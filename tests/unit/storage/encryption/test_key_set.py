"""A set of keys: one master key opens it, and a slot can be destroyed alone."""

import pytest

from support.encrypting import MASTER_A, MASTER_B, Master
from support.faulty_store import FaultyStore
from turnstate.schemas.errors import (
    ChecksumError,
    CorruptDataError,
    UnavailableError,
    UnknownVersionError,
)
from turnstate.storage.encryption.key_set import (
    HOT_SLOT,
    SLOTS,
    KeySet,
    OpenedKeySet,
    decode_key_set,
    encode_key_set,
    made_key_set,
    opened_key_set,
)
from turnstate.storage.encryption.slotted_keys import SlottedKeyRing, slot_of
from turnstate.storage.warm.tables import KEYS, life_prefix

SESSIONS = [b"\x00\x01ts%d" % number for number in range(600)]


def filled(keys: OpenedKeySet) -> tuple[FaultyStore, SlottedKeyRing]:
    """Return a store with a data key for each session."""
    store = FaultyStore("log")
    ring = SlottedKeyRing(store, keys)
    batch = store.batch()
    keys_made = [ring.current(life_prefix(session, 1)) for session in SESSIONS]
    made = {each.id: each for each in keys_made}
    for key in made.values():
        batch.put_local(KEYS, key.id, key.row.encode())
    store.write(batch, sync=True)
    ring.saved(made)
    return store, ring


def test_it_reads_back_and_opens_by_its_master_key_alone() -> None:
    made = made_key_set(Master())
    data = encode_key_set(made.stored)
    assert decode_key_set(data, "it") == made.stored
    assert len(data) < 32 << 10
    master = Master()
    opened = opened_key_set(decode_key_set(data, "it"), master)
    assert master.asked == 1
    assert [list(opened.slot_keys(slot)) for slot in range(SLOTS + 1)] == [[1]] * 257
    assert opened.hot_keys() == made.hot_keys()
    with pytest.raises(UnavailableError, match=MASTER_B) as refused:
        opened_key_set(made.stored, Master(MASTER_B))
    assert (refused.value.field, refused.value.code) == ("encryption", "wrong_key")
    assert MASTER_A in str(refused.value)


def test_no_key_stands_in_it() -> None:
    made = made_key_set(Master())
    data = encode_key_set(made.stored)
    assert all(key not in data for _, key in made.hot_keys())


@pytest.mark.parametrize("place", [0, 5, 100, -1])
def test_a_changed_byte_is_seen(place: int) -> None:
    data = bytearray(encode_key_set(made_key_set(Master()).stored))
    data[place] ^= 1
    with pytest.raises(ChecksumError):
        decode_key_set(bytes(data), "it")


def test_a_slot_in_the_place_of_another_does_not_open() -> None:
    made = made_key_set(Master())
    slots = list(made.stored.slots)
    slots[3], slots[4] = slots[4], slots[3]
    swapped = made._replace(stored=with_slots(made.stored, slots))
    with pytest.raises(ChecksumError, match="slot 3"):
        swapped.slot_keys(3)


def test_one_that_is_not_whole_or_newer_is_refused() -> None:
    stored = made_key_set(Master()).stored
    with pytest.raises(CorruptDataError, match="not whole"):
        decode_key_set(encode_key_set(with_slots(stored, stored.slots[1:])), "it")
    newer = KeySet(9, stored.id, stored.master, stored.wrapped, stored.slots)
    with pytest.raises(UnknownVersionError, match="format 9"):
        decode_key_set(encode_key_set(newer), "it")


def test_a_destroyed_slot_takes_its_data_keys_and_no_others() -> None:
    store, ring = filled(made_key_set(Master()))
    slot = slot_of(SESSIONS[7])
    in_it = {at for at in store.rows_by_table[KEYS] if at[0] == slot}
    assert 0 < len(in_it) < 30
    gone = ring.keys.with_new([slot]).without_replaced([slot])
    fresh = SlottedKeyRing(store, gone)
    for at in store.rows_by_table[KEYS]:
        if at in in_it:
            with pytest.raises(CorruptDataError) as lost:
                fresh.find(at)
            assert lost.value.code == "key_lost"
        else:
            assert fresh.find(at).id == at


def test_what_was_wrapped_anew_outlives_the_slots_key() -> None:
    store, ring = filled(made_key_set(Master()))
    slot = slot_of(SESSIONS[7])
    both = ring.keys.with_new([slot])
    assert both.with_new([slot]) == both
    assert both.stored.replaced == [slot]
    ring.take(both)
    nonce = bytes(12)
    told: dict[bytes, bytes] = {}
    for at in list(store.rows_by_table[KEYS]):
        told[at] = ring.find(at).cipher.encrypt(nonce, b"said", None)
    for at, row in ring.rewrapped_rows(slot):
        assert at[0] == slot
        store.rows_by_table[KEYS][at] = row
    assert list(ring.rewrapped_rows(slot)) == []
    fresh = SlottedKeyRing(store, both.without_replaced([slot]))
    for at, body in told.items():
        assert fresh.find(at).cipher.decrypt(nonce, body, None) == b"said"


def test_a_key_that_was_never_written_is_not_wrapped_by_a_destroyed_one() -> None:
    store = FaultyStore("log")
    ring = SlottedKeyRing(store, made_key_set(Master()))
    life = life_prefix(SESSIONS[0], 1)
    lost = ring.current(life)  # of a batch that failed
    slot = slot_of(SESSIONS[0])
    ring.take(ring.keys.with_new([slot]).without_replaced([slot]))
    again = ring.current(life)
    assert again is not lost
    assert again.row.store_key == 2


def test_the_key_of_redis_is_replaced_likewise() -> None:
    made = made_key_set(Master())
    (before,) = made.hot_keys()
    both = made.with_new([HOT_SLOT])
    assert both.hot_keys()[0] == before
    (after,) = both.without_replaced([HOT_SLOT]).hot_keys()
    assert after == both.hot_keys()[1]
    assert after[0] != before[0]


def with_slots(stored: KeySet, slots: list[list[tuple[int, bytes]]]) -> KeySet:
    return KeySet(stored.format, stored.id, stored.master, stored.wrapped, slots)
