"""Verify one session of the warm store: every checksum, link, row and the fold."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from turnstate.schemas.dialogue.fold import Fold
from turnstate.schemas.dialogue.head import Head, digest, encode_head
from turnstate.schemas.dialogue.phases import DialogueGraph
from turnstate.schemas.dialogue.turn_index import IdEntry, RefoldNeeded, StateNeeded
from turnstate.schemas.errors import CorruptDataError, TurnstateError
from turnstate.schemas.ids import turn_id_hash
from turnstate.schemas.operation import Op
from turnstate.schemas.wire.text import text_bytes_of
from turnstate.storage.frames import header as layout
from turnstate.storage.frames.chain import START_LINK, verify_chain
from turnstate.storage.frames.codec import decode_frame, session_hash
from turnstate.storage.frames.segment import open_segment
from turnstate.storage.session_image import SessionImage
from turnstate.storage.session_reader import chunks, fold_all, start_head
from turnstate.storage.stored_head import StoredHead, decode_entry
from turnstate.storage.warm.rocksdb import WarmStore
from turnstate.storage.warm.tables import FRAMES, INDEX, SEGMENTS, life_prefix

WARM: Final = "warm"
COLD: Final = "cold"


class Fault(NamedTuple):
    """One thing that is wrong, with where it is.

    Attributes:
        key: The session key; None where it is no session's.
        tier: The tier, or the table of the store, that it lies in.
        version: The version that it concerns, if one can be named.
        why: What is wrong, in words.
    """

    key: bytes | None
    tier: str
    version: int | None
    why: str


class Verified(NamedTuple):
    """What was found of one session.

    Attributes:
        frames: Frames and segments that were read.
        versions: Operations that were folded again.
        faults: What is wrong; empty if nothing is.
    """

    frames: int
    versions: int
    faults: list[Fault]


class _Held:
    """A session's rows as they were read once, for the reader to go over."""

    def __init__(self, parts: Sequence[bytes], base: bytes | None) -> None:
        self._parts = parts
        self._base = base

    def frames(
        self, key: bytes, incarnation: int, after_version: int
    ) -> Iterator[bytes]:
        """Yield the parts; the reader skips what it has."""
        del key, incarnation
        for part in self._parts:
            if layout.decode_header(part).to_version > after_version:
                yield part

    def base(self, key: bytes, incarnation: int, sealed_version: int) -> bytes | None:
        """Return the state at the seal."""
        del key, incarnation, sealed_version
        return self._base


def verify_session(
    store: WarmStore,
    key: bytes,
    stored: StoredHead,
    graph: DialogueGraph,
    image: SessionImage | None = None,
) -> Verified:
    """Check everything that is stored of a session against everything else.

    Checksums of every frame and segment; both chains against the links that
    the head keeps; the fold of all operations, from the first one, against
    the head and against the state that each segment starts from; the turn
    index and the text bytes against the operations. O(length of the session).

    Never raises for damage, wherever it is.

    Args:
        store: The warm store.
        key: The session key.
        stored: Its head as it was read.
        graph: The dialogue graph it was folded under.
        image: All its rows, where it is cold.
    """
    check = _Check(store, key, stored, graph, image)
    for part in (check.rows, check.chains, check.fold, check.index):
        try:
            part()
        except TurnstateError as error:
            check.fault(str(error), _version_of(error))
            break
        except (StateNeeded, KeyError, ValueError, AssertionError) as error:
            # Damage that passes every checksum shows as a broken promise.
            check.fault(f"the operations do not fold: {error!r}", None)
            break
    return Verified(len(check.parts), len(check.ops), check.faults)


