"""A pack tells what it holds, and nothing that is not so."""

import pytest

from support.packs import images
from turnstate.schemas.errors import (
    ChecksumError,
    CorruptDataError,
    UnknownVersionError,
)
from turnstate.storage.cold.pack import (
    HEADER,
    HEADER_BYTES,
    MAGIC,
    TAIL_BYTES,
    EncodedPack,
    PackWriter,
    check_header,
    decode_bloom,
    decode_index,
    decode_pack,
    decode_tail,
    images_of,
)
from turnstate.storage.frames.native import crc32c


def pack_of(count: int, size: int = 50) -> EncodedPack:
    writer = PackWriter(1 << 20)
    for each in images(count, size):
        writer.add(*each)
    return writer.finish()


def test_what_was_written_is_read() -> None:
    wanted = images(20, 50)
    pack = decode_pack(pack_of(20).data)

    assert [(entry.key, data) for entry, data in images_of(pack)] == [
        (each.key, each.data) for each in wanted
    ]
    assert [entry.front_bytes for entry in pack.entries] == [
        each.front_bytes for each in wanted
    ]
    assert pack.entries[0].offset == HEADER_BYTES
    assert all(pack.bloom.may_hold(each.key) for each in wanted)


def test_the_last_bytes_tell_where_the_rest_is() -> None:
    pack = pack_of(3)
    tail = decode_tail(pack.data[-TAIL_BYTES:])

    assert tail == pack.tail == decode_tail(pack.data)
    assert tail.pack_bytes == len(pack.data)
    footer = pack.data[tail.body_bytes :]
    assert decode_index(tail, footer[: tail.index_bytes]) == pack.entries
    filter_bits = footer[tail.index_bytes :][: tail.bloom_bytes]
    assert decode_bloom(tail, filter_bits).bits == pack.bloom.bits


def test_equal_images_give_equal_packs() -> None:
    assert pack_of(5).data == pack_of(5).data


def test_an_empty_pack_reads_as_one() -> None:
    pack = decode_pack(PackWriter(100).finish().data)

    assert (list(pack.entries), pack.bloom.bits) == ([], b"")


def test_a_pack_is_full_at_its_limit_and_the_longest_session_still_goes_in() -> None:
    writer = PackWriter(2000)
    assert writer.takes(b"key", 1 << 20)
    while writer.takes(b"key %d" % len(writer), 300):
        writer.add(b"key %d" % len(writer), 1, 1, bytes(300), 10)
    assert len(writer) >= 4
    assert len(writer.finish().data) <= 2000
    alone = PackWriter(2000)
    alone.add(b"key", 1, 1, bytes(5000), 10)
    assert not alone.takes(b"other", 1)


def test_a_key_stands_once_in_a_pack() -> None:
    writer = PackWriter(2000)
    writer.add(b"key", 1, 1, b"one", 1)

    assert not writer.takes(b"key", 3)
    with pytest.raises(AssertionError):
        writer.add(b"key", 1, 2, b"two", 1)


def test_a_newer_format_is_refused_by_name() -> None:
    data = pack_of(1).data
    with pytest.raises(UnknownVersionError, match="format 2"):
        check_header(MAGIC + (2).to_bytes(4, "little"))
    checked = data[-TAIL_BYTES:-8]
    newer = checked[:-4] + (2).to_bytes(4, "little")
    end = crc32c(newer).to_bytes(4, "little") + MAGIC
    with pytest.raises(UnknownVersionError, match="format 2"):
        decode_tail(newer + end)
    with pytest.raises(CorruptDataError):
        check_header(MAGIC + bytes(4))
    check_header(HEADER)


def test_an_index_that_leaves_a_hole_is_refused() -> None:
    first, second = pack_of(2), pack_of(3)
    with pytest.raises(ChecksumError):
        decode_index(first.tail, b"")
    other = second.data[second.tail.body_bytes :][: second.tail.index_bytes]
    forged = first.tail._replace(index_bytes=len(other), index_crc=crc32c(other))
    with pytest.raises(CorruptDataError):
        decode_index(forged, other)
