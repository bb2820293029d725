"""Lines become turns or refusals; a file of something else is refused whole."""

from io import BytesIO

import pytest

from turnstate.replay import readers
from turnstate.replay.readers import FORMATS, Format, Refusal, read, read_file
from turnstate.schemas.errors import InvalidInputError

TURN = b'{"tenant":"t","session":"s","role":"user","content":"hi"}'
CORPUS = b'{"tenant":"t","session":"s","turn":0,"role":"user","text":"hi"}'
OPENAI = b'{"messages":[{"role":"user","content":"hi"}]}'
GOOD: dict[Format, bytes] = {"turns": TURN, "openai": OPENAI, "corpus": CORPUS}

each_format = pytest.mark.parametrize("format_name", FORMATS)


@each_format
def test_blank_lines_are_skipped_and_counted(format_name: Format) -> None:
    good = GOOD[format_name]
    file = BytesIO(b"\xef\xbb\xbf\r\n" + good + b"\r\n \t\n" + good + b"\n5\n\n")

    *turns, refusal = read_file(file, format_name)

    assert len(turns) == 2
    assert all(isinstance(turn, bytes) for turn in turns)
    assert isinstance(refusal, Refusal)
    assert (refusal.line, refusal.field, refusal.raw) == (5, None, b"5")
    assert refusal.code == "not_json"


@each_format
@pytest.mark.parametrize(
    "bad",
    [
        b"[1]",
        b'"text"',
        b"17",
        b"null",
        b"plain words",
        b"\xff\xfe\xfd",
        b"{",
        b'{"a":}',
    ],
)
def test_a_bad_line_is_refused_and_the_rest_goes_on(
    format_name: Format, bad: bytes
) -> None:
    good = GOOD[format_name]

    first, second, third = read([bad, good, good], format_name)

    assert isinstance(first, Refusal)
    assert (first.line, first.raw) == (1, bad)
    assert isinstance(second, bytes)
    assert isinstance(third, bytes)


@each_format
def test_no_line_that_is_an_object_refuses_the_file_whole(format_name: Format) -> None:
    found: list[bytes | Refusal] = []

    with pytest.raises(InvalidInputError) as caught:
        found.extend(read([b"a,b", b"", b"1,2", b'{"cut": '], format_name))

    assert caught.value.code == "unreadable_file"
    assert found == []


@each_format
def test_blank_lines_alone_are_nothing_to_refuse(format_name: Format) -> None:
    assert list(read([], format_name)) == []
    assert list(read([b"", b"  \r"], format_name)) == []


@pytest.mark.parametrize("format_name", ["openai", "corpus"])
def test_an_object_of_another_shape_makes_a_refusal_and_no_refused_file(
    format_name: Format,
) -> None:
    (refusal,) = read([b'{"some": "object"}'], format_name)

    assert isinstance(refusal, Refusal)
    assert refusal.field in ("messages", "tenant")


def test_refusals_are_held_back_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "HELD_BYTES_MAX", 100)
    found: list[bytes | Refusal] = []

    with pytest.raises(InvalidInputError):
        found.extend(read([b"x" * 30] * 10))

    assert [each.line for each in found if isinstance(each, Refusal)] == list(
        range(1, 9)
    )


def test_turns_go_on_byte_for_byte() -> None:
    odd = (
        b'{ "tenant" : "t", "role":"user", "session":"s", "big": 12345678901234567890 }'
    )

    assert list(read([odd, b'  {"broken": ', TURN])) == [odd, b'{"broken":', TURN]


def test_an_unknown_format_is_named() -> None:
    with pytest.raises(InvalidInputError) as caught:
        read([], "csv")  # type: ignore[arg-type]

    assert caught.value.field == "format"


def test_a_refusal_from_the_cutter_is_passed_on() -> None:
    torn = Refusal(2, None, "cut", "cut_file", b"")

    assert list(read([TURN, torn])) == [TURN, torn]
