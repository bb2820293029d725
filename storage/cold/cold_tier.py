"""The cold tier behind the contract of all tiers, for those who have no pointers."""

from collections.abc import Iterator, Sequence
from typing import Final

from turnstate.schemas.dialogue.turn_index import IdEntry
from turnstate.schemas.errors import CorruptDataError, FencedError, NotFoundError
from turnstate.schemas.ids import turn_id_hash
from turnstate.storage.cold.manifest import Manifest
from turnstate.storage.cold.pointer import Pointer
from turnstate.storage.cold.store import Away, PackStore
from turnstate.storage.frames.header import SEGMENT, decode_header
from turnstate.storage.session_image import (
    Front,
    IndexRow,
    SessionImage,
    decode_front,
    decode_image,
    decode_index,
    encode_image,
)
from turnstate.storage.stored_head import (
    StoredHead,
    decode_entry,
    decode_stored_head,
    encode_entry,
)
from turnstate.storage.tier import HAS_INDEX, KEEPS_ALL, SessionChange

_VERSION_BYTES: Final = 5
"""Of the version in the index row of an edit or redaction, as in the warm tier."""


class ColdTier:
    """Keep sessions in packs, found by key; each commit writes them anew.

    Meant for few, large commits: one makes a pack, and a session that changes
    is written whole. The pipeline keeps pointers and uses `PackStore` itself.

    Args:
        store: The packs.
        log_name: The name under which the log stamps; index rows are relative
            to it.
    """

    name = "cold"
    capabilities = frozenset({KEEPS_ALL, HAS_INDEX})

    def __init__(self, store: PackStore, *, log_name: str) -> None:
        self.store = store
        self.log_name = log_name

    def heads(self, keys: Sequence[bytes]) -> list[StoredHead | None]:
        """Return the heads of sessions: a range request for each."""
        return [
            None if found is None else decode_stored_head(found[1].row)
            for found in self._fronts(keys)
        ]

    def ids(self, lookups: Sequence[tuple[bytes, int, str]]) -> list[IdEntry | None]:
        """Return the index entries of (session key, incarnation, turn id)s."""
        keys = list(dict.fromkeys(key for key, _, _ in lookups))
        fronts = dict(zip(keys, self._fronts(keys), strict=True))
        rows = {key: self._index(found) for key, found in fronts.items() if found}
        entries: list[IdEntry | None] = []
        for key, incarnation, turn_id in lookups:
            found = fronts[key]
            row = None
            if found is not None and found[1].incarnation == incarnation:
                row = rows[key].get(b"i" + turn_id_hash(turn_id))
            entries.append(None if row is None else decode_entry(row, self.log_name))
        return entries

    def frames(
        self, key: bytes, incarnation: int, after_version: int
    ) -> Iterator[bytes]:
        """Yield segments, then frames, that lead above a version; one request."""
        found = self._front(key, incarnation)
        if found is None:
            return
        pointer, front = found
        parts = [part for part in front.frames if part.to_version > after_version]
        if not parts:
            return
        begin = min(part.offset for part in parts)
        end = max(part.offset + part.length for part in parts)
        at = pointer.front_bytes + begin
        data = self.store.read_range(pointer, at, end - begin)
        for part in parts:
            yield part.taken_from(data, begin)

    def base(self, key: bytes, incarnation: int, sealed_version: int) -> bytes | None:
        """Return the frame of kind head that the frames since the seal start from."""
        found = self._front(key, incarnation)
        if found is None:
            return None
        stored = decode_stored_head(found[1].row)
        return found[1].base if stored.sealed_version == sealed_version else None

    def asides(self, key: bytes, incarnation: int) -> list[int]:
        """Return the versions of a session's edits and redactions."""
        found = self._front(key, incarnation)
        if found is None:
            return []
        return [
            int.from_bytes(suffix[1:], "big")
            for suffix in self._index(found)
            if suffix[:1] == b"e"
        ]

    def commit(self, changes: Sequence[SessionChange]) -> None:
        """Take all of the changes or none: one commit of the manifest.

        Raises:
            FencedError: a stored head is not the one of `before`, or another
                job has taken over the tier.
        """
        keys = list(dict.fromkeys(change.key for change in changes))
        found = dict(zip(keys, self.store.find_many(keys), strict=True))
        images = {
            key: None if pointer is None else decode_image(self.store.read(pointer))
            for key, pointer in found.items()
        }
        for change in changes:
            image = images[change.key]
            _check(change, image)
            images[change.key] = applied(image, change, self.log_name)

        def unless(manifest: Manifest) -> None:
            if any(self.store.find_in(manifest, key) != found[key] for key in keys):
                raise _fenced()

        self.store.write(
            (encode_image(image) for image in images.values() if image is not None),
            unless=unless,
        )

    def drop(self, key: bytes) -> None:
        """Forget a session: what older packs have of it is hidden."""
        pointer = self.store.find(key)
        if pointer is not None:
            self.store.write([Away(key, pointer.incarnation, pointer.version)])

    def keys(self, prefix: bytes = b"", after: bytes = b"") -> Iterator[bytes]:
        """Yield session keys in byte order; reads the index of every pack."""
        for key in sorted(self.store.newest()):
            if key > after and key.startswith(prefix):
                yield key

    def _fronts(self, keys: Sequence[bytes]) -> list[tuple[Pointer, Front] | None]:
        """Return where sessions are and their fronts."""
        try:
            return self._fronts_at(keys, self.store.find_many(keys))
        except NotFoundError:
            pass  # compacted and collected meanwhile: the copies are elsewhere
        try:
            return self._fronts_at(keys, self.store.find_many(keys))
        except NotFoundError as error:
            raise CorruptDataError(f"a pack is lost: {error.message}") from error

    def _fronts_at(
        self, keys: Sequence[bytes], pointers: Sequence[Pointer | None]
    ) -> list[tuple[Pointer, Front] | None]:
        found: list[tuple[Pointer, Front] | None] = []
        for key, pointer in zip(keys, pointers, strict=True):
            if pointer is None:
                found.append(None)
                continue
            front, _ = decode_front(self.store.read_front(pointer))
            if front.key != key:
                raise CorruptDataError(f"{pointer.pack} holds another session")
            found.append((pointer, front))
        return found

    def _front(self, key: bytes, incarnation: int) -> tuple[Pointer, Front] | None:
        (found,) = self._fronts([key])
        if found is None or found[1].incarnation != incarnation:
            return None
        return found

    def _index(self, found: tuple[Pointer, Front]) -> dict[bytes, bytes]:
        pointer, front = found
        part = front.index
        at = pointer.front_bytes + part.offset
        data = self.store.read_range(pointer, at, part.length)
        rows = decode_index(part.taken_from(data, part.offset))
        return {entry.suffix: entry.row for entry in rows}


