"""Partitions are those of Kafka's own default partitioner."""

import pytest
from aiokafka.partitioner import DefaultPartitioner
from hypothesis import given
from hypothesis import strategies as st

from turnstate.schemas.ids import SessionName
from turnstate.streams.kafka.partitioning import partition_of, partition_of_session

# Keys and hashes of org.apache.kafka.common.utils.UtilsTest.testMurmur2.
KNOWN = [
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (b"abc", 479470107),
]


@pytest.mark.parametrize(("key", "hashed"), KNOWN)
@pytest.mark.parametrize("partitions", [1, 7, 8, 1 << 20])
def test_known_hashes_choose_the_partition(
    key: bytes, hashed: int, partitions: int
) -> None:
    assert (hashed & 0x7FFF_FFFF) % partitions == partition_of(key, partitions)


@given(st.binary(max_size=64), st.integers(1, 100))
def test_aiokafka_chooses_the_same(key: bytes, partitions: int) -> None:
    every = list(range(partitions))
    assert DefaultPartitioner()(key, every, every) == partition_of(key, partitions)


def test_a_session_is_where_its_key_is() -> None:
    key = SessionName("acme", "chat-17").key()
    assert partition_of(key, 8) == partition_of_session("acme", "chat-17", 8)
