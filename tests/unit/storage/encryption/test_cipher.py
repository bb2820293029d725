"""Encrypted rows: told from plain ones, opened in their own place alone."""

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from turnstate.schemas.errors import (
    ChecksumError,
    CorruptDataError,
    UnknownVersionError,
)
from turnstate.storage.encryption.cipher import (
    ADDED_BYTES,
    ID_BYTES,
    KEY_BYTES,
    decrypt_row,
    encrypt_row,
    front_of,
    is_encrypted,
    place_of,
    take_apart,
)

CIPHER = AESGCM(bytes(range(KEY_BYTES)))
KEY_ID = b"k" * ID_BYTES
PLACE = place_of("heads", b"session")


def encrypted(plain: bytes, **more: bytes | bool) -> bytes:
    return encrypt_row(CIPHER, KEY_ID, PLACE, plain, **more)  # type: ignore[arg-type]


def test_a_row_comes_back_in_its_place() -> None:
    row = encrypted(b"what was said", front=b"where it stands")
    parts = take_apart(row)
    assert is_encrypted(row)
    assert (parts.key_id, front_of(row)) == (KEY_ID, b"where it stands")
    assert decrypt_row(CIPHER, parts, PLACE) == b"what was said"
    assert len(row) == ADDED_BYTES + len(b"where it stands") + len(b"what was said")
    assert b"said" not in row


def test_equal_rows_are_sealed_in_unequal_bytes() -> None:
    assert encrypted(b"yes") != encrypted(b"yes")


def test_a_row_is_packed_before_it_is_sealed_where_that_helps() -> None:
    long = b"again and " * 200
    assert len(encrypted(long, packs=True)) < len(long) // 4
    assert decrypt_row(CIPHER, take_apart(encrypted(long, packs=True)), PLACE) == long
    assert len(encrypted(b"short", packs=True)) == ADDED_BYTES + len(b"short")


@pytest.mark.parametrize(
    ("table", "at"),
    [("heads", b"session2"), ("frames", b"session"), ("heads\0session", b"")],
)
def test_a_row_in_the_place_of_another_is_refused(table: str, at: bytes) -> None:
    with pytest.raises(ChecksumError, match="place of another"):
        decrypt_row(CIPHER, take_apart(encrypted(b"mine")), place_of(table, at))


def test_another_front_is_refused() -> None:
    row = encrypted(b"mine", front=b"version 7")
    forged = row.replace(b"version 7", b"version 8")
    with pytest.raises(ChecksumError):
        decrypt_row(CIPHER, take_apart(forged), PLACE)


def test_a_cut_row_is_refused_by_name() -> None:
    row = encrypted(b"mine", front=b"front")
    for length in range(5, len(row)):
        with pytest.raises(CorruptDataError):
            decrypt_row(CIPHER, take_apart(row[:length]), PLACE)


def test_a_row_of_a_newer_form_is_refused_by_name() -> None:
    row = bytearray(encrypted(b"mine"))
    row[4] = 2
    assert is_encrypted(bytes(row))
    with pytest.raises(UnknownVersionError, match="newer turnstate"):
        take_apart(bytes(row))


def test_a_plain_row_is_its_own_front() -> None:
    assert front_of(b"\x89TSF\x01 a frame") == b"\x89TSF\x01 a frame"
    assert not is_encrypted(b"\x89TSE\x9b")
    assert not is_encrypted(b"\x89TSE")
