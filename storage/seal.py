"""Seal a session: the frames since the last seal become segments, read back."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec

from turnstate.schemas.clocks import Dot
from turnstate.schemas.dialogue.fold import Fold
from turnstate.schemas.dialogue.head import NodeState, encode_head
from turnstate.schemas.dialogue.phases import DialogueGraph
from turnstate.schemas.dialogue.turn_index import IdEntry, RefoldNeeded
from turnstate.schemas.operation import Op, target_of
from turnstate.storage.frames import header as layout
from turnstate.storage.frames import segment as segments
from turnstate.storage.frames.chain import START_LINK, link_of, verify_chain
from turnstate.storage.frames.codec import session_hash
from turnstate.storage.session_reader import (
    ID_FACTS,
    Chunk,
    FrameStore,
    chunks,
    decode_bases,
    encode_bases,
    fold_all,
    start_head,
)
from turnstate.storage.stored_head import StoredHead


class Sealed(NamedTuple):
    """What sealing leads to; commit it in one batch.

    Attributes:
        key: The session key.
        before: The head it was decided from.
        after: The same state, its frames sealed.
        segments: (to-version, segment), in order.
        replaced: The to-versions of the frames that go.
        records: The operations that are sealed; the first leads to one above
            the version that was sealed before.
    """

    key: bytes
    before: StoredHead
    after: StoredHead
    segments: list[tuple[int, bytes]]
    replaced: list[int]
    records: list[bytes]


class _Parts:
    """The parts of one session that sealing looks at, read once."""

    def __init__(self, store: FrameStore, key: bytes, stored: StoredHead) -> None:
        after = max(stored.sealed_version - 1, 0)
        self._life = (key, stored.head.incarnation)
        self._store = store
        self._parts = list(store.frames(*self._life, after))

    def frames(
        self, key: bytes, incarnation: int, after_version: int
    ) -> Iterator[bytes]:
        """Yield what leads above a version: not before the last segment."""
        assert self._life == (key, incarnation), "these are one session's parts"
        for part in self._parts:
            if layout.decode_header(part).to_version > after_version:
                yield part

    def base(self, key: bytes, incarnation: int, sealed_version: int) -> bytes | None:
        """Return the state that the frames since the last seal start from."""
        return self._store.base(key, incarnation, sealed_version)


def sealed(
    store: FrameStore,
    key: bytes,
    stored: StoredHead,
    graph: DialogueGraph,
    now_ms: int,
) -> Sealed | None:
    """Return the segments that replace the frames, None where there are none.

    Each segment is written, read back and compared before anyone is told;
    the frames go only with the batch that brings it.

    Raises:
        CorruptDataError: a frame is damaged; it stays as it is.
    """
    if stored.head.version == stored.sealed_version:
        return None
    parts = _Parts(store, key, stored)
    _check_chain(parts, key, stored)
    frames = list(chunks(parts, key, stored, stored.sealed_version))
    records = [record for frame in frames for record in frame.records]
    positions = segments.merged_positions(
        position for frame in frames for position in frame.positions
    )
    ends = segments.cuts(records)
    starts = _starts(store, key, stored, frames, ends, graph)
    made: list[tuple[int, bytes]] = []
    link, begin = stored.segment_link, 0
    for end, (head, bases) in zip(ends, starts, strict=True):
        first = stored.sealed_version + begin
        data = segments.encode_segment(
            segments.Contents(
                records[begin:end],
                head,
                stored.link,
                positions if end == ends[-1] else (),
                bases,
            ),
            session_hash=session_hash(key),
            incarnation=stored.head.incarnation,
            from_version=first,
            previous_link=link,
            time_ms=now_ms,
        )
        link, begin = link_of(data), end
        made.append((stored.sealed_version + end, data))
    after = msgspec.structs.replace(
        stored,
        sealed_version=stored.head.version,
        segment_link=link,
        frame_turns=0,
        frame_bytes=0,
    )
    replaced = [frame.header.to_version for frame in frames]
    return Sealed(key, stored, after, made, replaced, records)


def _check_chain(store: FrameStore, key: bytes, stored: StoredHead) -> None:
    """Follow the links from the last segment to the newest frame.

    A frame that was put in another's place is not made genuine by sealing it.

    Raises:
        BrokenChainError: the version is named.
    """
    start = START_LINK
    frames: list[bytes] = []
    after = max(stored.sealed_version - 1, 0)
    for part in store.frames(key, stored.head.incarnation, after):
        header = layout.decode_header(part)
        if header.kind == layout.SEGMENT:
            start = segments.open_segment(part).replaced_link
        elif header.kind == layout.FRAME and header.to_version > stored.sealed_version:
            frames.append(part)
    verify_chain(frames, start, newest_link=stored.link)


def _starts(
    store: FrameStore,
    key: bytes,
    stored: StoredHead,
    frames: Sequence[Chunk],
    ends: Sequence[int],
    graph: DialogueGraph,
) -> list[tuple[bytes, dict[Dot, bytes]]]:
    """Return what each segment starts from: its head, and what it must carry."""
    states, bases, ids = _carried(frames, stored.sealed_version)
    start = start_head(store, key, stored)
    found = [
        (
            encode_head(start) if start.version else b"",
            bases | encode_bases({}, ids),
        )
    ]
    if len(ends) == 1:
        return found
    ops = [Op.decode(record) for frame in frames for record in frame.records]
    fold = Fold(start, graph, ids, states)
    try:
        for at, op in enumerate(ops[: ends[-2]], start=1):
            fold.add(op)
            if at in ends:
                facts = _known(fold, ops[at : ends[len(found)]])
                carried = bases | encode_bases({}, facts)
                found.append((encode_head(fold.head()), carried))
    except RefoldNeeded:
        del found[1:]
        for at, end in pairwise(ends):
            fold = fold_all(store, key, stored, graph, stored.sealed_version + at)
            carried = bases | encode_bases({}, _known(fold, ops[at:end]))
            found.append((encode_head(fold.head()), carried))
    return found


def _carried(
    frames: Sequence[Chunk], sealed_version: int
) -> tuple[dict[Dot, NodeState], dict[Dot, bytes], dict[str, IdEntry]]:
    """Return the states that frames carry, and what the index said at the seal.

    The first word counts: a later one may know of a redaction, or of another
    answer to an id, that the fold of the segment comes to by itself. What came
    after the seal was not known at its start.
    """
    bases: dict[Dot, bytes] = {}
    states: dict[Dot, NodeState] = {}
    ids: dict[str, IdEntry] = {}
    for frame in frames:
        bases = {**frame.bases, **bases}
        given, facts = decode_bases(frame.bases)
        states = {**given, **states}
        ids = {**facts, **ids}
    bases.pop(ID_FACTS, None)
    known = {name: e for name, e in ids.items() if e.version <= sealed_version}
    return states, bases, known


def _known(fold: Fold, ops: Iterable[Op]) -> dict[str, IdEntry]:
    """Return what is known of the ids that operations, and parked ones, name."""
    parked = [op for _, op in fold.parked.values()]
    entries = {
        name: fold.entry(name) for op in (*ops, *parked) for name in ids_named(op)
    }
    return {name: entry for name, entry in entries.items() if entry is not None}


def ids_named(op: Op) -> Iterator[str]:
    """Yield the turn ids whose index entries an operation may have changed."""
    if op.turn_id is not None:
        yield op.turn_id
    yield from (parent for parent in op.parents if isinstance(parent, str))
    if op.body.target is not None:
        target = target_of(op)
        if isinstance(target, str):
            yield target
