"""Files are cut into lines whole, in pieces, packed, damaged or far too long."""

import gzip
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest

from turnstate.replay.readers import lines as lines_module
from turnstate.replay.readers.lines import LINE_BYTES_MAX, Refusal, lines_of
from turnstate.schemas.errors import InvalidInputError


class Dripping(BytesIO):
    """Gives one byte at a time, as a slow pipe may."""

    def read1(self, size: int | None = -1, /) -> bytes:
        return super().read(1)


def test_lines_are_the_same_in_any_packing(tmp_path: Path) -> None:
    text = b"\xef\xbb\xbfone\r\n\n\xe4\xb8\xad\nlast"
    plain = tmp_path / "a.jsonl"
    packed = tmp_path / "a.jsonl.gz"
    members = tmp_path / "members.gz"
    nameless = tmp_path / "packed"
    plain.write_bytes(text)
    packed.write_bytes(gzip.compress(text))
    members.write_bytes(
        gzip.compress(text[:9])
        + gzip.compress(b"", mtime=0)
        + gzip.compress(text[9:])
        + b"\0" * 9
    )
    nameless.write_bytes(gzip.compress(text))

    expected = [b"one\r", b"", "中".encode(), b"last"]
    for source in (plain, str(packed), members, nameless):
        assert list(lines_of(source)) == expected
    assert list(lines_of(Dripping(text))) == expected
    assert list(lines_of(Dripping(gzip.compress(text)))) == expected


def test_standard_input_is_read_and_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    class Standard:
        buffer = BytesIO(b"a\nb\n")

    monkeypatch.setattr("sys.stdin", Standard)

    assert list(lines_of("-")) == [b"a", b"b"]
    assert not Standard.buffer.closed


@pytest.mark.parametrize("text", [b"", b"\xef\xbb\xbf", gzip.compress(b"", mtime=0)])
def test_an_empty_file_has_no_lines(text: bytes) -> None:
    assert list(lines_of(BytesIO(text))) == []


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.gz", b'{"a":1}\n'),
        ("a.gz", b""),
        ("a.jsonl", '{"a":1}\n'.encode("utf-16")),
        ("a.jsonl", b"\xfe\xff" + '{"a":1}\n'.encode("utf-16-be")),
        ("a.jsonl.gz", gzip.compress('{"a":1}\n'.encode("utf-16"), mtime=0)),
        ("a.gz", gzip.compress(b"some text", mtime=0)[:10]),
        ("a.gz", b"\x1f\x8b\x08garbage that is no gzip"),
    ],
)
def test_what_cannot_be_read_at_all_is_refused_whole(
    tmp_path: Path, name: str, content: bytes
) -> None:
    path = tmp_path / name
    path.write_bytes(content)

    with pytest.raises(InvalidInputError) as caught:
        list(lines_of(path))

    assert caught.value.code == "unreadable_file"


@pytest.mark.parametrize("name", ["absent.jsonl", ".", "nul\0.jsonl"])
def test_what_cannot_be_opened_is_refused_whole(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        list(lines_of(f"{tmp_path}/{name}"))

    assert caught.value.code == "unreadable_file"


def test_lines_before_a_cut_are_kept_and_the_cut_is_named() -> None:
    lines = [b'{"line": %d, "pad": "%x"}' % (n, n * 7919**9) for n in range(2000)]
    packed = gzip.compress(b"\n".join(lines))

    for cut in (200, len(packed) // 2, len(packed) - 9):
        *whole, torn = lines_of(BytesIO(packed[:cut]))

        assert isinstance(torn, Refusal)
        assert torn.code == "cut_file"
        assert torn.line == len(whole) + 1
        assert whole == lines[: len(whole)]
        assert (lines[len(whole)] if whole else lines[0]).startswith(torn.raw)


def test_damage_inside_gzip_is_named_after_what_unpacks() -> None:
    lines = [b'{"line": %d, "pad": "%x"}' % (n, n * 7919**9) for n in range(2000)]
    packed = bytearray(gzip.compress(b"\n".join(lines)))
    packed[-6] ^= 0xFF  # in the checksum

    *whole, torn = lines_of(BytesIO(packed))

    assert whole == lines[:-1]
    assert isinstance(torn, Refusal)
    assert "damaged" in torn.reason


def test_much_output_from_little_input_is_all_there() -> None:
    text = (b"x" * 999 + b"\n") * 5000

    assert list(lines_of(BytesIO(gzip.compress(text)))) == [b"x" * 999] * 5000


def test_a_line_that_is_too_long_is_refused_and_the_next_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lines_module, "LINE_BYTES_MAX", 1000)
    monkeypatch.setattr(lines_module, "CHUNK_BYTES", 64)
    long = b"y" * 1001

    first, refusal, last = lines_of(BytesIO(b"a\n" + long + b"\n" + b"z" * 1000))

    assert (first, last) == (b"a", b"z" * 1000)
    assert isinstance(refusal, Refusal)
    assert (refusal.line, refusal.code) == (2, "line_too_long")
    assert long.startswith(refusal.raw)
    assert refusal.raw


def test_a_file_is_never_held_whole() -> None:
    read = 0

    class Endless(BytesIO):
        def read1(self, size: int | None = -1, /) -> bytes:
            nonlocal read
            read += 1
            return b"line\n" * 1000

    endless: Iterator[bytes | Refusal] = lines_of(Endless())
    for _ in range(1500):
        assert next(endless) == b"line"

    assert read <= 3


def test_the_longest_line_is_longer_than_any_turn() -> None:
    assert LINE_BYTES_MAX >= 16 << 20  # what a log message may have
