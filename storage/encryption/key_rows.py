"""The row of a data key: whose it is, and the key, wrapped or destroyed."""

from struct import Struct
from typing import Final, NamedTuple

from turnstate.schemas.errors import CorruptDataError

_DESTROYED, _WRAPPED = 0, 1
_layout: Final = Struct("<B8sQHI")


class KeyRow(NamedTuple):
    """What the table says of a data key.

    Attributes:
        check: More of the session's hash, which tells two of one id apart.
        life: Of the session.
        store_key: Number of the store's key that wraps it.
        samples: How often it was used, in units of `keys.SAMPLED`.
        wrapped: Nonce, key and tag; empty where it was destroyed.
    """

    check: bytes
    life: int
    store_key: int
    samples: int
    wrapped: bytes

    @property
    def is_destroyed(self) -> bool:
        """Say whether the key is gone for good."""
        return not self.wrapped

    def encode(self) -> bytes:
        """Return the row."""
        kind = _DESTROYED if self.is_destroyed else _WRAPPED
        head = _layout.pack(kind, self.check, self.life, self.store_key, self.samples)
        return head + self.wrapped

    @classmethod
    def decode(cls, row: bytes) -> "KeyRow":
        """Invert `encode`.

        Raises:
            CorruptDataError: it is no such row.
        """
        if len(row) < _layout.size or row[0] > _WRAPPED:
            raise CorruptDataError("the row of a data key cannot be read")
        kind, check, life, store_key, samples = _layout.unpack_from(row)
        wrapped = row[_layout.size :]
        if (kind == _WRAPPED) != bool(wrapped):
            raise CorruptDataError("the row of a data key cannot be read")
        return cls(check, life, store_key, samples, wrapped)

    def bound(self, key_id: bytes) -> bytes:
        """Return what is authenticated with the wrapped key."""
        return key_id + self.check + self.life.to_bytes(8, "little")
