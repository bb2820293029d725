"""One session as bytes: every part is checked, the front is enough for a state."""

import msgspec
import pytest

from support.framed import frame, segment, turn_records
from turnstate.schemas.errors import (
    ChecksumError,
    CorruptDataError,
    UnknownVersionError,
)
from turnstate.storage.frames.header import HEAD
from turnstate.storage.frames.native import crc32c
from turnstate.storage.session_image import (
    IMAGE_VERSION,
    MAGIC,
    PREFIX_BYTES,
    EncodedImage,
    IndexRow,
    Part,
    SessionImage,
    decode_front,
    decode_image,
    decode_index,
    encode_image,
)


def an_image(base: bytes | None = None) -> SessionImage:
    frames = [frame(b"a" * 40, to_version=3), frame(b"b" * 90, to_version=9)]
    index = [IndexRow(b"i12345678", b"row"), IndexRow(b"e\0\0\0\0\0\0\0\x05", b"")]
    return SessionImage(b"\0\x01ts", 2, 9, b"the row", base, frames, index)


@pytest.mark.parametrize("base", [None, b"the state at the seal"])
def test_what_is_encoded_comes_back(base: bytes | None) -> None:
    image = an_image(base)
    encoded = encode_image(image)

    assert decode_image(encoded.data) == image
    assert (encoded.key, encoded.incarnation, encoded.version) == (image.key, 2, 9)


def test_equal_sessions_are_equal_bytes() -> None:
    assert encode_image(an_image()) == encode_image(an_image())


def test_a_session_without_frames_or_index_comes_back() -> None:
    image = SessionImage(b"k", 1, 0, b"row", None, [], [])
    assert decode_image(encode_image(image).data) == image


def test_the_front_is_enough_for_the_head_and_says_where_the_rest_lies() -> None:
    image = an_image(b"base")
    encoded = encode_image(image)
    front, end = decode_front(encoded.data[: encoded.front_bytes])

    assert end == encoded.front_bytes
    assert (front.key, front.row, front.base) == (image.key, image.row, b"base")
    rest = encoded.data[end:]
    assert [part.taken_from(rest) for part in front.frames] == image.frames
    assert [part.to_version for part in front.frames] == [3, 9]
    assert decode_index(front.index.taken_from(rest)) == image.entries


def test_a_part_is_found_in_a_range_that_begins_with_it() -> None:
    encoded = encode_image(an_image())
    front, end = decode_front(encoded.data)
    last = front.frames[-1]
    piece = encoded.data[end + last.offset : end + last.offset + last.length]

    assert last.taken_from(piece, last.offset) == an_image().frames[-1]
    with pytest.raises(ChecksumError):
        last.taken_from(piece, last.offset + 1)
    with pytest.raises(ChecksumError, match="versions 0 to 9") as raised:
        last.taken_from(piece[:-1], last.offset)
    assert raised.value.field == "version 9"


def test_every_cut_is_found() -> None:
    encoded = encode_image(an_image(b"base"))
    for length in range(len(encoded.data)):
        with pytest.raises(CorruptDataError):
            decode_image(encoded.data[:length])


def test_every_flipped_bit_is_found() -> None:
    image = an_image(b"base")
    data = encode_image(image).data
    for at in range(len(data)):
        for bit in range(8):
            flipped = data[:at] + bytes([data[at] ^ (1 << bit)]) + data[at + 1 :]
            if at == len(MAGIC) and flipped[at] <= IMAGE_VERSION:
                continue  # an older format, which reads alike
            with pytest.raises(CorruptDataError):
                decode_image(flipped)


def test_a_newer_format_says_so() -> None:
    data = bytearray(encode_image(an_image()).data)
    data[len(MAGIC)] = IMAGE_VERSION + 1
    with pytest.raises(UnknownVersionError, match="newer turnstate"):
        decode_front(bytes(data))


@pytest.mark.parametrize(
    "front",
    [
        b"",
        b"\xc1",
        msgspec.msgpack.encode([]),
        msgspec.msgpack.encode([b"k", 1, 2, b"r", None, [], "no part"]),
        msgspec.msgpack.encode({"key": b"k"}),
        b"\x91" * 5000 + b"\xc0",
    ],
    ids=["empty", "unused byte", "too short", "no part", "no array", "deep"],
)
def test_a_front_that_is_something_else_is_damage(front: bytes) -> None:
    prefix = MAGIC + bytes([IMAGE_VERSION]) + len(front).to_bytes(4, "little")
    with pytest.raises(CorruptDataError):
        decode_front(prefix + crc32c(front).to_bytes(4, "little") + front)


@pytest.mark.parametrize(
    "index", [b"", b"\xc1", msgspec.msgpack.encode([1]), b"\x91" * 5000 + b"\xc0"]
)
def test_an_index_that_is_something_else_is_damage(index: bytes) -> None:
    with pytest.raises(CorruptDataError):
        decode_index(index)


def test_a_part_that_lies_before_the_image_is_damage() -> None:
    with pytest.raises(ChecksumError):
        Part(0, 1, -4, 4, crc32c(b"tail")).taken_from(b"tail")


def test_the_prefix_is_as_long_as_it_says() -> None:
    encoded = encode_image(an_image())
    length = int.from_bytes(encoded.data[5:9], "little")
    assert encoded.front_bytes == PREFIX_BYTES + length
    assert isinstance(encoded, EncodedImage)


def test_a_segment_and_a_state_keep_their_kind() -> None:
    made = segment(turn_records(2))
    state = frame(b"state", kind=HEAD, to_version=2)
    image = SessionImage(b"k", 1, 3, b"row", state, [made], [])
    assert decode_image(encode_image(image).data) == image
