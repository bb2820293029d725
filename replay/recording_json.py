"""Write and read recordings as JSON lines, so that other tools can read them."""

from collections.abc import Iterable, Iterator
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from turnstate.replay.readers import Refusal, convert_lines
from turnstate.replay.readers.lines import lines_of_open, opened
from turnstate.replay.recording import (
    MAGIC,
    RecordedErasure,
    RecordedItem,
    RecordedOperation,
    read_recording,
)
from turnstate.schemas.draft import stamped_op, turn_from_op
from turnstate.schemas.errors import InvalidInputError
from turnstate.schemas.turn import Turn
from turnstate.schemas.wire.json import draft_from_json, turn_to_json

ERASE_ROLE: Final = "system"
"""A turn has a role; an erasure on the wire bears this one."""


def write_json_lines(file: BinaryIO, items: Iterable[RecordedItem]) -> int:
    """Write one stamped turn, or one erase, a line; return the number of lines.

    Parents are addresses (`@replica:counter`), slot values and metadata the
    canonical JSON that is stored. There is no end marker: unlike a recording, a
    file cut between two lines looks whole.

    Raises:
        CorruptDataError: a record is no operation.

    Example:
        >>> from io import BytesIO
        >>> from turnstate.schemas.ids import SessionName
        >>> file = BytesIO()
        >>> write_json_lines(file, [RecordedErasure(SessionName("t", "s"), 1)])
        1
        >>> file.getvalue().decode().strip()
        '{"tenant":"t","session":"s","role":"system","op":"erase","incarnation":1}'
    """
    count = 0
    for item in items:
        file.write(json_line(item) + b"\n")
        count += 1
    return count


def json_line(item: RecordedItem) -> bytes:
    """Return the line that stands for one operation or erasure."""
    if isinstance(item, RecordedErasure):
        return turn_to_json(
            Turn(
                tenant=item.name.tenant,
                session=item.name.session,
                role=ERASE_ROLE,
                op="erase",
                incarnation=item.incarnation,
            )
        )
    return turn_to_json(turn_from_op(item.name, item.op()))


def item_from_json(line: bytes) -> RecordedItem:
    """Read a line of `write_json_lines` back, to the byte of its record.

    Raises:
        InvalidInputError: it is no turn, or bears no stamp.
    """
    draft = draft_from_json(line, recorded=True)
    if draft.body.op == "erase":
        if draft.incarnation is None:
            raise InvalidInputError(
                "the erase names no incarnation",
                field="incarnation",
                hint="a recorded erase says which life it ended",
            )
        return RecordedErasure(draft.name, draft.incarnation)
    if draft.stamp is None:
        raise InvalidInputError(
            "the turn bears no stamp", field="stamp", hint="publish it instead"
        )
    assert isinstance(draft.parents, tuple), "a stamped draft has its parents"
    return RecordedOperation.of(draft.name, stamped_op(draft))


def read_items(source: str | Path | BinaryIO) -> Iterator[RecordedItem | Refusal]:
    """Read a recording in either form, told apart by the first bytes.

    Args:
        source: A path, `-` for standard input, or an open binary file. JSON
            lines may be packed with gzip.

    Raises:
        CorruptDataError: a recording is damaged or cut (see `read_recording`).
        InvalidInputError: the file cannot be read at all (`unreadable_file`).
            A bad line among good ones is a `Refusal`.
    """
    with opened(source) as (file, name):
        peekable = file if hasattr(file, "peek") else BufferedReader(cast("Any", file))
        reader = cast("BufferedReader", peekable)
        try:
            # One byte tells: neither JSON, gzip nor a byte order mark begins so.
            if reader.peek(1)[:1] == MAGIC[:1]:
                yield from read_recording(reader)
            else:
                lines = lines_of_open(reader, name)
                yield from convert_lines(lines, lambda _, line: (item_from_json(line),))
        finally:
            if reader is not file:
                reader.detach()  # else it would close the caller's file
