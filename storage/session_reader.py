"""Read one session back: its operations, its state at any version, any turn's state."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, overload

import msgspec

from turnstate.schemas.clocks import Dot
from turnstate.schemas.dialogue.fold import Fold
from turnstate.schemas.dialogue.head import (
    EMPTY_HEAD,
    Head,
    NodeState,
    decode_head,
    decode_node,
    encode_node,
)
from turnstate.schemas.dialogue.phases import DialogueGraph
from turnstate.schemas.dialogue.turn_index import IdEntry, RefoldNeeded, StateNeeded
from turnstate.schemas.errors import CorruptDataError, NotFoundError
from turnstate.schemas.operation import Op
from turnstate.storage.frames import header as layout
from turnstate.storage.frames.codec import decode_frame
from turnstate.storage.frames.dictionary import NEWEST
from turnstate.storage.frames.operations import PositionRange, decode_operations
from turnstate.storage.frames.segment import Segment, open_segment
from turnstate.storage.stored_head import StoredHead

ID_FACTS: Final = Dot("", 0)
"""The base state under which a frame keeps what the turn index said."""

_facts_encoder: Final = msgspec.msgpack.Encoder(order="deterministic")
_facts_decoder: Final = msgspec.msgpack.Decoder(dict[str, IdEntry])


class FrameStore(Protocol):
    """What the reader needs of a tier that keeps every version."""

    def frames(
        self, key: bytes, incarnation: int, after_version: int
    ) -> Iterator[bytes]:
        """Yield segments and frames that lead above a version."""
        ...

    def base(self, key: bytes, incarnation: int, sealed_version: int) -> bytes | None:
        """Return the state that the frames since the last seal start from."""
        ...


class _SegmentRecords(Sequence[bytes]):
    """The records of a segment, each made when it is asked for.

    Reading the last turns of a session then costs the same wherever its
    segments were cut.
    """

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._first = segment.header.from_version + 1

    def __len__(self) -> int:
        return self._segment.header.to_version - self._segment.header.from_version

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._segment.records())

    @overload
    def __getitem__(self, place: int) -> bytes: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[bytes]: ...

    def __getitem__(self, place: int | slice) -> bytes | Sequence[bytes]:
        if isinstance(place, slice):
            wanted = range(*place.indices(len(self)))
            if len(wanted) == len(self) and wanted.step == 1:
                return self._segment.records()
            return [self._segment.record(self._first + at) for at in wanted]
        return self._segment.record(self._first + range(len(self))[place])


class Chunk(NamedTuple):
    """One frame or segment, decoded.

    Attributes:
        header: Its header.
        records: Canonical records; the n-th leads to from-version + n.
        bases: States that it carries, encoded.
        start: The head that a segment starts from; None for a frame.
        positions: The log positions that the operations came from.
    """

    header: layout.Header
    records: Sequence[bytes]
    bases: Mapping[Dot, bytes]
    start: Head | None
    positions: Sequence[PositionRange]


def encode_bases(
    states: Mapping[Dot, NodeState], ids: Mapping[str, IdEntry]
) -> dict[Dot, bytes]:
    """Return what a frame must carry so that it folds by itself."""
    bases = {dot: encode_node(state) for dot, state in states.items()}
    if ids:
        bases[ID_FACTS] = _facts_encoder.encode(dict(ids))
    return bases


def decode_bases(
    bases: Mapping[Dot, bytes],
) -> tuple[dict[Dot, NodeState], dict[str, IdEntry]]:
    """Invert `encode_bases`."""
    try:
        states = {
            dot: decode_node(data) for dot, data in bases.items() if dot != ID_FACTS
        }
        facts = bases.get(ID_FACTS)
        return states, _facts_decoder.decode(facts) if facts else {}
    except (msgspec.MsgspecError, ValueError) as error:
        raise CorruptDataError(f"the base state of a frame: {error}") from error


def chunks(
    store: FrameStore,
    key: bytes,
    stored: StoredHead,
    after_version: int = 0,
    *,
    with_starts: bool = True,
) -> Iterator[Chunk]:
    """Yield the decoded segments and frames that lead above a version.

    Frames since the last seal use the records before them as dictionary, so
    reading one of them reads those before it: at most one segment's worth.

    Raises:
        CorruptDataError: a frame is damaged; the message names its version.
    """
    incarnation = stored.head.incarnation
    recent, have = NEWEST, stored.sealed_version
    start = min(after_version, stored.sealed_version)
    for data in store.frames(key, incarnation, start):
        header = layout.decode_header(data)
        if header.kind == layout.SEGMENT:
            segment = open_segment(data)
            yield Chunk(
                header,
                _SegmentRecords(segment),
                segment.bases,
                _head_of(segment.start_head) if with_starts else None,
                segment.positions,
            )
        elif header.kind == layout.FRAME:
            if header.to_version <= stored.sealed_version:
                continue
            _, body = decode_frame(data, dictionary=recent)
            frame = decode_operations(body)
            known = max(have - header.from_version, 0)
            recent += b"".join(frame.records[known:])
            have = header.to_version
            if header.to_version > after_version:
                yield Chunk(header, frame.records, frame.bases, None, frame.positions)


def _head_of(data: bytes) -> Head:
    try:
        return decode_head(data) if data else EMPTY_HEAD
    except (msgspec.MsgspecError, ValueError) as error:
        raise CorruptDataError(f"a start head cannot be read: {error}") from error


def start_head(store: FrameStore, key: bytes, stored: StoredHead) -> Head:
    """Return the head that the frames since the last seal start from.

    Raises:
        CorruptDataError: it is not there, though frames are.
    """
    if not stored.sealed_version:
        return Head(incarnation=stored.head.incarnation)
    if stored.head.version == stored.sealed_version:
        return stored.head
    row = store.base(key, stored.head.incarnation, stored.sealed_version)
    if row is None:
        raise CorruptDataError(
            f"the state at the seal, version {stored.sealed_version}, is missing",
            field=f"version {stored.sealed_version}",
        )
    return _head_of(decode_frame(row)[1])


def operations(
    store: FrameStore,
    key: bytes,
    stored: StoredHead,
    after_version: int = 0,
    to_version: int | None = None,
) -> Iterator[tuple[int, Op]]:
    """Yield (version, operation) in version order, each version once.

    Raises:
        CorruptDataError: a version is missing or damaged.
    """
    end = stored.head.version if to_version is None else to_version
    have = after_version
    for chunk in chunks(store, key, stored, after_version, with_starts=False):
        first = chunk.header.from_version
        if first > have:
            break
        for record in chunk.records[have - first : end - first]:
            have += 1
            yield have, _decoded(record)
        if have >= end:
            return
    if have < end:
        raise CorruptDataError(
            f"version {have + 1} of the session is missing",
            field=f"version {have + 1}",
            hint="rebuild the session from the log: turnstate verify --repair",
        )


def _decoded(record: bytes) -> Op:
    try:
        return Op.decode(record)
    except (msgspec.MsgspecError, ValueError, TypeError) as error:
        raise CorruptDataError(f"an operation cannot be read: {error}") from error


def fold_at(
    store: FrameStore,
    key: bytes,
    stored: StoredHead,
    version: int,
    graph: DialogueGraph,
) -> Fold:
    """Return the fold of the first `version` operations; reads one segment.

    Raises:
        NotFoundError: the session never was at that version.
        CorruptDataError: what it needs is damaged.
    """
    if not 0 <= version <= stored.head.version:
        raise NotFoundError(
            f"version {version} is above the top, {stored.head.version}",
            field="version",
        )
    if version == 0:
        return Fold(Head(incarnation=stored.head.incarnation), graph, {})
    try:
        return _folded_from_nearest(store, key, stored, version, graph)
    except (RefoldNeeded, StateNeeded):
        return fold_all(store, key, stored, graph, version)


def _folded_from_nearest(
    store: FrameStore,
    key: bytes,
    stored: StoredHead,
    version: int,
    graph: DialogueGraph,
) -> Fold:
    incarnation = stored.head.incarnation
    fold: Fold | None = None
    if version > stored.sealed_version:
        fold = Fold(start_head(store, key, stored), graph, {}, {})
        after = stored.sealed_version
    else:
        after = version - 1
    for chunk in chunks(store, key, stored, after):
        states, ids = decode_bases(chunk.bases)
        if fold is None:
            assert chunk.start is not None
            start = chunk.start
            if start is EMPTY_HEAD:
                start = Head(incarnation=incarnation)
            fold = Fold(start, graph, ids, states)
        else:
            fold.learn(ids, states)
        first = chunk.header.from_version
        for record in chunk.records[fold.version - first : version - first]:
            fold.add(_decoded(record))
        if fold.version == version:
            return fold
    raise CorruptDataError(
        f"version {version} of the session cannot be reached",
        field=f"version {version}",
    )


def fold_all(
    store: FrameStore,
    key: bytes,
    stored: StoredHead,
    graph: DialogueGraph,
    version: int | None = None,
) -> Fold:
    """Return the fold of all operations up to a version, from the first one.

    O(length of the session); every turn's state is kept in `fold.states`.
    """
    everything = list(operations(store, key, stored, 0, version))
    incarnation = stored.head.incarnation
    try:
        fold = Fold(Head(incarnation=incarnation), graph, {}, {})
        for at, op in everything:
            fold.add(op, version=at)
    except RefoldNeeded:
        fold = Fold(Head(incarnation=incarnation), graph, {}, {})
        for at, op in sorted(everything, key=lambda pair: pair[1].order):
            fold.add(op, version=at)
    return fold


def state_of_turn(
    store: FrameStore,
    key: bytes,
    stored: StoredHead,
    dot: Dot,
    graph: DialogueGraph,
) -> NodeState | None:
    """Return the state at a turn that is no live head, None where it is parked.

    One segment is read where the version equals the counter, as it does
    where one log stamps the whole session; else the session is folded anew.
    """
    version = dot.counter
    if version <= stored.head.version:
        try:
            fold = fold_at(store, key, stored, version, graph)
        except NotFoundError:
            fold = None
        if fold is not None and dot in fold.states:
            return fold.states[dot]
    return fold_all(store, key, stored, graph).states.get(dot)
