"""Sealing: the frames since the last seal become one segment."""

from collections.abc import Mapping, Sequence

from turnstate.storage.frames.chain import NO_KEYS, verify_chain
from turnstate.storage.frames.header import decode_header
from turnstate.storage.frames.reader import read_operations
from turnstate.storage.frames.segment import Contents, encode_segment, merged_positions


def seal(
    frames: Sequence[bytes],
    *,
    start_head: bytes,
    newest_link: bytes | None = None,
    keys: Mapping[int, bytes | None] = NO_KEYS,
    key_id: int = 0,
    time_ms: int = 0,
) -> bytes:
    """Return the segment that replaces some frames, after reading it back.

    It holds the same operations in the same order, and in the chain it stands
    where the frames stood: it names the link that the first of them named.
    What comes next names the segment. The frames' own last link is kept in its
    body, so that an older record of it can still be matched.

    The chain of the frames is verified first: a forged frame must not become
    part of a segment that says it is whole.

    Args:
        frames: All frames since the last seal, in order; at least one.
        start_head: The head at the version that the first one starts from.
        newest_link: The link of the last one as it was kept elsewhere.
        keys: Key id → key of the frames, and `key_id`.
        key_id: The key that the segment's own link will be made with.
        time_ms: When it is sealed.

    Raises:
        BrokenChainError: the frames do not follow from one another.
        CorruptDataError: a frame cannot be read, or the segment not read back.
    """
    first = decode_header(frames[0])
    replaced = verify_chain(
        frames, first.previous_link, newest_link=newest_link, keys=keys
    )
    reading = read_operations(frames, after=first.from_version).required()
    return encode_segment(
        Contents(
            records=reading.records,
            start_head=start_head,
            replaced_link=replaced,
            positions=merged_positions(reading.positions),
            bases=reading.bases,
        ),
        session_hash=first.session_hash,
        incarnation=first.incarnation,
        from_version=first.from_version,
        previous_link=first.previous_link,
        key_id=key_id,
        time_ms=time_ms,
    )
