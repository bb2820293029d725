"""Laws of encrypted rows: they come back whole, in their place alone, or not at all."""

import json
from functools import cache
from typing import Final

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from support.encrypting import Master
from support.faulty_store import FaultyStore
from turnstate.schemas.errors import ChecksumError, CorruptDataError
from turnstate.storage.encryption.cipher import (
    ID_BYTES,
    MARK,
    decrypt_row,
    encrypt_row,
    is_encrypted,
    place_of,
    take_apart,
)
from turnstate.storage.encryption.row_cipher import RowCipher
from turnstate.storage.encryption.store_keys import unlocked
from turnstate.storage.warm.tables import life_prefix
from turnstate.streams.embedded.encrypted_chunks import (
    chunk_encrypted_again,
    encrypted_chunk,
    is_encrypted_chunk,
    opened_chunk,
)
from turnstate.streams.embedded.log import unpack_chunk

CIPHER: Final = AESGCM(bytes(32))
OTHER: Final = AESGCM(bytes(31) + b"\1")
TABLES: Final = st.sampled_from(["heads", "frames", "segments", "dead", "log"])
ROWS: Final = st.binary(max_size=400) | st.text(max_size=100).map(
    lambda text: json.dumps({"content": text * 5}).encode()
)
AT: Final = bytes(8)
LIVES: Final = [life_prefix(b"s%d" % number, 1) for number in range(4)]
RECORDS: Final = st.lists(
    st.tuples(st.binary(max_size=60), st.sampled_from(LIVES)), max_size=30
)


@given(
    plain=ROWS,
    front=st.binary(max_size=90),
    key_id=st.binary(min_size=ID_BYTES, max_size=ID_BYTES),
    table=TABLES,
    at=st.binary(max_size=30),
    packs=st.booleans(),
)
def test_what_is_sealed_comes_back(
    plain: bytes, front: bytes, key_id: bytes, table: str, at: bytes, packs: bool
) -> None:
    place = place_of(table, at)
    row = encrypt_row(CIPHER, key_id, place, plain, front=front, packs=packs)
    parts = take_apart(row)
    assert is_encrypted(row)
    assert (parts.key_id, parts.front) == (key_id, front)
    assert decrypt_row(CIPHER, parts, place) == plain
    assert len(plain) < 8 or plain not in parts.body
    with pytest.raises(CorruptDataError):
        decrypt_row(OTHER, parts, place)


@given(plain=ROWS, front=st.binary(max_size=40), data=st.data())
def test_any_bit_that_flips_is_refused(
    plain: bytes, front: bytes, data: st.DataObject
) -> None:
    place = place_of("heads", b"key")
    row = bytearray(encrypt_row(CIPHER, bytes(ID_BYTES), place, plain, front=front))
    bit = data.draw(st.integers(0, len(row) * 8 - 1))
    row[bit // 8] ^= 1 << bit % 8
    forged = bytes(row)
    if not is_encrypted(forged):
        # Then it is read as a plain row, which its own checksum refuses.
        assert bit < 8 * (len(MARK) + 1)
        return
    with pytest.raises(CorruptDataError):
        decrypt_row(CIPHER, take_apart(forged), place)


@given(
    plain=ROWS,
    mine=st.tuples(TABLES, st.binary(max_size=20)),
    other=st.tuples(TABLES, st.binary(max_size=20)),
)
def test_a_row_opens_in_its_own_place_only(
    plain: bytes, mine: tuple[str, bytes], other: tuple[str, bytes]
) -> None:
    parts = take_apart(encrypt_row(CIPHER, bytes(ID_BYTES), place_of(*mine), plain))
    if mine == other:
        assert decrypt_row(CIPHER, parts, place_of(*other)) == plain
    else:
        with pytest.raises(CorruptDataError):
            decrypt_row(CIPHER, parts, place_of(*other))


@cache
def sealed_store() -> tuple[FaultyStore, RowCipher]:
    store = FaultyStore("log")
    master = Master()
    row_cipher = RowCipher(unlocked(store, master, may_make=True), master)
    store.row_cipher = row_cipher
    return store, row_cipher


@given(given_records=RECORDS, blank=st.sets(st.integers(0, 29)))
def test_a_chunk_of_the_log_keeps_the_order_of_its_records(
    given_records: list[tuple[bytes, bytes]], blank: set[int]
) -> None:
    store, row_cipher = sealed_store()
    batch = store.batch()
    records = [record for record, _ in given_records]
    row = encrypted_chunk(batch, AT, records, [life for _, life in given_records])
    store.write(batch, sync=True)
    row_cipher.ring.saved(batch.new_keys)
    assert is_encrypted_chunk(row)
    assert opened_chunk(store, AT, row) == records
    assert all(len(record) < 8 or record not in row for record in records)

    after = [b"" if at in blank else record for at, record in enumerate(records)]
    batch = store.batch()
    again = chunk_encrypted_again(batch, row_cipher.ring, AT, row, after)
    assert opened_chunk(store, AT, again) == after
    if any(records):
        with pytest.raises(CorruptDataError):
            opened_chunk(store, b"\1" + AT[1:], row)


@given(given_records=RECORDS, data=st.data())
def test_any_bit_that_flips_in_a_chunk_is_seen(
    given_records: list[tuple[bytes, bytes]], data: st.DataObject
) -> None:
    store, _ = sealed_store()
    batch = store.batch()
    records = [record for record, _ in given_records]
    row = bytearray(
        encrypted_chunk(batch, AT, records, [life for _, life in given_records])
    )
    bit = data.draw(st.integers(0, len(row) * 8 - 1))
    row[bit // 8] ^= 1 << bit % 8
    forged = bytes(row)
    assert not is_encrypted_chunk(forged)
    # Then it is read as a plain chunk, whose checksum it does not match either.
    with pytest.raises(ChecksumError):
        unpack_chunk(forged, 0)
