"""The producer on a real Kafka: packed, in order, acknowledged, none lost or twice."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from aiokafka.errors import OutOfOrderSequenceNumber

from turnstate.infra.services.kafka import KafkaServer, start_kafka
from turnstate.schemas.errors import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    TurnstateError,
    UnavailableError,
)
from turnstate.schemas.ids import SessionName
from turnstate.schemas.turn import Stamp, Turn
from turnstate.schemas.wire.packed import CONTENT_TYPE as PACK
from turnstate.schemas.wire.packed import unpack_turns
from turnstate.schemas.wire.protobuf import turn_to_protobuf
from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.letter_records import kept_letter
from turnstate.streams.kafka.partitioning import partition_of_session
from turnstate.streams.kafka.producer import TurnProducer
from turnstate.streams.kafka.receipts import Ack
from turnstate.streams.kafka.sync_producer import SyncTurnProducer
from turnstate.streams.kafka.topic_reader import read_whole
from turnstate.streams.kafka.topics import Topics, create_topics

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def settings_on(bootstrap: str) -> ClusterSettings:
    name = f"producer-{uuid4().hex[:8]}"
    settings = ClusterSettings(
        bootstrap=bootstrap, prefix=f"{name}.", group=name, partitions=4
    )
    asyncio.run(create_topics(settings))
    return settings


@pytest.fixture(name="settings")
def fixture_settings(kafka: str) -> ClusterSettings:
    return settings_on(kafka)


@pytest.fixture(name="own_kafka")
def fixture_own_kafka(kafka: str, tmp_path: Path) -> Generator[KafkaServer]:
    """A broker that may be killed; after the shared one, whose skip it shares."""
    server = start_kafka(tmp_path / "kafka")
    try:
        yield server
    finally:
        server.stop()


def turn(number: int, session: str = "s", **more: Any) -> dict[str, Any]:
    return {
        "tenant": "acme",
        "session": session,
        "role": "user",
        "turn_id": str(number),
        "content": f"turn {number}",
        **more,
    }


async def records(settings: ClusterSettings, topic: str) -> list[Any]:
    return [record async for record in read_whole(settings, topic)]


async def turns_in(settings: ClusterSettings) -> dict[Ack, dict[str, Any]]:
    """Return every turn of the topic by its place, in the order of offsets."""
    found: dict[Ack, dict[str, Any]] = {}
    for record in await records(settings, Topics.of(settings).turns):
        packed = dict(record.headers)["content-type"] == PACK.encode()
        values = unpack_turns(record.value) if packed else [record.value]
        assert packed == (record.key is None)
        for index, value in enumerate(values):
            document = json.loads(value)
            at = Ack(record.partition, record.offset, index)
            name = SessionName(document["tenant"], document["session"])
            assert record.partition == partition_of_session(*name, settings.partitions)
            if not packed:
                assert record.key == name.key()
            found[at] = document
    return found


def test_every_turn_is_where_its_receipt_says(settings: ClusterSettings) -> None:
    async def test() -> None:
        async with TurnProducer(settings) as producer:
            receipts = {
                number: await producer.publish(turn(number, f"s{number % 9}"))
                for number in range(2000)
            }
            await producer.flush()
            assert all(receipt.done for receipt in receipts.values())
            assert producer.held_turns == 0
            places = {receipt.result(): n for n, receipt in receipts.items()}
        found = await turns_in(settings)
        assert found.keys() == places.keys()
        assert all(found[at] == turn(n, f"s{n % 9}") for at, n in places.items())
        # Far fewer records than turns, and each session in its order.
        assert len({(at.partition, at.offset) for at in found}) < 200
        for session in range(9):
            mine = [d for d in found.values() if d["session"] == f"s{session}"]
            order = [int(document["turn_id"]) for document in mine]
            assert order == sorted(order)

    asyncio.run(test())


def test_a_turn_that_comes_alone_is_plain_json(settings: ClusterSettings) -> None:
    async def test() -> None:
        raw = json.dumps(turn(1), indent=1).encode()
        async with TurnProducer(settings) as producer:
            await (await producer.publish(raw))
            await (await producer.publish(turn(2, request_id="mine")))
            protobuf = turn_to_protobuf(Turn("acme", "s", "user", content="hi"))
            await (await producer.publish(protobuf))
        found = await records(settings, Topics.of(settings).turns)
        first, second, third = [dict(record.headers) for record in found]
        assert found[0].value == raw
        assert {SessionName("acme", "s").key()} == {record.key for record in found}
        assert first["content-type"] == second["content-type"] == b"application/json"
        assert third["content-type"] == b"application/x-protobuf"
        assert first["request-id"] not in (b"", third["request-id"])
        assert second["request-id"] == b"mine"

    asyncio.run(test())


def test_a_trace_goes_with_its_turn_in_its_order(settings: ClusterSettings) -> None:
    async def test() -> None:
        async with TurnProducer(settings) as producer:
            for number in range(9):
                traceparent = TRACE if number % 3 == 1 else None
                await producer.publish(turn(number), traceparent=traceparent)
        found = await turns_in(settings)
        assert [str(number) for number in range(9)] == [
            document["turn_id"] for document in found.values()
        ]
        traced = [
            json.loads(record.value)["turn_id"]
            for record in await records(settings, Topics.of(settings).turns)
            if dict(record.headers).get("traceparent") == TRACE.encode()
        ]
        assert traced == ["1", "4", "7"]

    asyncio.run(test())


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        (b"nope", None),
        (turn(1, session=""), "session"),
        (turn(1, role=7), "role"),
        ({"tenant": "acme", "content": float("nan")}, None),
        ({"tenant": {1}}, None),
        (turn(1, stamp={"dot": ["eu", 1], "lamport": 1}, parent=None), "stamp"),
        (b"{" + bytes(17 << 20), "record"),
    ],
)
def test_what_is_no_turn_is_refused_at_once_and_not_sent(
    settings: ClusterSettings, bad: Any, field: str | None
) -> None:
    async def test() -> None:
        async with TurnProducer(settings) as producer:
            with pytest.raises(InvalidInputError) as caught:
                await producer.publish(bad)
            with pytest.raises(InvalidInputError):
                await producer.publish_many([turn(1), bad])
            with pytest.raises(InvalidInputError):
                await producer.publish(turn(1), traceparent="x")
        if field is not None:
            assert caught.value.field == field
        assert not await turns_in(settings)

    asyncio.run(test())


def test_a_replica_may_send_stamps(settings: ClusterSettings) -> None:
    async def test() -> None:
        stamped = Turn(
            "acme", "s", "user", content="x", parent=None, stamp=Stamp(("eu", 1), 1)
        )
        async with TurnProducer(settings, replica=True) as producer:
            await producer.publish(stamped)
        (document,) = (await turns_in(settings)).values()
        assert document["stamp"]["dot"] == ["eu", 1]

    asyncio.run(test())


def test_raw_bytes_and_tombstones_go_as_they_are(settings: ClusterSettings) -> None:
    async def test() -> None:
        async with TurnProducer(settings) as producer:
            await producer.publish_raw(b"\xff", b"key", headers=[("x", b"y")])
            await producer.publish_raw(None, b"key")
            await producer.publish_raw(b"", None, partition=2)
        found = await records(settings, Topics.of(settings).turns)
        rows = {(record.key, record.value, tuple(record.headers)) for record in found}
        assert rows == {
            (b"key", b"\xff", (("x", b"y"),)),
            (b"key", None, ()),
            (None, b"", ()),
        }

    asyncio.run(test())


def test_what_is_refused_is_a_letter_that_can_be_read(
    settings: ClusterSettings,
) -> None:
    async def test() -> None:
        error = InvalidInputError("no turn", field="role", code="why")
        large = bytes(17 << 20)
        async with TurnProducer(settings) as producer:
            await (await producer.refuse(b"nope", error, trace=TRACE))
            await (await producer.refuse(large, error, key=b"key"))
        found = await records(settings, Topics.of(settings).dead_letters)
        letters = [kept_letter(record) for record in found]
        small, cut = sorted(letters, key=lambda kept: kept.letter.raw_bytes)
        assert (small.letter.raw, small.letter.reason, small.letter.field) == (
            b"nope",
            "why",
            "role",
        )
        assert (small.letter.trace, small.refused) == (TRACE, None)
        assert (cut.letter.raw_bytes, cut.key) == (len(large), b"key")
        assert cut.letter.raw_hash is not None

    asyncio.run(test())


def test_a_topic_that_is_missing_or_differs_is_named(settings: ClusterSettings) -> None:
    async def test() -> None:
        with pytest.raises(NotFoundError):
            await TurnProducer(
                ClusterSettings(bootstrap=settings.bootstrap, prefix="not-there.")
            ).start()
        with pytest.raises(ConflictError) as caught:
            await TurnProducer(
                ClusterSettings(bootstrap=settings.bootstrap, prefix=settings.prefix)
            ).start()
        assert caught.value.code == "topic_differs"

    asyncio.run(test())


def test_without_a_broker_it_says_so_in_time() -> None:
    async def test() -> None:
        settings = ClusterSettings(bootstrap="127.0.0.1:1")
        with pytest.raises(UnavailableError):
            await TurnProducer(settings, block_ms_max=300).start()

    asyncio.run(test())


def test_a_closed_producer_takes_nothing(settings: ClusterSettings) -> None:
    async def test() -> None:
        async with TurnProducer(settings) as producer:
            receipt = await producer.publish(turn(1))
        assert receipt.done
        with pytest.raises(UnavailableError) as caught:
            await producer.publish(turn(2))
        assert caught.value.code == "closed"
        await producer.close()

    asyncio.run(test())


def test_a_producer_whose_sequence_broke_goes_on_with_a_new_one(
    settings: ClusterSettings,
) -> None:
    async def test() -> None:
        async with TurnProducer(settings) as producer:
            await producer.publish(turn(1))
            await producer.flush()
            delivery: Any = producer._delivery
            # What aiokafka does when the broker says so.
            delivery._producer._message_accumulator.fail_all(OutOfOrderSequenceNumber())
            await (await producer.publish(turn(2)))
        assert [d["turn_id"] for d in (await turns_in(settings)).values()] == ["1", "2"]

    asyncio.run(test())


def test_programs_without_a_loop_have_the_same(settings: ClusterSettings) -> None:
    with SyncTurnProducer(settings) as producer:
        one = producer.publish(turn(0), request_id="r")
        many = producer.publish_many([turn(number) for number in range(1, 500)])
        with pytest.raises(InvalidInputError):
            producer.publish(b"nope")
        producer.refuse(b"nope", InvalidInputError("no turn"))
        at = producer.publish_raw(b"raw", b"key").result(30)
        assert at.offset >= 0
        producer.flush()
        assert one.done
        places = [one.result(), *(receipt.result(1) for receipt in many)]
    producer.close()
    assert len(set(places)) == 500
    assert one.partition == partition_of_session("acme", "s", settings.partitions)
    found = asyncio.run(records(settings, Topics.of(settings).dead_letters))
    assert len(found) == 1


def test_a_broker_killed_under_load_loses_nothing_and_doubles_nothing(
    own_kafka: KafkaServer,
) -> None:
    settings = settings_on(own_kafka.bootstrap)
    sent = asyncio.run(_through_kills(settings, own_kafka, kills=2))
    found = asyncio.run(turns_in(settings))
    counted = Counter(document["turn_id"] for document in found.values())
    assert len(sent) > 1000
    assert set(counted.values()) == {1}
    assert counted.keys() == set(sent)
    # An acknowledgement given twice may not know its offset any more.
    known = {at: name for name, at in sent.items() if at.offset >= 0}
    assert len(known) > 0.9 * len(sent)
    assert all(found[at]["turn_id"] == name for at, name in known.items())


async def _through_kills(
    settings: ClusterSettings, server: KafkaServer, *, kills: int
) -> dict[str, Ack]:
    """Publish while a broker is killed; return what was acknowledged."""
    receipts: dict[str, Any] = {}
    done = asyncio.Event()

    async def publish(producer: TurnProducer) -> None:
        number = 0
        while not done.is_set():
            name = f"s{number % 50}"
            receipts[str(number)] = await producer.publish(turn(number, name))
            number += 1
            if number % 50 == 0:
                await asyncio.sleep(0.002)

    async with TurnProducer(settings, buffer_turns_max=2000) as producer:
        publishing = asyncio.create_task(publish(producer))
        for kill in range(kills):
            await asyncio.sleep(0.5)
            await asyncio.to_thread(server.kill)
            began = time.monotonic()
            while producer.held_back == kill:  # until the buffer is full
                assert time.monotonic() - began < 30
                await asyncio.sleep(0.01)
            await asyncio.to_thread(server.restart)
            while producer.held_turns == 2000:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.5)
        done.set()
        await publishing
        assert producer.held_back >= kills
    return {name: receipt.result() for name, receipt in receipts.items()}


def test_a_broker_that_stays_away_is_told_and_closing_ends(
    own_kafka: KafkaServer,
) -> None:
    async def test() -> None:
        producer = TurnProducer(
            settings, buffer_turns_max=10, block_ms_max=500, delivery_timeout_s=3
        )
        await producer.start()
        await (await producer.publish(turn(0)))
        await asyncio.to_thread(own_kafka.kill)
        receipts = [await producer.publish(turn(number)) for number in range(1, 11)]
        with pytest.raises(UnavailableError) as caught:
            await producer.publish(turn(11))
        assert caught.value.code == "buffer_full"
        with pytest.raises(UnavailableError) as caught:
            await producer.flush()
        assert caught.value.code == "delivery_timeout"
        for receipt in receipts:
            with pytest.raises(TurnstateError):
                await receipt
        receipt = await producer.publish(turn(12))
        with pytest.raises(UnavailableError):
            await producer.close()
        assert receipt.done
        assert asyncio.all_tasks() == {asyncio.current_task()}

    settings = settings_on(own_kafka.bootstrap)
    asyncio.run(test())
