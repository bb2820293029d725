"""Which partition a session is in: Kafka's own answer, so that all producers agree."""

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from turnstate.schemas.ids import SessionName

_SESSIONS_KNOWN: Final = 65_536
"""Keys whose partition is remembered; Murmur2 in Python takes 5 µs."""


@lru_cache(maxsize=_SESSIONS_KNOWN)
def partition_of(key: bytes, partitions: int) -> int:
    r"""Return the partition of a record with a key.

    The default partitioner of Kafka's Java client, of kafkajs and of most
    others: Murmur2 of the key, without its sign, modulo the partitions. A
    producer that only sets the key of a record is in the same partition.

    Example:
        >>> partition_of(b"\x00\x01ts", 8)
        3
    """
    from aiokafka import partitioner

    murmur2: Callable[[bytes], int] = partitioner.murmur2
    return (murmur2(key) & 0x7FFF_FFFF) % partitions


def partition_of_session(tenant: str, session: str, partitions: int) -> int:
    """Return the partition of a session."""
    return partition_of(SessionName(tenant, session).key(), partitions)