class _Check:
    def __init__(
        self,
        store: WarmStore,
        key: bytes,
        stored: StoredHead,
        graph: DialogueGraph,
        image: SessionImage | None,
    ) -> None:
        self.store = store
        self.image = image
        self.key = key
        self.stored = stored
        self.graph = graph
        self.prefix = life_prefix(key, stored.head.incarnation)
        self.faults: list[Fault] = []
        self.parts: list[bytes] = []
        self.sealed: list[bytes] = []
        self.recent: list[bytes] = []
        self.ops: list[Op] = []
        self.starts: dict[int, Head] = {}
        self.ids: Mapping[str, IdEntry] = {}

    def fault(self, why: str, version: int | None) -> None:
        tier = WARM if self.image is None else COLD
        self.faults.append(Fault(self.key, tier, version, why))

    def rows(self) -> None:
        """Read every row of the session's frames and segments."""
        base: bytes | None = None
        if self.image is not None:
            base = self.image.base
            for part in self.image.frames:
                is_sealed = layout.decode_header(part).kind == layout.SEGMENT
                (self.sealed if is_sealed else self.recent).append(part)
        else:
            base = self._warm_rows()
        self.parts = [*self.sealed, *self.recent]
        if base is not None:
            decode_frame(base)
            if not self.recent:
                self.fault("a state at the seal is kept without frames", None)
        self.held = _Held(self.parts, base)

    def _warm_rows(self) -> bytes | None:
        base: bytes | None = None
        for table in (SEGMENTS, FRAMES):
            kept = self.sealed if table == SEGMENTS else self.recent
            for at, row in self.store.rows(table, self.prefix):
                header = layout.decode_header(row)
                version = int.from_bytes(at[len(self.prefix) :], "big")
                if version != header.to_version:
                    raise CorruptDataError(
                        f"version {header.to_version} lies under version {version}",
                        field=f"version {version}",
                    )
                if header.kind == layout.HEAD:
                    base = row
                else:
                    kept.append(row)
        return base

    def _index_rows(self) -> Iterator[tuple[bytes, bytes]]:
        if self.image is not None:
            yield from self.image.entries
            return
        start = len(self.prefix)
        for at, row in self.store.rows(INDEX, self.prefix):
            yield at[start:], row

    def chains(self) -> None:
        """Follow both chains to the links that the head keeps apart from them."""
        stored, mine = self.stored, session_hash(self.key)
        top = 0
        for part in self.parts:
            header = layout.decode_header(part)
            named = (header.session_hash, header.incarnation)
            if named != (mine, stored.head.incarnation):
                raise CorruptDataError(
                    "a frame belongs to another session",
                    field=f"version {header.to_version}",
                )
            if header.from_version != top:
                raise CorruptDataError(
                    f"version {top + 1} of the session is missing",
                    field=f"version {top + 1}",
                )
            top = header.to_version
            if top == stored.sealed_version and header.kind == layout.FRAME:
                raise CorruptDataError("a frame is sealed", field=f"version {top}")
        if top != stored.head.version:
            raise CorruptDataError(
                f"the head is at version {stored.head.version}, frames lead to {top}",
                field=f"version {top}",
            )
        verify_chain(self.sealed, START_LINK, newest_link=stored.segment_link)
        replaced = (
            open_segment(self.sealed[-1]).replaced_link if self.sealed else START_LINK
        )
        verify_chain(self.recent, replaced, newest_link=stored.link)

    def fold(self) -> None:
        """Fold every operation again and compare each head that is stored."""
        stored, held = self.stored, self.held
        for chunk in chunks(held, self.key, stored):
            self.ops += map(Op.decode, chunk.records)
            if chunk.start is not None:
                self.starts[chunk.header.from_version] = chunk.start
        if self.recent:
            self.starts[stored.sealed_version] = start_head(held, self.key, stored)
        self.starts.pop(0, None)
        incarnation = stored.head.incarnation
        try:
            fold = Fold(Head(incarnation=incarnation), self.graph, {}, {})
            for version, op in enumerate(self.ops, start=1):
                fold.add(op)
                if version in self.starts:
                    self._compare(fold.head(), self.starts[version], version)
        except RefoldNeeded:
            fold = fold_all(held, self.key, stored, self.graph)
        self._compare(fold.head(), stored.head, stored.head.version)
        self.ids = fold.ids_changed
        text = sum(map(text_bytes_of, self.ops))
        if text != stored.text_bytes:
            self.fault(f"text_bytes is {stored.text_bytes}, it has {text}", None)

    def _compare(self, folded: Head, kept: Head, version: int) -> None:
        if encode_head(folded) == encode_head(kept):
            return
        if digest(folded) != digest(kept):
            self.fault("folded again it has another digest", version)
            return
        for name in ("version", "parked", "asides", "moves"):
            if getattr(folded, name) != getattr(kept, name):
                self.fault(f"folded again, {name} of the head differ", version)

    def index(self) -> None:
        """Compare every entry of the turn index with the operations."""
        wanted = {turn_id_hash(name): entry for name, entry in self.ids.items()}
        asides = {
            version
            for version, op in enumerate(self.ops, start=1)
            if op.body.op in ("edit", "redact")
        }
        wrong: dict[str, list[int]] = {}
        for suffix, row in self._index_rows():
            kind, rest = suffix[:1], suffix[1:]
            if kind == b"e":
                version = int.from_bytes(rest, "big")
                if version not in asides:
                    wrong.setdefault("an edit that is none", []).append(version)
                asides.discard(version)
                continue
            entry = wanted.pop(rest, None)
            found = decode_entry(row, self.store.log_name)
            if entry is None:
                wrong.setdefault("a turn that never came", []).append(found.version)
            elif entry != found:
                wrong.setdefault("a turn otherwise", []).append(entry.version)
        lacking = [*asides, *(entry.version for entry in wanted.values())]
        for what, versions in wrong.items():
            self.fault(f"the index names {what}, {len(versions)} times", min(versions))
        if lacking:
            why = f"the index lacks {len(lacking)} turns or edits"
            self.fault(why, min(lacking))


def _version_of(error: TurnstateError) -> int | None:
    words = (error.field or "").split()
    if len(words) == 2 and words[0] == "version" and words[1].isdigit():
        return int(words[1])
    return None
