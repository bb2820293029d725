"""Encrypt what a hot tier puts into Redis, each session by a key made of one."""

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from turnstate.storage.encryption.cipher import (
    KEY_BYTES,
    decrypt_row,
    encrypt_row,
    is_encrypted,
    place_of,
    take_apart,
)
from turnstate.storage.hot.redis_value import HeadValue

HEAD: Final = "redis.head"
FRAME: Final = "redis.frame"
"""What a value is bound to, beside its session."""

_PERSON: Final = b"turnstate.redis"


class RedisCipher:
    """Encrypt and open heads and frames in Redis; safe from any thread.

    No key is used for more than one session: how often one may be is bounded,
    and Redis is written with every turn.

    Args:
        key_id: Stands in every value.
        key: What the keys of sessions are made of.
    """

    def __init__(self, key_id: bytes, key: bytes) -> None:
        self.key_id = key_id
        self._key = key

    def sealed(self, session: bytes, what: str, plain: bytes) -> bytes:
        """Return a value as it is to lie there.

        Args:
            session: The session key.
            what: `HEAD` or `FRAME`.
            plain: The value.
        """
        return encrypt_row(
            self._of(session),
            self.key_id,
            place_of(what, session),
            plain,
            packs=what == HEAD,
        )

    def opened(
        self, session: bytes, value: HeadValue, frames: Iterable[bytes]
    ) -> tuple[HeadValue, list[bytes]]:
        """Return a head, and frames, as they were; plain ones stay as they are.

        Raises:
            CorruptDataError: one was changed, or another key encrypted it.
        """
        cipher = self._of(session)

        def plain(what: str, data: bytes) -> bytes:
            if not is_encrypted(data):
                return data
            return decrypt_row(cipher, take_apart(data), place_of(what, session))

        row = plain(HEAD, value.row)
        return value._replace(row=row), [plain(FRAME, each) for each in frames]

    def _of(self, session: bytes) -> AESGCM:
        made = blake2b(
            session, key=self._key, digest_size=KEY_BYTES, person=_PERSON
        ).digest()
        return AESGCM(made)


def key_id_of(value: HeadValue) -> bytes | None:
    """Return which key encrypted a head, None where it is plain.

    Raises:
        CorruptDataError: it is cut.
    """
    return take_apart(value.row).key_id if is_encrypted(value.row) else None
