"""Cut a file, packed or not, into its lines without ever holding all of it."""

import sys
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from turnstate.schemas.errors import InvalidInputError

CHUNK_BYTES: Final = 256 << 10
"""What is read at once: larger chunks measured no faster."""

LINE_BYTES_MAX: Final = 64 << 20
"""A longer line is refused: 64 turns of the largest size fit into one line."""

LINE_HEAD_BYTES: Final = 64 << 10
"""What is kept of a line that is too long, and of a torn one."""

STDIN: Final = "-"
"""The path that means standard input."""

_GZIP_MAGIC: Final = b"\x1f\x8b"
UTF8_MARK: Final = b"\xef\xbb\xbf"
"""A byte order mark; inside a file it is where two were put together."""
_UTF16_BOMS: Final = (b"\xff\xfe", b"\xfe\xff")


class Refusal(NamedTuple):
    """A line that is no turn, kept whole so that it can be mended and sent again.

    Attributes:
        line: Its number in the file, from 1.
        field: What is at fault, as a dotted path; None = the line as a whole.
        reason: One sentence.
        code: The short name under which it is dead-lettered.
        raw: The original bytes, without the line's end.
    """

    line: int
    field: str | None
    reason: str
    code: str
    raw: bytes


def unreadable(message: str, hint: str) -> InvalidInputError:
    """Return the error by which a file is refused whole."""
    return InvalidInputError(message, hint=hint, code="unreadable_file")


def lines_of(source: str | Path | BinaryIO) -> Iterator[bytes | Refusal]:
    r"""Yield the lines of a file, one item a line, so that counting numbers them.

    Gzip is known by its first bytes, whatever the name; a leading byte order
    mark is dropped. What goes wrong later than the first bytes is a `Refusal`
    in the place of the line: the lines before it have been handed on.

    Args:
        source: A path, `-` for standard input, or an open binary file, which
            is read from where it stands and is not closed.

    Raises:
        InvalidInputError: the file cannot be read at all: it is missing, is
            named `.gz` and is not gzip, or is UTF-16. The code is
            `unreadable_file`.

    Example:
        >>> from io import BytesIO
        >>> list(lines_of(BytesIO(b"one\ntwo")))
        [b'one', b'two']
    """
    with opened(source) as (file, name):
        yield from lines_of_open(file, name)


@contextmanager
def opened(source: str | Path | BinaryIO) -> Generator[tuple[BinaryIO, str]]:
    """Open a path for reading; give the file and its name ("" where it has none).

    Standard input and files that were open already are left open.

    Raises:
        InvalidInputError: it cannot be opened (code `unreadable_file`).
    """
    if not isinstance(source, str | Path):
        yield source, ""
        return
    if source == STDIN:
        yield sys.stdin.buffer, STDIN
        return
    path = Path(source)
    try:
        file = path.open("rb")
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        why = getattr(error, "strerror", None) or error
        raise unreadable(
            f"{path} cannot be opened: {why}", "name a file of lines"
        ) from error
    with file:
        yield file, path.name


def lines_of_open(file: BinaryIO, name: str) -> Iterator[bytes | Refusal]:
    """Yield the lines of an open file, as `lines_of` does; the name may be ""."""
    return _lines(_chunks(file), name)


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    # read1 gives what a pipe has now: `publish -` follows a live producer.
    read = getattr(file, "read1", file.read)
    try:
        while chunk := read(CHUNK_BYTES):
            yield chunk
    except OSError as error:
        raise unreadable(
            f"the file cannot be read: {error.strerror}", "check the disk"
        ) from error


def _lines(chunks: Iterator[bytes], name: str) -> Iterator[bytes | Refusal]:
    first = next(chunks, b"")
    if len(first) == 1:  # a pipe may give so little
        first += next(chunks, b"")
    chunks = chain((first,), chunks)
    if first.startswith(_GZIP_MAGIC):
        chunks = _inflated(chunks)
    elif name.endswith(".gz"):
        raise unreadable(f"{name} is not gzip", "take .gz off its name, or pack it")
    yield from _split(_without_mark(chunks))


def _without_mark(chunks: Iterator[bytes]) -> Iterator[bytes]:
    first = b""
    for chunk in chunks:
        first += chunk
        if len(first) >= len(UTF8_MARK):
            break
    if first.startswith(_UTF16_BOMS):
        raise unreadable("the file is UTF-16", "save it as UTF-8")
    yield first.removeprefix(UTF8_MARK)
    yield from chunks


class _CutError(Exception):
    """Packed bytes end early or are damaged; what came before has been given."""


def _inflated(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Unpack gzip members one after the other, handing on all that unpacks.

    The standard reader drops what it had unpacked when it meets damage.
    """
    unpack = zlib.decompressobj(wbits=31)
    begun = False
    for chunk in chunks:
        data = chunk
        while data:
            if unpack.eof:
                data = data.lstrip(b"\0")  # padding between members, as on tape
                if not data:
                    break
                unpack = zlib.decompressobj(wbits=31)
            before = unpack.copy()
            try:
                out = unpack.decompress(data, CHUNK_BYTES)
            except zlib.error as error:
                # What it had unpacked before the damage went with the error.
                for out in _as_far_as_good(before.decompress, data):
                    begun = True
                    yield out
                raise _cut(f"the gzip data is damaged: {error}", begun) from error
            if out:
                begun = True
                yield out
            data = unpack.unused_data if unpack.eof else unpack.unconsumed_tail
    if not unpack.eof:
        # Output beyond the bound may wait although all input has been taken.
        if out := unpack.flush():
            begun = True
            yield out
        if not unpack.eof:
            raise _cut("the gzip file is cut short", begun)


def _as_far_as_good(unpack: Callable[[bytes], bytes], data: bytes) -> Iterator[bytes]:
    """Unpack byte by byte up to the damage."""
    try:
        for at in range(len(data)):
            if out := unpack(data[at : at + 1]):
                yield out
    except zlib.error:
        return


def _cut(what: str, begun: bool) -> Exception:
    return _CutError(what) if begun else unreadable(what, "fetch or pack it again")


def _split(chunks: Iterator[bytes]) -> Iterator[bytes | Refusal]:
    number = 1  # of the line that is being read
    pieces: list[bytes] = []
    size = 0
    while True:
        try:
            chunk = next(chunks, None)
        except _CutError as error:
            torn = b"".join(pieces)[:LINE_HEAD_BYTES]
            yield Refusal(number, None, str(error), "cut_file", torn)
            return
        if chunk is None:
            break
        head, *rest = chunk.split(b"\n")
        size += len(head)
        if size <= LINE_BYTES_MAX or not pieces:
            pieces.append(head)
        if rest:
            yield _line(number, pieces, size)
            number += len(rest)
            tail = rest.pop()
            yield from rest
            pieces, size = [tail], len(tail)
    if size:
        yield _line(number, pieces, size)


def _line(number: int, pieces: list[bytes], size: int) -> bytes | Refusal:
    line = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    if size <= LINE_BYTES_MAX:
        return line
    return Refusal(
        number,
        None,
        f"the line has {size} bytes, more than {LINE_BYTES_MAX}",
        "line_too_long",
        line[:LINE_HEAD_BYTES],
    )
