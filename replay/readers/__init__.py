"""Read files of turns, conversations or corpus lines into turn JSON."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final, Literal, TypeVar, get_args

import msgspec

from turnstate.replay.readers.corpus import CorpusLines
from turnstate.replay.readers.faults import no_object
from turnstate.replay.readers.lines import UTF8_MARK, Refusal, lines_of, unreadable
from turnstate.replay.readers.openai import ConversationLines
from turnstate.replay.readers.turns import turn_line
from turnstate.schemas.errors import InvalidInputError
from turnstate.schemas.wire.scan import explain

__all__ = ["FORMATS", "Format", "Refusal", "convert_lines", "read", "read_file"]

Format = Literal["turns", "openai", "corpus"]

FORMATS: Final[tuple[Format, ...]] = get_args(Format)
"""What `read` knows; `turns` is the default, nothing is guessed."""

HELD_BYTES_MAX: Final = 16 << 20
"""Refused lines kept back until a first line shows that the file is JSON."""

_SPACE: Final = b" \t\r\n"

T = TypeVar("T")

_decode_object: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def _converter(format_name: Format) -> Callable[[int, bytes], tuple[bytes, ...]]:
    if format_name == "turns":
        return turn_line
    if format_name == "openai":
        return ConversationLines()
    if format_name == "corpus":
        return CorpusLines()
    raise InvalidInputError(
        f"format {format_name!r} is not known",
        field="format",
        hint=f"one of {', '.join(FORMATS)}",
    )


def read_file(
    source: str | Path | BinaryIO, format_name: Format = "turns"
) -> Iterator[bytes | Refusal]:
    """Yield the turns of a file as JSON bytes, and a `Refusal` for each bad line.

    Args:
        source: A path (packed or not), `-` for standard input, or an open
            binary file.
        format_name: One of `FORMATS`.

    Raises:
        InvalidInputError: the file is refused whole (code `unreadable_file`),
            as in `lines_of` and `read`, or the format is not known.
    """
    return read(lines_of(source), format_name)


def read(
    lines: Iterable[bytes | Refusal], format_name: Format = "turns"
) -> Iterator[bytes | Refusal]:
    """Yield the turns of lines as JSON bytes, and a `Refusal` for each bad line.

    Blank lines are skipped and counted. Refusals wait until a first line is a
    JSON object, or until 16 MiB of them wait: a file of something else leaves
    no dead letters behind.

    Args:
        lines: One item a line, in order, so that counting numbers them.
        format_name: One of `FORMATS`.

    Raises:
        InvalidInputError: no line is a JSON object (code `unreadable_file`),
            at the end; lines that are all blank are no such case.

    Example:
        >>> list(read([b'{"tenant":"t","session":"s","role":"user"}', b"", b"oh"]))[1]
        Refusal(line=3, field=None, reason='the line is no JSON object', \
code='not_json', raw=b'oh')
    """
    return convert_lines(lines, _converter(format_name))


def convert_lines(
    lines: Iterable[bytes | Refusal], convert: Callable[[int, bytes], tuple[T, ...]]
) -> Iterator[T | Refusal]:
    """Yield what a converter makes of each line, as `read` does for its formats.

    Args:
        lines: As for `read`.
        convert: Given a line's number and its bytes without the white space
            around, returns what the line holds, or raises `InvalidInputError`.

    Raises:
        InvalidInputError: no line is a JSON object.
    """
    numbered = enumerate(lines, 1)
    yield from _until_object(numbered, convert)
    for number, line in numbered:
        if isinstance(line, Refusal):
            yield line
            continue
        text = line.strip(_SPACE)
        if text:
            try:
                turns = convert(number, text)
            except InvalidInputError as error:
                yield _refusal(number, text, error)
            else:
                yield from turns


def _until_object(
    numbered: Iterator[tuple[int, bytes | Refusal]],
    convert: Callable[[int, bytes], tuple[T, ...]],
) -> Iterator[T | Refusal]:
    """Go as far as the first line that is a JSON object, that line included."""
    held: list[Refusal] = []
    held_bytes = 0
    bad = False
    for number, line in numbered:
        if isinstance(line, Refusal):
            refusal = line
        elif text := line.strip(_SPACE):
            turns: tuple[T, ...] = ()
            fault: InvalidInputError | None = None
            try:
                turns = convert(number, text)
            except InvalidInputError as error:
                fault = error
            refusal = _refusal(number, text, fault or no_object())
            if _is_object(text):
                yield from held
                yield from turns if fault is None else (refusal,)
                return
        else:
            continue
        bad = True
        held.append(refusal)
        held_bytes += len(refusal.raw)
        if held_bytes > HELD_BYTES_MAX:
            yield from held
            held, held_bytes = [], 0
    if bad:
        raise unreadable("no line of the file is a JSON object", "send JSON lines")


def _is_object(line: bytes) -> bool:
    """Say whether a line is meant as a JSON object, if perhaps a bad one.

    One that breaks a rule of ours (half an emoji, NaN, too deep) is an object
    all the same: such a line is refused, not the file.
    """
    text = line.removeprefix(UTF8_MARK)
    if not text.startswith(b"{"):
        return False
    try:
        _decode_object(text)
    except (ValueError, RecursionError):
        try:
            explain(text)
        except InvalidInputError as error:
            return error.code != "not_json"
        return False
    return True


def _refusal(number: int, line: bytes, error: InvalidInputError) -> Refusal:
    return Refusal(number, error.field, error.message, error.code, line)
