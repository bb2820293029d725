"""A recording gives back what was written, and names each way of not being whole."""

from io import BytesIO
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.spoken import said
from turnstate.replay import recording
from turnstate.replay.recording import (
    BLOCK_BYTES_MAX,
    TORN_CODE,
    VERSION,
    RecordedErasure,
    RecordedItem,
    RecordedOperation,
    RecordingTotals,
    read_recording,
    shuffled,
    write_recording,
)
from turnstate.schemas.errors import (
    ChecksumError,
    CorruptDataError,
    UnknownVersionError,
)
from turnstate.schemas.ids import SessionName

A, B = SessionName("t", "a"), SessionName("t:a", "中")
HEADER, BLOCK = 16, 24


def some_items() -> list[RecordedItem]:
    operations = [said(f"a{n}", content=f"turn {n} " * n) for n in range(1, 6)]
    return [
        *(RecordedOperation.of(A, op) for op in operations),
        RecordedErasure(A, 1),
        RecordedOperation.of(B, operations[0]),
        RecordedOperation.of(A, operations[1]),
        RecordedErasure(B, 7),
        RecordedErasure(B, 8),
        RecordedOperation.of(B, operations[2]),
    ]


def written(items: list[RecordedItem]) -> bytes:
    file = BytesIO()
    write_recording(file, items)
    return file.getvalue()


def read_bytes(data: bytes) -> list[RecordedItem]:
    return list(read_recording(BytesIO(data)))


class Dripping(BytesIO):
    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(min(size or 1, 3))


def test_what_is_written_is_read_in_the_same_order() -> None:
    items = some_items()
    file = BytesIO()

    totals = write_recording(file, items)

    assert totals == RecordingTotals(operations=8, erasures=3, blocks=1)
    assert read_bytes(file.getvalue()) == items
    assert list(read_recording(Dripping(file.getvalue()))) == items
    operation = items[0]
    assert isinstance(operation, RecordedOperation)
    assert operation.op().body.content == "turn 1 "


def test_an_empty_recording_is_whole() -> None:
    assert read_bytes(written([])) == []


@given(
    st.lists(
        st.one_of(
            st.builds(
                RecordedOperation,
                st.sampled_from([A, B, SessionName("t", "b")]),
                st.integers(1, 3),
                st.binary(max_size=200),
            ),
            st.builds(
                RecordedErasure, st.sampled_from([A, B]), st.integers(1, 2**53 - 1)
            ),
        ),
        max_size=40,
    )
)
def test_any_items_come_back(items: list[RecordedItem]) -> None:
    assert read_bytes(written(items)) == items


def test_successive_operations_share_a_header(monkeypatch: pytest.MonkeyPatch) -> None:
    one: list[RecordedItem] = [RecordedOperation(A, 1, b"r" * 10) for _ in range(1000)]
    two: list[RecordedItem] = [
        RecordedOperation(name, 1, b"r" * 10) for _ in range(500) for name in (A, B)
    ]

    def kept(raw: bytes, *, store_size: bool) -> bytes:
        return raw  # sizes without what LZ4 makes of the repetition

    monkeypatch.setattr(recording, "BLOCK_BYTES", 1 << 30)
    monkeypatch.setattr(recording, "lz4_compress", kept)

    assert len(written(one)) < 12_200
    assert len(written(two)) > 16_000


def test_blocks_are_bounded_and_large_records_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recording, "BLOCK_BYTES", 1000)
    items: list[RecordedItem] = [
        RecordedOperation(A, 1, bytes([n]) * 90) for n in range(100)
    ]
    items.append(RecordedOperation(A, 1, b"x" * (1 << 20)))
    file = BytesIO()

    totals = write_recording(file, items)

    assert 8 <= totals.blocks <= 12
    assert read_bytes(file.getvalue()) == items


def test_a_cut_anywhere_is_named_and_what_came_before_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recording, "BLOCK_BYTES", 100)
    items = some_items()
    data = written(items)
    counts: set[int] = set()

    for cut in range(len(data)):
        found: list[RecordedItem] = []
        with pytest.raises(CorruptDataError) as caught:
            found.extend(read_recording(BytesIO(data[:cut])))
        if cut >= 8:
            assert caught.value.code == TORN_CODE
            operations = sum(isinstance(item, RecordedOperation) for item in found)
            assert f"after {operations} whole operations" in str(caught.value)
        assert found == items[: len(found)]
        counts.add(len(found))

    assert len(counts) > 3


