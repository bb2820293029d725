"""Read a session from its store while the owner's thread may be sealing it."""

import time
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from turnstate.schemas.errors import CorruptDataError
from turnstate.storage.stored_head import StoredHead

_T = TypeVar("_T")

_TRIES: Final = 6
_PAUSE_S: Final = 0.002


class _Heads(Protocol):
    def head(self, key: bytes) -> StoredHead | None: ...


def steadily(engine: _Heads, key: bytes, read: Callable[[StoredHead | None], _T]) -> _T:
    """Return what `read` makes of the newest head.

    A seal swaps frames for segments in one batch, and the head in memory a
    moment later. A reader between the two misses frames: it begins anew,
    after a pause that grows, with the head of then.

    Raises:
        CorruptDataError: it is missing still; then it is not a seal.
    """
    for at in range(_TRIES):
        try:
            return read(engine.head(key))
        except CorruptDataError:
            if at == _TRIES - 1:
                raise
            time.sleep(_PAUSE_S * 4**at)
    raise AssertionError("unreachable")
