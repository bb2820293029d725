"""Which worker owns a partition, by the metadata of the consumer group."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import msgspec
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from aiokafka.errors import KafkaError, for_code

from turnstate.schemas.errors import UnavailableError
from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.connections import unavailable
from turnstate.streams.kafka.queries import SCHEME

STABLE: Final = "Stable"
"""The state of a group in which the brokers tell its members' metadata."""

IDLE: Final = frozenset({"Dead", "Empty"})


class Address(NamedTuple):
    """Where a worker answers queries."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Routes(NamedTuple):
    """Who owns what, at one moment.

    Attributes:
        state: Of the group, in Kafka's words.
        workers: How many members it has.
        owners: Partition → where its worker answers.
        members: Where workers answer, those without a partition, too.
    """

    state: str
    workers: int
    owners: Mapping[int, Address]
    members: frozenset[Address] = frozenset()

    def address(self, partition: int) -> Address:
        """Return where the worker of a partition answers.

        Raises:
            UnavailableError: nobody runs, the group is being divided anew, or
                a worker answers no queries.
        """
        found = self.owners.get(partition)
        if found is not None:
            return found
        if self.state in IDLE:
            raise UnavailableError(
                "no worker runs",
                field="partition",
                hint="turnstate worker --instance NAME",
                code="no_worker",
            )
        if self.state != STABLE:
            raise UnavailableError(
                f"the partitions are being divided among {self.workers} workers",
                field="partition",
                hint="ask again in a moment",
                code="rebalancing",
            )
        raise UnavailableError(
            f"no worker says that it owns partition {partition}",
            field="partition",
            hint="ask again in a moment; a group of other programs never answers",
            code="no_owner",
        )


class _ClientMetadata(msgspec.Struct):
    """What Faust's assignor tells the group of a worker; the rest is its own."""

    url: str


def member_address(metadata: bytes) -> Address | None:
    """Read where a member answers out of what it told when it joined.

    Example:
        >>> told = b'{"url": "turnstate://127.0.0.1:7001", "assignment": {}}'
        >>> joined = ConsumerProtocolMemberMetadata(2, ["turns"], told)
        >>> member_address(joined.encode())
        Address(host='127.0.0.1', port=7001)
        >>> member_address(b"") is None
        True
    """
    try:
        joined: Any = ConsumerProtocolMemberMetadata.decode(metadata)
        told = msgspec.json.decode(joined.user_data or b"", type=_ClientMetadata)
        url = urlsplit(told.url)
        port = url.port
    except (ValueError, msgspec.MsgspecError, *_DECODE_ERRORS):
        return None
    if url.scheme != SCHEME or not url.hostname or not port:
        return None
    return Address(url.hostname, port)


def member_partitions(assignment: bytes, topic: str) -> list[int]:
    """Read the partitions of a topic that a member was given.

    Example:
        >>> given = ConsumerProtocolMemberAssignment(2, [("turns", [0, 3])], b"")
        >>> member_partitions(given.encode(), "turns")
        [0, 3]
    """
    try:
        given: Any = ConsumerProtocolMemberAssignment.decode(assignment)
        return [
            partition
            for name, partitions in given.assignment
            if name == topic
            for partition in partitions
        ]
    except (ValueError, *_DECODE_ERRORS):
        return []


def routes_of(state: str, members: Iterable[Any], topic: str) -> Routes:
    """Return who owns what, of a group as the brokers describe it.

    Args:
        state: Of the group.
        members: Rows of DescribeGroups: metadata and assignment at the end.
        topic: The topic of turns.
    """
    rows = list(members)
    owners: dict[int, Address] = {}
    addresses: set[Address] = set()
    for row in rows:
        metadata, assignment = row[-2:]
        address = member_address(bytes(metadata or b""))
        if address is not None:
            addresses.add(address)
            for partition in member_partitions(bytes(assignment or b""), topic):
                owners[partition] = address
    return Routes(state, len(rows), owners, frozenset(addresses))


async def find_routes(
    settings: ClusterSettings, admin: AIOKafkaAdminClient, topic: str
) -> Routes:
    """Ask the group's coordinator who owns what now.

    Args:
        settings: Name the group.
        admin: Connected.
        topic: The topic of turns.

    Raises:
        UnavailableError: the brokers do not answer.
    """
    try:
        responses: Any = await admin.describe_consumer_groups([settings.group])
    except (KafkaError, OSError, TimeoutError) as error:
        raise unavailable(settings, error, "who owns what") from error
    error_code, _, state, _, _, members, *_ = responses[0].groups[0]
    if error_code:
        raise unavailable(settings, for_code(error_code)(), "who owns what")
    return routes_of(state, members, topic)


_DECODE_ERRORS: Final = (KeyError, TypeError, IndexError, EOFError)
