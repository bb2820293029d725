"""Who owns a partition, read out of what the brokers tell of a group."""

import pytest
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)

from turnstate.schemas.errors import UnavailableError
from turnstate.streams.kafka.routing import (
    Address,
    Routes,
    member_address,
    member_partitions,
    routes_of,
)


def joined(url: str) -> bytes:
    told = f'{{"url": "{url}", "assignment": {{"actives": {{}}}}}}'
    return bytes(
        ConsumerProtocolMemberMetadata(2, ["turns"], told.encode()).encode()
    )


def given(*partitions: int) -> bytes:
    topics = [("turns", list(partitions)), ("turnstate-state-changelog", [9])]
    return bytes(ConsumerProtocolMemberAssignment(2, topics, b"x").encode())


def member(url: str, *partitions: int) -> tuple[object, ...]:
    return ("id", "instance", "client", "host", joined(url), given(*partitions))


def test_each_partition_has_the_address_of_its_worker() -> None:
    members = [
        member("turnstate://127.0.0.1:7001", 0, 2),
        member("turnstate://[::1]:7002", 1),
        member("http://127.0.0.1:6066", 3),
    ]
    routes = routes_of("Stable", members, "turns")
    assert routes.workers == 3
    assert routes.owners == {
        0: Address("127.0.0.1", 7001),
        1: Address("::1", 7002),
        2: Address("127.0.0.1", 7001),
    }
    assert str(routes.address(2)) == "127.0.0.1:7001"


@pytest.mark.parametrize(
    "url",
    ["", "turnstate://", "turnstate://x", "turnstate://x:0", "turnstate://x:99999"],
)
def test_an_address_that_is_none(url: str) -> None:
    assert member_address(joined(url)) is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0",
        b"\xff" * 40,
        bytes(64),
        ConsumerProtocolMemberMetadata(2, ["turns"], b"").encode(),
        ConsumerProtocolMemberMetadata(2, ["turns"], b"{").encode(),
        ConsumerProtocolMemberMetadata(2, ["turns"], b'{"url": 7}').encode(),
    ],
)
def test_metadata_of_another_program_are_no_address(data: bytes) -> None:
    assert member_address(data) is None
    assert member_partitions(data, "turns") == []


@pytest.mark.parametrize(
    ("routes", "code"),
    [
        (Routes("Dead", 0, {}), "no_worker"),
        (Routes("Empty", 0, {}), "no_worker"),
        (Routes("PreparingRebalance", 2, {}), "rebalancing"),
        (Routes("Stable", 2, {1: Address("h", 1)}), "no_owner"),
    ],
)
def test_why_nobody_is_known(routes: Routes, code: str) -> None:
    with pytest.raises(UnavailableError) as caught:
        routes.address(0)
    assert caught.value.code == code
