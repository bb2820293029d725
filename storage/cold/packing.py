"""Turn a stream of images into packs, each created once and read back."""

from collections.abc import Callable
from typing import Final, NamedTuple

from turnstate.schemas.errors import ChecksumError, CorruptDataError, UnavailableError
from turnstate.storage.cold.bloom import Bloom
from turnstate.storage.cold.manifest import PackInfo
from turnstate.storage.cold.objects import ObjectStore
from turnstate.storage.cold.pack import (
    HEADER_BYTES,
    EncodedPack,
    Entry,
    PackWriter,
    Tail,
    check_header,
    decode_tail,
)
from turnstate.storage.frames.native import crc32c, crc32c_more

READ_BYTES: Final = 8 << 20
"""What is read back, or copied, in one request: so much memory, not a pack's."""

_NAMES: Final = 4
"""Names tried for one pack; chance makes a second one all but impossible."""


class Packed(NamedTuple):
    """A pack that is there and was read back; in no manifest yet.

    Attributes:
        name: Of the object.
        tail: Where its parts are.
        bloom: Its filter.
        entries: Its index.
    """

    name: str
    tail: Tail
    bloom: Bloom
    entries: list[Entry]

    def info(self, now_ms: int) -> PackInfo:
        """Return what the manifest says of it; 0 as order = the next one."""
        image_bytes = self.tail.body_bytes - HEADER_BYTES
        return PackInfo(
            self.tail.pack_bytes,
            len(self.entries),
            image_bytes,
            image_bytes,
            now_ms,
            max((entry.order for entry in self.entries), default=0),
        )


class Packing:
    """Fill packs with images, in order; holds one pack in memory at a time.

    Args:
        objects: Where packs go.
        new_name: Names the next pack.
        limit_bytes: What a pack may have.
    """

    def __init__(
        self, objects: ObjectStore, new_name: Callable[[], str], limit_bytes: int
    ) -> None:
        self._objects = objects
        self._new_name = new_name
        self._limit = limit_bytes
        self._writer = PackWriter(limit_bytes)
        self._packed: list[Packed] = []

    def add(
        self,
        key: bytes,
        incarnation: int,
        version: int,
        data: bytes,
        front_bytes: int,
        order: int = 0,
    ) -> None:
        """Put an image behind the others; a full pack is written first.

        Raises:
            UnavailableError: the store is away.
            CorruptDataError: a pack that was written does not read back.
        """
        if not self._writer.takes(key, len(data)):
            self._write()
        self._writer.add(key, incarnation, version, data, front_bytes, order)

    def finish(self) -> list[Packed]:
        """Write what is left and return all packs; entries are in order of `add`.

        Raises:
            UnavailableError: the store is away.
            CorruptDataError: a pack that was written does not read back.
        """
        if self._writer:
            self._write()
        return self._packed

    def _write(self) -> None:
        pack = self._writer.finish()
        self._writer = PackWriter(self._limit)
        taken: list[str] = []
        while len(taken) < _NAMES:
            name = self._new_name()
            if self._objects.create(name, pack.data):
                verify_written(self._objects, name, pack)
                packed = Packed(name, pack.tail, pack.bloom, list(pack.entries))
                self._packed.append(packed)
                return
            taken.append(name)
        raise UnavailableError(
            f"{_NAMES} names for a pack are all taken: {', '.join(taken)}",
            hint="is chance on this machine what it should be?",
        )


def verify_written(objects: ObjectStore, name: str, pack: EncodedPack) -> None:
    """Read a pack back: length, checksum, header and tail.

    Raises:
        CorruptDataError: it is not what was written. Nobody points to it.
    """
    have, checksum, last = 0, 0, b""
    while True:
        piece = objects.read(name, have, READ_BYTES)
        if have == 0:
            check_header(piece)
        have, checksum = have + len(piece), crc32c_more(checksum, piece)
        last = (last + piece)[-(HEADER_BYTES + 64) :]
        if len(piece) < READ_BYTES:
            break
    if have != len(pack.data) or checksum != crc32c(pack.data):
        raise ChecksumError(
            f"{name} was written with {len(pack.data)} bytes and reads back as"
            f" {have} others",
            hint="the sessions are still where they were; look at the store",
        )
    if decode_tail(last) != pack.tail:
        raise CorruptDataError(f"{name} reads back with another tail")
