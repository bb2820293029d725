"""Make records, frames and segments as a store holds them."""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, Final

from turnstate.schemas.clocks import Dot
from turnstate.schemas.operation import Body, Op, encode_body
from turnstate.storage.frames import header
from turnstate.storage.frames.chain import START_LINK, link_of
from turnstate.storage.frames.codec import dictionary_of, encode_frame, session_hash
from turnstate.storage.frames.operations import PositionRange, encode_operations
from turnstate.storage.frames.segment import Contents, encode_segment

SESSION: Final = session_hash(b"\x00\x01ts")


def turn_record(number: int, text: str | None = None, **fields: Any) -> bytes:
    """Return the record of a log's turn, the number being its counter."""
    before = number - 1
    fields = {
        "role": "user" if number % 2 else "assistant",
        "content": f"Is there a table for {number}?" if text is None else text,
        "metadata": b'{"services":["Restaurants_1"],"topic_switch":false}',
        **fields,
    }
    body = Body(**fields)
    return Op.stamped(
        body,
        encode_body(body),
        dot=Dot("log", number),
        lamport=number,
        seen={"log": before} if before else {},
        incarnation=1,
        parents=(Dot("log", before),) if before else (),
        turn_id=str(before),
        time=1_700_000_000_000 + 2_500 * number,
    ).record


def turn_records(count: int) -> list[bytes]:
    """Return the records of a plain dialogue."""
    return [turn_record(number) for number in range(1, count + 1)]


def frame(body: bytes = b"body", **changes: Any) -> bytes:
    """Return a frame; whatever is not given is usual."""
    fields: dict[str, Any] = {
        "session_hash": SESSION,
        "incarnation": 1,
        "from_version": 0,
        "to_version": 1,
        "previous_link": START_LINK,
        **changes,
    }
    return encode_frame(fields.pop("kind", header.FRAME), body, **fields)


def frames_of(
    records: Sequence[bytes],
    sizes: Sequence[int],
    *,
    after: int = 0,
    link: bytes = START_LINK,
    key: bytes | None = None,
    with_dictionary: bool = False,
) -> list[bytes]:
    """Return a chain of frames of so many operations each."""
    frames: list[bytes] = []
    for begin, end in pairwise(accumulate(sizes, initial=0)):
        position = PositionRange(b"the log", 0, (begin, 0), (end - 1, 0))
        frames.append(
            frame(
                encode_operations(records[begin:end], [position]),
                from_version=after + begin,
                to_version=after + end,
                previous_link=link,
                dictionary=dictionary_of(b"".join(records[:begin]))
                if with_dictionary
                else b"",
                key_id=1 if key else 0,
            )
        )
        link = link_of(frames[-1], key)
    return frames


def segment(
    records: Sequence[bytes], after: int = 0, *, link: bytes = START_LINK, **more: Any
) -> bytes:
    """Return the segment of some records."""
    contents: dict[str, Any] = {
        "start_head": b"",
        "replaced_link": bytes(16),
        **more,
    }
    return encode_segment(
        Contents(records, **contents),
        session_hash=SESSION,
        incarnation=1,
        from_version=after,
        previous_link=link,
    )
