"""Show answers: JSON for programs, plain text for a pipe, Rich for a terminal."""

import os
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from turnstate.schemas.errors import TurnstateError

_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories that move a cursor, reorder or break a line."""

_JOINERS: Final = frozenset("\u200c\u200d")
"""Format characters that scripts and emoji need; they move nothing."""


class ClosedPipe(Exception):
    """Nobody reads stdout any more, as after `| head`."""


class Table(NamedTuple):
    """Rows under a heading; in a pipe, fields divided by tabs."""

    title: str
    columns: Sequence[str]
    rows: Iterable[Sequence[object]]


class Pairs(NamedTuple):
    """Names and their values."""

    title: str
    pairs: Iterable[tuple[str, object]]


Block = Table | Pairs | str


def print_json(document: object) -> None:
    """Write one JSON document and a line's end to stdout."""
    from turnstate.streams.documents import to_json

    write(to_json(document) + b"\n")


def print_blocks(blocks: Iterable[Block]) -> None:
    """Write blocks to stdout: with Rich on a terminal, else as plain text."""
    if sys.stdout.isatty():
        _print_rich(blocks)
        return
    for at, block in enumerate(blocks):
        write(("\n" if at else "") + "".join(f"{line}\n" for line in _plain(block)))


def answer(document: Any, as_json: bool, blocks: Iterable[Block]) -> None:
    """Show an answer in the form that was asked for."""
    if as_json:
        print_json(document)
    else:
        print_blocks(blocks)


def note(text: str) -> None:
    """Tell whoever watches something that is no data: one line on stderr."""
    data = (clean(text) + "\n").encode("utf-8", "backslashreplace")
    try:
        sys.stderr.buffer.write(data)
        sys.stderr.buffer.flush()
    except OSError:
        return


def write(data: bytes | str) -> None:
    """Write to stdout and push it out, UTF-8 whatever the locale.

    Raises:
        ClosedPipe: nobody reads it any more.
    """
    if isinstance(data, str):
        data = data.encode("utf-8", "backslashreplace")
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError as error:
        # Python flushes stdout once more at exit and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise ClosedPipe from error


def error_lines(error: TurnstateError) -> str:
    """Return an error as the one line that a reader is shown."""
    hint = f" ({error.hint})" if error.hint else ""
    return f"error: {error.message}{hint}"


def clean(value: object) -> str:
    r"""Return a value as one line that cannot steer a terminal.

    Example:
        >>> clean("a\x1b[2Jb\n你好")
        'a\\x1b[2Jb\\n你好'
    """
    text = value if isinstance(value, str) else shown(value)
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        char
        if char in _JOINERS or unicodedata.category(char) not in _HIDDEN
        else char.encode("unicode_escape").decode()
        for char in text
    )


def shown(value: object) -> str:
    """Return a JSON value as a reader expects it: text bare, the rest as JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        return "-"
    if isinstance(value, bool | int | float):
        return str(value).lower() if isinstance(value, bool) else str(value)
    from turnstate.streams.documents import to_json

    return to_json(value).decode()


def _plain(block: Block) -> list[str]:
    if isinstance(block, str):
        return [clean(line) for line in block.split("\n")]
    if isinstance(block, Pairs):
        pairs = [(clean(name), clean(value)) for name, value in block.pairs]
        return [f"{name}\t{value}" for name, value in pairs]
    return [
        "\t".join(map(clean, block.columns)),
        *("\t".join(map(clean, row)) for row in block.rows),
    ]


def _print_rich(blocks: Iterable[Block]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    console = Console(highlight=False)
    for block in blocks:
        if isinstance(block, str):
            console.print(Text("\n".join(clean(line) for line in block.split("\n"))))
            continue
        table = RichTable(
            title=Text(block.title, style="bold") if block.title else None,
            title_justify="left",
            box=box.SIMPLE_HEAD,
            show_header=isinstance(block, Table),
        )
        if isinstance(block, Pairs):
            table.add_column(style="cyan", no_wrap=True)
            table.add_column(overflow="fold")
            for name, value in block.pairs:
                table.add_row(Text(clean(name)), Text(clean(value)))
        else:
            for column in block.columns:
                table.add_column(column, overflow="fold")
            for row in block.rows:
                table.add_row(*(Text(clean(cell)) for cell in row))
        console.print(table)