def applied(
    image: SessionImage | None, change: SessionChange, log_name: str
) -> SessionImage:
    """Return the image of a session after a change, as warm would store its rows.

    Args:
        image: The session before, None where it is new here.
        change: What comes.
        log_name: The name under which the log stamps.
    """
    head = change.after.head
    before = None if change.erased else change.woken or image
    if before is not None and before.incarnation != head.incarnation:
        before = None
    frames = list(before.frames) if before else []
    index = {entry.suffix: entry.row for entry in before.entries} if before else {}
    base = before.base if before else None
    if change.frame is not None:
        frames = _with_frame(frames, change.frame, head.version)
    for turn_id, entry in change.ids.items():
        index[b"i" + turn_id_hash(turn_id)] = encode_entry(entry, log_name)
    for version in change.asides:
        index[b"e" + version.to_bytes(_VERSION_BYTES, "big")] = b""
    return SessionImage(
        change.key,
        head.incarnation,
        head.version,
        change.row,
        base if change.base is None else change.base,
        frames,
        [IndexRow(suffix, index[suffix]) for suffix in sorted(index)],
    )


def _with_frame(frames: Sequence[bytes], frame: bytes, version: int) -> list[bytes]:
    """Put a frame behind the others, in the place of one that led there too."""

    def place(each: bytes) -> tuple[bool, int]:
        header = decode_header(each)
        return header.kind != SEGMENT, header.to_version

    others = [each for each in frames if place(each) != (True, version)]
    return sorted([*others, frame], key=place)


def _check(change: SessionChange, image: SessionImage | None) -> None:
    there = change.before.head
    stands = (there.incarnation, there.version)
    if image is None and there.version:
        raise _fenced()
    if image is not None and (image.incarnation, image.version) != stands:
        raise _fenced()


def _fenced() -> FencedError:
    return FencedError(
        "the cold tier holds another version than this was decided from",
        hint="another owner writes this session: stop",
    )
