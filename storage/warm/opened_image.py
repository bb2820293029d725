"""Cold sessions as they were: rows that were encrypted before they went are opened."""

from collections.abc import Callable, Iterator, Mapping

from turnstate.storage.encryption.cipher import front_of
from turnstate.storage.frames.header import SEGMENT, decode_header
from turnstate.storage.session_image import SessionImage
from turnstate.storage.stored_head import StoredHead, decode_stored_head
from turnstate.storage.warm.below import Image
from turnstate.storage.warm.tables import (
    FRAMES,
    HEADS,
    SEGMENTS,
    life_prefix,
    version_key,
)

Open = Callable[[str, bytes, bytes], bytes]
"""Opens the row of a table that lies under a key."""


def place_of_frame(prefix: bytes, frame: bytes) -> tuple[str, bytes]:
    """Return the table and the key of a frame, a segment or a base.

    Args:
        prefix: Of the session's life.
        frame: As it was, or as it is stored.
    """
    header = decode_header(front_of(frame))
    table = SEGMENTS if header.kind == SEGMENT else FRAMES
    return table, version_key(prefix, header.to_version)


def opened_image(image: SessionImage, opens: Open) -> SessionImage:
    """Return an image with its rows opened.

    Raises:
        ErasedKeyError: their key was destroyed.
        CorruptDataError: one was changed, or is another session's.
    """
    prefix = life_prefix(image.key, image.incarnation)

    def frame(row: bytes) -> bytes:
        return opens(*place_of_frame(prefix, row), row)

    return image._replace(
        row=opens(HEADS, image.key, image.row),
        base=None if image.base is None else frame(image.base),
        frames=[frame(each) for each in image.frames],
    )


class OpenedImage:
    """One cold session, each part opened when it is asked for.

    Args:
        image: The session as it lies below.
        key: Its key.
        incarnation: Which life of it.
        opens: Opens rows.
    """

    def __init__(self, image: Image, key: bytes, incarnation: int, opens: Open) -> None:
        self._image = image
        self._key = key
        self._prefix = life_prefix(key, incarnation)
        self._opens = opens

    @property
    def stored(self) -> StoredHead:
        """Return its head."""
        return decode_stored_head(self._opens(HEADS, self._key, self._image.row))

    @property
    def base(self) -> bytes | None:
        """Return the state that its unsealed frames start from."""
        base = self._image.base
        return None if base is None else self._frame(base)

    def frames(self, after_version: int) -> Iterator[bytes]:
        """Yield segments, then frames, that lead above a version."""
        for row in self._image.frames(after_version):
            yield self._frame(row)

    def index(self) -> Mapping[bytes, bytes]:
        """Return the rows of its turn index; they are never sealed."""
        return self._image.index()

    def _frame(self, row: bytes) -> bytes:
        return self._opens(*place_of_frame(self._prefix, row), row)
