"""Read whatever can be replayed: recordings, stamped lines, unstamped lines."""

from collections.abc import Callable, Iterator
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import msgspec
from msgspec import Struct

from turnstate.replay.readers import Format, Refusal, convert_lines, read
from turnstate.replay.readers.lines import lines_of_open, opened
from turnstate.replay.recording import (
    MAGIC,
    RecordedErasure,
    RecordedItem,
    RecordedOperation,
    read_recording,
)
from turnstate.schemas.draft import Draft, stamped_op
from turnstate.schemas.errors import InvalidInputError
from turnstate.schemas.ids import SessionName
from turnstate.schemas.wire.json import draft_from_json

ReplayItem = RecordedItem | Draft | Refusal
"""A draft is a turn without stamp."""

Take = Callable[[bytes], bool]
"""Says of a session key whether the session is wanted."""


class _Named(Struct, frozen=True, gc=False):
    tenant: str
    session: str


_decode_name: Final = msgspec.json.Decoder(_Named).decode


def replay_items(
    source: str | Path | BinaryIO,
    format_name: Format = "turns",
    take: Take | None = None,
    *,
    first: bool = True,
) -> Iterator[ReplayItem]:
    """Yield what a file holds, in its order; the first bytes tell its form.

    Args:
        source: A path, `-` for standard input, or an open binary file.
        format_name: What the lines are, where it is no binary recording.
        take: Which sessions are wanted; None = all.
        first: Whether refused lines, which are no session's, are yielded.

    Raises:
        CorruptDataError: a recording is damaged or cut.
        InvalidInputError: the file cannot be read at all.
    """
    with opened(source) as (file, name):
        peekable = file if hasattr(file, "peek") else BufferedReader(cast("Any", file))
        reader = cast("BufferedReader", peekable)
        try:
            # One byte tells: neither JSON, gzip nor a byte order mark begins so.
            if reader.peek(1)[:1] == MAGIC[:1]:
                yield from _wanted(read_recording(reader), take)
            else:
                yield from _drafts(reader, name, format_name, take, first)
        finally:
            if reader is not file:
                reader.detach()  # else it would close the caller's file


def _wanted(items: Iterator[RecordedItem], take: Take | None) -> Iterator[ReplayItem]:
    if take is None:
        yield from items
        return
    last: SessionName | None = None
    wanted = False
    for item in items:
        name = item[0]
        if name is not last:
            last = name
            wanted = take(name.key())
        if wanted:
            yield item


def _drafts(
    file: BinaryIO, name: str, format_name: Format, take: Take | None, first: bool
) -> Iterator[ReplayItem]:
    def convert(_: int, line: bytes) -> tuple[ReplayItem, ...]:
        if take is not None:
            try:
                named = _decode_name(line)
            except (ValueError, RecursionError):
                return (_item(line),)  # says what is wrong with it
            if not take(SessionName(named.tenant, named.session).key()):
                return ()
        return (_item(line),)

    lines = lines_of_open(file, name)
    if format_name != "turns":
        lines = read(lines, format_name)
    for item in convert_lines(lines, convert):
        if first or not isinstance(item, Refusal):
            yield item


def _item(line: bytes) -> ReplayItem:
    """Return what a line stands for.

    Raises:
        InvalidInputError: it is no turn.
    """
    draft = draft_from_json(line, recorded=True)
    if draft.body.op == "erase" and draft.incarnation is not None:
        return RecordedErasure(draft.name, draft.incarnation)
    if draft.stamp is None:
        return draft
    if not isinstance(draft.parents, tuple):
        raise InvalidInputError(
            "a stamped turn names its parents",
            field="parent",
            hint="null where it has none",
        )
    return RecordedOperation.of(draft.name, stamped_op(draft))
