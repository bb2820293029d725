"""Make images and stores of packs with a clock and chance that a test turns."""

from random import Random
from typing import Any

from support.framed import frame
from support.memory_objects import MemoryObjects
from turnstate.storage.cold.collection import Collected, collect
from turnstate.storage.cold.objects import ObjectStore
from turnstate.storage.cold.store import PackStore
from turnstate.storage.session_image import (
    EncodedImage,
    IndexRow,
    SessionImage,
    encode_image,
)

START_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


class Turned:
    """A clock that stands until it is turned."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms

    def turn(self, by_ms: int) -> None:
        self.now_ms += by_ms


def image(
    key: bytes, version: int = 1, size: int = 0, incarnation: int = 1
) -> EncodedImage:
    """Return the image of a session that nobody else's equals."""
    chance = Random(f"{key!r} {version} {size} {incarnation}")
    frames = [frame(chance.randbytes(size), to_version=version)] if size else []
    index = [IndexRow(b"i" + chance.randbytes(8), chance.randbytes(9))]
    row = chance.randbytes(40)
    return encode_image(
        SessionImage(key, incarnation, version, row, None, frames, index)
    )


def images(count: int, size: int = 0, version: int = 1) -> list[EncodedImage]:
    """Return images of so many sessions."""
    return [image(b"key %d" % number, version, size) for number in range(count)]


def memory() -> MemoryObjects:
    """Return objects whose clock is turned by `objects.clock`."""
    return MemoryObjects(Turned())


def turn(objects: MemoryObjects, by_ms: int) -> None:
    """Turn the clock of objects in memory."""
    clock = objects.clock
    assert isinstance(clock, Turned)
    clock.turn(by_ms)


def packs_in(
    objects: ObjectStore, clock: Any = None, *, seed: int = 0, **settings: Any
) -> PackStore:
    """Return a store of packs, small ones unless told otherwise."""
    if clock is None:
        assert isinstance(objects, MemoryObjects)
        clock = objects.clock
    fields = {"pack_bytes": 4096, **settings}
    return PackStore(objects, clock=clock, chance=Random(seed).randbytes, **fields)


def collected(store: PackStore, *packs: str, **settings: Any) -> Collected:
    """Collect garbage, some packs being pointed to."""
    return collect(store, referenced=lambda: frozenset(packs), **settings)


def pack_names(objects: MemoryObjects) -> list[str]:
    """Return the packs that are there."""
    return sorted(name for name in objects.held if name.startswith("packs/"))
