"""Seal a session: the frames since the last seal become segments, read back."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from turnstate.schemas.clocks import Dot
from turnstate.schemas.dialogue.fold import Fold, IdEntry, RefoldNeeded
from turnstate.schemas.dialogue.head import encode_head
from turnstate.schemas.dialogue.phases import DialogueGraph
from turnstate.schemas.operation import Op
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
    """

    key: bytes
    before: StoredHead
    after: StoredHead
    segments: list[tuple[int, bytes]]


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
    _check_chain(store, key, stored)
    frames = list(chunks(store, key, stored, stored.sealed_version))
    records = [record for frame in frames for record in frame.records]
    bases = _merged_bases(frames)
    positions = segments.merged_positions(
        position for frame in frames for position in frame.positions
    )
    ends = segments.cuts(records)
    heads = _start_heads(store, key, stored, records, bases, ends, graph)
    made: list[tuple[int, bytes]] = []
    link, begin = stored.segment_link, 0
    for end, head in zip(ends, heads, strict=True):
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
    return Sealed(key, stored, after, made)


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
        elif (
            header.kind == layout.FRAME and header.to_version > stored.sealed_version
        ):
            frames.append(part)
    verify_chain(frames, start, newest_link=stored.link)


def _merged_bases(frames: Sequence[Chunk]) -> dict[Dot, bytes]:
    """Return what all frames carry; of what the index said, the first word."""
    bases: dict[Dot, bytes] = {}
    facts: dict[str, IdEntry] = {}
    for frame in frames:
        bases.update(frame.bases)
        facts = {**decode_bases(frame.bases)[1], **facts}
    bases.pop(ID_FACTS, None)
    return bases | encode_bases({}, facts)


def _start_heads(
    store: FrameStore,
    key: bytes,
    stored: StoredHead,
    records: Sequence[bytes],
    bases: Mapping[Dot, bytes],
    ends: Sequence[int],
    graph: DialogueGraph,
) -> list[bytes]:
    """Return the encoded head that each segment starts from."""
    start = start_head(store, key, stored)
    heads = [encode_head(start) if start.version else b""]
    if len(ends) == 1:
        return heads
    states, ids = decode_bases(bases)
    fold = Fold(start, graph, ids, states)
    try:
        for at, record in enumerate(records[: ends[-2]], start=1):
            fold.add(Op.decode(record))
            if at in ends:
                heads.append(encode_head(fold.head()))
    except RefoldNeeded:
        heads[1:] = [
            encode_head(
                fold_all(
                    store, key, stored, graph, stored.sealed_version + end
                ).head()
            )
            for end in ends[:-1]
        ]
    return heads
