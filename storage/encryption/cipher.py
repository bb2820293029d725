"""Encrypted rows: how a row is encrypted, bound to its place, and told from others."""

import os
from struct import Struct
from typing import Final, NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from turnstate.schemas.errors import (
    ChecksumError,
    CorruptDataError,
    UnknownVersionError,
)
from turnstate.storage.frames.native import Lz4Error, lz4_compress, lz4_decompress

MARK: Final = b"\x89TSE"
"""0x89 starts no UTF-8 text; no plain row of an encrypted table starts with these
four bytes and then one below `_VERSIONS_END`."""

VERSION: Final = 1
"""Of the form of an encrypted row."""

KEY_BYTES: Final = 32
"""Of a key: AES-256."""

ID_BYTES: Final = 12
"""Of the id of a data key."""

NONCE_BYTES: Final = 12
TAG_BYTES: Final = 16

_VERSIONS_END: Final = 0x10
_AS_IT_IS, _LZ4 = 0, 1
_layout: Final = Struct(f"<4sBB{ID_BYTES}sH")
HEADER_BYTES: Final = _layout.size
"""Mark, version, codec, key id, length of the front."""

ADDED_BYTES: Final = HEADER_BYTES + NONCE_BYTES + TAG_BYTES
"""What encrypting adds to a row, beside its front."""


class EncryptedRow(NamedTuple):
    """An encrypted row, taken apart; nothing of it is believed yet.

    Attributes:
        codec: How the plain bytes were packed.
        key_id: The data key that encrypted it.
        header: The bytes before the nonce.
        nonce: The nonce.
        front: What can be read without the key.
        body: Ciphertext and tag.
    """

    codec: int
    key_id: bytes
    header: bytes
    nonce: bytes
    front: bytes
    body: bytes


def is_encrypted(row: bytes) -> bool:
    r"""Say whether a row is encrypted.

    Example:
        >>> is_encrypted(b"\x89TSE\x01"), is_encrypted(b"\x89TSF\x01")
        (True, False)
    """
    return row[:4] == MARK and len(row) > 4 and row[4] < _VERSIONS_END


def place_of(table: str, at: bytes) -> bytes:
    r"""Return what binds a row to its table and its key in there.

    Example:
        >>> place_of("heads", b"k")
        b'heads\x00k'
    """
    return table.encode() + b"\0" + at


def encrypt_row(
    cipher: AESGCM,
    key_id: bytes,
    place: bytes,
    plain: bytes,
    *,
    front: bytes = b"",
    nonce: bytes | None = None,
    packs: bool = False,
) -> bytes:
    """Return an encrypted row.

    Compressed first where that is asked for and helps, then encrypted by
    AES-256-GCM under a random nonce. Place, header and front are authenticated
    with it: a row that is moved, or whose front is changed, does not open.

    Args:
        cipher: Of the data key.
        key_id: Its id.
        place: See `place_of`.
        plain: What is hidden.
        front: What stays readable; at most 64 KiB.
        nonce: 12 bytes by chance where None; a test may give them.
        packs: Whether to try LZ4 first; frames are packed already.
    """
    assert len(key_id) == ID_BYTES, "an id has 12 bytes"
    codec = _AS_IT_IS
    if packs:
        packed = lz4_compress(plain)
        if len(packed) < len(plain):
            plain, codec = packed, _LZ4
    header = _layout.pack(MARK, VERSION, codec, key_id, len(front))
    nonce = nonce or os.urandom(NONCE_BYTES)
    body = cipher.encrypt(nonce, plain, header + front + place)
    return b"%b%b%b%b" % (header, nonce, front, body)


def take_apart(row: bytes) -> EncryptedRow:
    """Return the parts of an encrypted row.

    Raises:
        UnknownVersionError: a newer turnstate encrypted it.
        CorruptDataError: it is cut.
    """
    if len(row) < ADDED_BYTES:
        raise CorruptDataError(f"{len(row)} bytes are too few for an encrypted row")
    _, version, codec, key_id, front_bytes = _layout.unpack_from(row)
    if version != VERSION or codec > _LZ4:
        raise UnknownVersionError(
            f"the row is encrypted in form {version}.{codec}, this is {VERSION}",
            hint="use a newer turnstate; nothing was changed",
        )
    begin = HEADER_BYTES + NONCE_BYTES
    end = begin + front_bytes
    if len(row) < end + TAG_BYTES:
        raise CorruptDataError("an encrypted row is cut")
    return EncryptedRow(
        codec,
        key_id,
        row[:HEADER_BYTES],
        row[HEADER_BYTES:begin],
        row[begin:end],
        row[end:],
    )


def decrypt_row(cipher: AESGCM, encrypted: EncryptedRow, place: bytes) -> bytes:
    """Return what an encrypted row hides.

    Raises:
        ChecksumError: a bit of it was changed, or it lies in another's place.
        CorruptDataError: it was encrypted by something else.
    """
    bound = encrypted.header + encrypted.front + place
    try:
        plain = cipher.decrypt(encrypted.nonce, encrypted.body, bound)
    except InvalidTag:
        raise ChecksumError(
            "an encrypted row was changed, or lies in the place of another",
            hint="restore from a backup: turnstate restore",
            code="changed_row",
        ) from None
    if encrypted.codec == _AS_IT_IS:
        return plain
    try:
        return lz4_decompress(plain)
    except (Lz4Error, ValueError) as error:
        raise CorruptDataError(f"an encrypted row is no LZ4 block: {error}") from error


def front_of(row: bytes) -> bytes:
    """Return what can be read of a row without its key; of a plain one, all.

    Raises:
        CorruptDataError: it is cut.
    """
    return take_apart(row).front if is_encrypted(row) else row
