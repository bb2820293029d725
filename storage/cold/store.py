"""Sessions in packs: write many, read one by its pointer or by its key."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeVar

from turnstate.schemas.errors import (
    ChecksumError,
    CorruptDataError,
    InvalidInputError,
    NotFoundError,
)
from turnstate.storage.cold.footers import Footers, Looks
from turnstate.storage.cold.manifest import (
    Change,
    Manifest,
    Manifests,
    PackInfo,
    with_packs,
)
from turnstate.storage.cold.names import CHANCE_BYTES, pack_name
from turnstate.storage.cold.objects import ObjectStore
from turnstate.storage.cold.pack import PACK_BYTES_MAX, Entry
from turnstate.storage.cold.packing import Packed, Packing
from turnstate.storage.cold.pointer import Pointer
from turnstate.storage.frames.native import crc32c
from turnstate.storage.session_image import EncodedImage, decode_front

PACK_BYTES: Final = 32 << 20
"""The usual limit of a pack; between 8 and 64 MiB requests are few and a
rewrite is short."""

_Found = TypeVar("_Found")


class Away(NamedTuple):
    """A session that leaves the cold tier; what older packs have is hidden.

    Attributes:
        key: The session key.
        incarnation: Which life of the session.
        version: The version that is there.
    """

    key: bytes
    incarnation: int
    version: int


class PackStore:
    """Keep encoded images in packs over an object store.

    Methods block, and may be called from several threads. Where a session is
    belongs to whoever keeps the pointers; `find` is the way without one.

    Args:
        objects: Where packs, manifests and the lease are.
        clock: Tells epoch milliseconds.
        chance: Gives so many random bytes.
        epoch: The fencing token; 0 as long as nobody takes a lease.
        pack_bytes: What a pack may have, at most 64 MiB.

    Raises:
        InvalidInputError: the limit of a pack is out of range.
    """

    def __init__(
        self,
        objects: ObjectStore,
        *,
        clock: Callable[[], int],
        chance: Callable[[int], bytes],
        epoch: int = 0,
        pack_bytes: int = PACK_BYTES,
    ) -> None:
        if not 0 < pack_bytes <= PACK_BYTES_MAX:
            raise InvalidInputError(
                f"a pack of {pack_bytes} bytes is out of range",
                field="pack_bytes",
                hint=f"1 to {PACK_BYTES_MAX}, usually {PACK_BYTES}",
            )
        self.objects = objects
        self.manifests = Manifests(objects, chance)
        self.epoch = epoch
        self.pack_bytes = pack_bytes
        self.clock = clock
        self._chance = chance
        self._footers = Footers(objects)
        self._ordered: tuple[int, list[tuple[str, PackInfo]]] = (0, [])

    # -- writing ------------------------------------------------------------

    def write(
        self,
        images: Iterable[EncodedImage | Away],
        *,
        unless: Callable[[Manifest], None] | None = None,
    ) -> list[Pointer]:
        """Put images into packs and the packs into the manifest: all or none.

        Images are taken one by one; one pack is held in memory. It should end
        well within the minimum age of garbage collection: a pack that is in no
        manifest for so long is taken for a crashed job's.

        Args:
            images: What goes in; two of one session may, the later one counts.
            unless: Raises where the manifest that the packs come into (the
                newest one) says that they must not.

        Returns:
            A pointer to each, in order.

        Raises:
            UnavailableError: the store is away (then nothing was done, or
                packs that nobody points to), or code `collected`: again.
            FencedError: another job has taken over.
            CorruptDataError: a pack does not read back as it was written.
        """
        packing = self.packing()
        for image in images:
            if isinstance(image, Away):
                packing.add(*image, b"", 0)
            else:
                packing.add(*image)
        packed = packing.finish()
        if packed:
            self.take_in(packed, unless)
        return list(pointers(packed))

    def packing(self) -> Packing:
        """Return what makes packs here; `take_in` commits them."""
        boundary_ms = self.manifests.latest().boundary_ms

        def new_name() -> str:
            # A clock that is behind must not name packs as old as garbage.
            time_ms = max(self.clock(), boundary_ms)
            return pack_name(self.epoch, time_ms, self._chance(CHANCE_BYTES))

        return Packing(self.objects, new_name, self.pack_bytes)

    def take_in(
        self,
        packed: Sequence[Packed],
        unless: Callable[[Manifest], None] | None = None,
    ) -> Manifest:
        """Commit packs that were written.

        Raises:
            FencedError: another job has taken over.
            UnavailableError: the store is away, or code `collected`.
        """
        now_ms = self.clock()
        taken = with_packs({pack.name: pack.info(now_ms) for pack in packed})

        def change(manifest: Manifest) -> Manifest:
            if unless is not None:
                unless(manifest)
            return taken(manifest)

        committed = self.commit(change)
        for pack in packed:
            self._footers.learn(pack.name, pack.tail, pack.bloom)
        return committed

    def commit(self, change: Change) -> Manifest:
        """Commit any change of the manifest under the epoch of this store.

        Raises:
            FencedError: another job has taken over.
            UnavailableError: the store is away.
        """
        return self.manifests.commit(change, epoch=self.epoch)

    def fence(self, epoch: int) -> None:
        """Take over: from here on nobody with a smaller token commits.

        Raises:
            FencedError: a greater one has taken over already.
        """
        self.epoch = epoch
        self.commit(lambda manifest: manifest)

    # -- reading by pointer -----------------------------------------------------

    def read(self, pointer: Pointer) -> bytes:
        """Return an image, checked, in one request.

        Raises:
            NotFoundError: the pack is gone: look at the pointer once more.
            ChecksumError: the bytes are not those that were written.
        """
        data = self.objects.read(pointer.pack, pointer.offset, pointer.length)
        if len(data) != pointer.length or crc32c(data) != pointer.crc:
            raise ChecksumError(
                f"the image at {pointer.offset} of {pointer.pack} does not match"
                " its checksum",
                hint="put the pack back from a copy of the bucket, or rebuild the"
                " session from the log",
            )
        return data

    def read_front(self, pointer: Pointer) -> bytes:
        """Return the front of an image in one request: all but its text.

        Raises:
            NotFoundError: the pack is gone: look at the pointer once more.
            CorruptDataError: it is damaged, or another session's.
        """
        data = self.objects.read(pointer.pack, pointer.offset, pointer.front_bytes)
        front, end = decode_front(data)
        told = (front.incarnation, front.version, end)
        if told != (pointer.incarnation, pointer.version, pointer.front_bytes):
            raise CorruptDataError(
                f"in {pointer.pack} another image lies where version"
                f" {pointer.version} should",
                hint="put the pack back from a copy of the bucket",
            )
        return data

    def read_range(self, pointer: Pointer, offset: int, length: int) -> bytes:
        """Return a part of an image in one request; its reader checks it.

        Args:
            pointer: The image.
            offset: Of the first byte, from the beginning of the image.
            length: In bytes.

        Raises:
            NotFoundError: the pack is gone: look at the pointer once more.
            ChecksumError: the pack is cut.
        """
        assert 0 <= offset <= offset + length <= pointer.length
        data = self.objects.read(pointer.pack, pointer.offset + offset, length)
        if len(data) != length:
            raise ChecksumError(f"{pointer.pack} is cut")
        return data

    # -- reading by key -----------------------------------------------------------

    def find(self, key: bytes) -> Pointer | None:
        """Return where the newest image of a session is, None where none is.

        A list of manifests, then, of packs that were not looked into before:
        one request for the filter, one for the index where the filter says
        that the session may be there. Packs are asked the newest first.

        Raises:
            UnavailableError: the store is away.
            CorruptDataError: a footer is damaged, or a pack is lost.
        """
        return self.find_many([key])[0]

    def find_many(self, keys: Sequence[bytes]) -> list[Pointer | None]:
        """Return what `find` does for many sessions, by one manifest."""
        return self._settled(
            lambda manifest: [self.find_in(manifest, key) for key in keys]
        )

    def find_in(self, manifest: Manifest, key: bytes) -> Pointer | None:
        """Return what `find` does, by a manifest that was read already."""
        best: tuple[int, str, Entry] | None = None
        for name, info in self._newest_first(manifest):
            if best is not None and info.order <= best[0]:
                break
            entry = self._footers.entry(name, key)
            if entry is not None:
                order = entry.order or info.order
                if best is None or order > best[0]:
                    best = (order, name, entry)
        if best is None or not best[2].length:
            return None
        return pointer_to(best[1], best[2])

    def entries(self, pack: str) -> list[Entry]:
        """Return the index of a pack, in the order of its images.

        Raises:
            NotFoundError: it is gone.
            CorruptDataError: its footer is damaged.
        """
        return list(self._footers.index(pack).values())

    def entry(self, pack: str, key: bytes) -> Entry | None:
        """Return what a pack has of a session, by its filter where that says no."""
        return self._footers.entry(pack, key)

    def forget(self, packs: Iterable[str]) -> None:
        """Drop what is remembered of packs that are gone."""
        self._footers.forget(packs)

    @property
    def looks(self) -> Looks:
        """Return what finding sessions by key has cost so far."""
        return self._footers.looks

    def newest(self) -> dict[bytes, tuple[str, Entry]]:
        """Return what `find` would say of every key; tombstones are not in it.

        O(sessions) in memory: for a tier without pointers, and for lists.
        """

        def everything(manifest: Manifest) -> dict[bytes, tuple[str, Entry]]:
            found: dict[bytes, tuple[int, str, Entry]] = {}
            for name, info in manifest.newest_first():
                for entry in self.entries(name):
                    order = entry.order or info.order
                    if entry.key not in found or order > found[entry.key][0]:
                        found[entry.key] = (order, name, entry)
            return {
                key: (name, entry)
                for key, (_, name, entry) in found.items()
                if entry.length
            }

        return self._settled(everything)

    def _newest_first(self, manifest: Manifest) -> list[tuple[str, PackInfo]]:
        number, ordered = self._ordered
        if number != manifest.number:
            ordered = manifest.newest_first()
            self._ordered = (manifest.number, ordered)
        return ordered

    def _settled(self, look: Callable[[Manifest], _Found]) -> _Found:
        """Look by the newest manifest; by a newer one where packs went meanwhile."""
        manifest = self.manifests.latest()
        while True:
            self._footers.forget_all_but(manifest.packs)
            try:
                return look(manifest)
            except NotFoundError as error:
                newer = self.manifests.latest()
                if newer.number == manifest.number:
                    raise CorruptDataError(
                        f"manifest {manifest.number} has a pack that is lost:"
                        f" {error.message}",
                        hint="put it back from a copy of the bucket",
                    ) from error
                manifest = newer


def pointer_to(pack: str, entry: Entry) -> Pointer:
    """Return the pointer to an entry of a pack."""
    return Pointer(
        pack,
        entry.offset,
        entry.length,
        entry.front_bytes,
        entry.crc,
        entry.incarnation,
        entry.version,
    )


def pointers(packed: Iterable[Packed]) -> Iterator[Pointer]:
    """Yield a pointer to each entry of packs, in order."""
    for pack in packed:
        for entry in pack.entries:
            yield pointer_to(pack.name, entry)
