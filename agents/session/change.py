"""Make one session's outcome into a change: head, frame, link, index entries."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from turnstate.agents.session.step import Arrival, Outcome
from turnstate.schemas.dialogue.head import encode_head
from turnstate.schemas.operation import Op
from turnstate.schemas.position import Position
from turnstate.schemas.wire.text import text_bytes_of
from turnstate.storage.frames import header as layout
from turnstate.storage.frames.chain import START_LINK, link_of
from turnstate.storage.frames.codec import encode_frame, session_hash
from turnstate.storage.frames.operations import PositionRange, encode_operations
from turnstate.storage.session_reader import encode_bases
from turnstate.storage.stored_head import (
    NO_SESSION,
    StoredHead,
    encode_stored_head,
)
from turnstate.storage.tier import SessionChange

_LOG_BYTES: Final = 4
"""Of a log's identity in a frame: enough to tell the logs of a session apart."""

_session_hash: Final = lru_cache(maxsize=65_536)(session_hash)


def change_of(
    key: bytes,
    stored: StoredHead,
    outcome: Outcome,
    arrivals: Sequence[Arrival],
    now_ms: int,
    dictionary: bytes = b"",
) -> SessionChange | None:
    """Return what a store has to take, None where nothing changed.

    Args:
        key: The session key.
        stored: The head that was decided from.
        outcome: What was decided.
        arrivals: What it was decided about.
        now_ms: When it arrived.
        dictionary: What the frame is written against, see `Tails`; none in a
            flood.
    """
    ops, head = outcome.ops, outcome.head
    if not ops and not outcome.erased:
        return None
    last = arrivals[-1].position
    start = NO_SESSION if outcome.erased else stored
    frame, base, link = None, None, start.link
    size = 0
    if ops:
        hashed = _session_hash(key)
        if start.head.version and start.head.version == start.sealed_version:
            base = _base_frame(start, hashed, now_ms)
        records = [op.record for op in ops]
        size = sum([len(record) for record in records])
        first = arrivals[0].position
        frame = encode_frame(
            layout.FRAME,
            encode_operations(
                records,
                (_range(first, last),),
                encode_bases(outcome.bases, outcome.ids_used)
                if outcome.bases or outcome.ids_used
                else None,
            ),
            session_hash=hashed,
            incarnation=head.incarnation,
            from_version=head.version - len(ops),
            to_version=head.version,
            previous_link=link,
            dictionary=b"" if outcome.erased else dictionary,
            time_ms=now_ms,
        )
        link = link_of(frame)
    after = StoredHead(
        head,
        last,
        link,
        start.sealed_version,
        start.segment_link,
        start.frame_turns + len(ops),
        start.frame_bytes + size,
        start.text_bytes + sum([text_bytes_of(op) for op in ops]),
        now_ms,
        start.owner or _owner(ops),
        bool(outcome.erased)
        or (stored.erased and stored.head.incarnation == head.incarnation),
    )
    return SessionChange(
        key,
        stored,
        after,
        encode_stored_head(after),
        frame,
        outcome.ids_changed,
        _asides(ops, head.version),
        base,
        outcome.erased,
    )


def _range(first: Position, last: Position) -> PositionRange:
    return PositionRange(
        first.log[:_LOG_BYTES],
        first.partition,
        (first.offset, first.index),
        (last.offset, last.index),
    )


def _base_frame(stored: StoredHead, hashed: bytes, now_ms: int) -> bytes:
    version = stored.head.version
    return encode_frame(
        layout.HEAD,
        encode_head(stored.head),
        session_hash=hashed,
        incarnation=stored.head.incarnation,
        from_version=version,
        to_version=version,
        previous_link=START_LINK,
        time_ms=now_ms,
    )


def _asides(ops: Sequence[Op], top: int) -> tuple[int, ...]:
    found = [at for at, op in enumerate(ops) if op.body.op in ("edit", "redact")]
    return tuple([top - len(ops) + 1 + at for at in found]) if found else ()


def _owner(ops: Sequence[Op]) -> str | None:
    for op in ops:
        if op.body.user is not None:
            return op.body.user
    return None
