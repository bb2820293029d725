"""How far the store of a partition has come in its changelog: a row of the store."""

from typing import Final, NamedTuple

import msgspec

from turnstate.schemas.errors import CorruptDataError
from turnstate.storage.warm.changelog_records import Epoch

CHANGELOG_KEY: Final = b"changelog"
"""Row of the store: the changelog's topic id, the offset applied last, the epoch."""


class Applied(NamedTuple):
    """How far a store has come in its changelog.

    Attributes:
        topic_id: The 16 bytes of the topic; another topic is another changelog.
        offset: Of the record applied last, -1 = none.
        epoch: The greatest that was seen.
    """

    topic_id: bytes
    offset: int
    epoch: Epoch


def decode_applied(row: bytes) -> Applied:
    """Return what the row `CHANGELOG_KEY` says.

    Raises:
        CorruptDataError: it is damaged.
    """
    try:
        return msgspec.msgpack.decode(row, type=Applied)
    except msgspec.MsgspecError as error:
        raise CorruptDataError(f"the row {CHANGELOG_KEY!r}: {error}") from error