def test_a_changed_byte_anywhere_is_found() -> None:
    data = written(some_items())

    for at in range(len(data)):
        for bit in (0, 7):
            damaged = bytearray(data)
            damaged[at] ^= 1 << bit
            with pytest.raises(CorruptDataError):
                read_bytes(bytes(damaged))


def test_blocks_lost_doubled_or_changed_round_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recording, "BLOCK_BYTES", 100)
    data = written(some_items())
    starts = [HEADER]
    while starts[-1] < len(data):
        head = data[starts[-1] : starts[-1] + BLOCK]
        starts.append(starts[-1] + BLOCK + int.from_bytes(head[12:16], "little"))
    blocks = [data[start:end] for start, end in pairwise(starts)]
    assert len(blocks) >= 4

    for wrong in (
        [blocks[0], *blocks[2:]],
        [blocks[0], *blocks],
        [blocks[1], blocks[0], *blocks[2:]],
        [*blocks[:-2], blocks[-1]],
        [*blocks, b"\0"],
        [*blocks, *blocks],
    ):
        with pytest.raises(CorruptDataError):
            read_bytes(data[:HEADER] + b"".join(wrong))


def with_header(version: int, flags: int = 0) -> bytes:
    head = recording.MAGIC + version.to_bytes(2, "little") + flags.to_bytes(2, "little")
    data = written(some_items())
    return head + recording._crc(head) + data[HEADER:]


@pytest.mark.parametrize(("version", "flags"), [(VERSION + 1, 0), (65_535, 0), (1, 1)])
def test_a_newer_version_is_told_from_damage(version: int, flags: int) -> None:
    with pytest.raises(UnknownVersionError):
        read_bytes(with_header(version, flags))


def test_a_damaged_version_is_damage() -> None:
    data = bytearray(written(some_items()))
    data[8] ^= 2

    with pytest.raises(ChecksumError):
        read_bytes(bytes(data))
    with pytest.raises(CorruptDataError) as caught:
        read_bytes(with_header(0))
    assert not isinstance(caught.value, UnknownVersionError)


def block(kind: int, codec: int, raw_length: int, body: bytes) -> bytes:
    head = (
        bytes((kind, codec, 0, 0))
        + (0).to_bytes(4, "little")
        + raw_length.to_bytes(4, "little")
        + len(body).to_bytes(4, "little")
        + recording._crc(body)
    )
    return head + recording._crc(head) + body


@pytest.mark.parametrize(
    ("kind", "codec", "raw_length", "body"),
    [
        (1, 0, 3, b"abc"),
        (1, 0, 4, b"abc"),
        (1, 1, 100, b"\xff" * 9),
        (1, 1, BLOCK_BYTES_MAX + 1, b""),
        (1, 1, BLOCK_BYTES_MAX, b"\x10a"),
        (3, 0, 0, b""),
        (1, 2, 0, b""),
        (2, 0, 1, b"\x90"),
        (1, 0, 100_000, b"\x91" * 100_000),
        (1, 0, 6, msgspec.msgpack.encode([[b"\0\0", 1, []]])),
        (1, 0, 9, msgspec.msgpack.encode([[b"\0\1\xff\xff", 1, []]])[:9]),
    ],
)
def test_hostile_blocks_with_true_checksums_are_corrupt(
    kind: int, codec: int, raw_length: int, body: bytes
) -> None:
    data = written([])[:HEADER] + block(kind, codec, raw_length, body)

    with pytest.raises(CorruptDataError):
        read_bytes(data)


@given(st.binary(max_size=300), st.booleans())
def test_garbage_is_corrupt_and_nothing_else(garbage: bytes, headed: bool) -> None:
    with pytest.raises(CorruptDataError):
        read_bytes(written([])[:HEADER] + garbage if headed else garbage)


@given(st.binary(max_size=100))
def test_a_record_that_is_no_operation_is_corrupt(record: bytes) -> None:
    with pytest.raises(CorruptDataError):
        RecordedOperation(A, 1, record).op()


def test_a_record_of_another_incarnation_is_corrupt() -> None:
    op = said("a1")

    with pytest.raises(CorruptDataError):
        RecordedOperation(A, op.incarnation + 1, op.record).op()


def test_shuffling_keeps_every_item_and_follows_its_seed() -> None:
    items = some_items()

    assert shuffled(items, 1) == shuffled(iter(items), 1)
    assert shuffled(items, 1) != shuffled(items, 2)
    assert sorted(map(repr, shuffled(items, 1))) == sorted(map(repr, items))
