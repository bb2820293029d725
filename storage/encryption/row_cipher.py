"""Encrypt and open the rows of a store's tables; the one place where that happens."""

import os
from typing import Final

from turnstate.storage.encryption.cipher import (
    NONCE_BYTES,
    decrypt_row,
    encrypt_row,
    is_encrypted,
    place_of,
    take_apart,
)
from turnstate.storage.encryption.key_file import KeyWrapper
from turnstate.storage.encryption.keys import DataKey, KeyRing
from turnstate.storage.frames.header import HEADER_BYTES
from turnstate.storage.warm.tables import FRAMES, SEGMENTS

FRAME_TABLES: Final = frozenset({FRAMES, SEGMENTS})
"""Rows of which the header of the frame stays readable."""


class RowCipher:
    """Encrypt rows with the key of the life that they belong to.

    Safe from any thread.

    Args:
        ring: The data keys.
        wrapper: Who has the master key.
    """

    def __init__(self, ring: KeyRing, wrapper: KeyWrapper) -> None:
        self.ring = ring
        self.wrapper = wrapper

    def encrypt(
        self, key: DataKey, table: str, at: bytes, row: bytes, front: bytes = b""
    ) -> bytes:
        """Return a row as it is stored.

        Args:
            key: The data key of the life that it belongs to.
            table: Its table.
            at: Its key in there.
            row: The row.
            front: What stays readable; of frames that is their header.
        """
        nonce = os.urandom(NONCE_BYTES)
        is_frame = table in FRAME_TABLES
        if is_frame:
            front, row = row[:HEADER_BYTES], row[HEADER_BYTES:]
        made = encrypt_row(
            key.cipher,
            key.id,
            place_of(table, at),
            row,
            front=front,
            nonce=nonce,
            packs=not is_frame,
        )
        self.ring.used(key, nonce)
        return made

    def decrypt(self, table: str, at: bytes, row: bytes) -> bytes:
        """Return a row as it was; one that is not encrypted comes back as it is.

        Raises:
            ErasedKeyError: its key was destroyed.
            CorruptDataError: it was changed, moved, or its key is lost.
        """
        if not is_encrypted(row):
            return row
        parts = take_apart(row)
        cipher = self.ring.find(parts.key_id).cipher
        plain = decrypt_row(cipher, parts, place_of(table, at))
        return parts.front + plain if table in FRAME_TABLES else plain
