"""Ask the brokers what a range of a topic of turns means now."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.connections import admin_client, started, unavailable
from turnstate.streams.kafka.replay_range import Source, Span, spans_of
from turnstate.streams.kafka.topic_ids import topic_id

WAIT_MS: Final = 200
"""How long one look for records waits."""

_FETCH_BYTES: Final = 8 << 20


class Plan(NamedTuple):
    """What is going to be folded.

    Attributes:
        log: The 16 bytes of the topic's id: positions carry it, as in a worker.
        spans: Partition → its records; every partition of the topic is there.
    """

    log: bytes
    spans: Mapping[int, Span]

    @property
    def records(self) -> int:
        """Return about how many records that are; offsets may have holes."""
        return sum(max(0, span.end - span.first) for span in self.spans.values())


async def planned(source: Source, *, whole: bool = False) -> Plan:
    """Ask the brokers what a range means now.

    Args:
        source: Topic and range.
        whole: Whether what lies before the range is folded, too.

    Raises:
        InvalidInputError: the range is not of this topic.
        NotFoundError: there is no such topic.
        UnavailableError: no broker answers, or turns were deleted (code
            `turns_deleted`).
    """
    settings, topic, words = source
    wanted = words.parsed()
    log = await topic_id(settings, topic)
    async with admin_client(settings) as admin:
        described = await admin.describe_topics([topic])
    places = [
        TopicPartition(topic, each["partition"]) for each in described[0]["partitions"]
    ]
    async with lone_consumer(settings) as consumer:
        begins: Any = await consumer.beginning_offsets(places)
        ends: Any = await consumer.end_offsets(places)
        from_times = await _at_time(consumer, places, wanted.from_ms)
        to_times = await _at_time(consumer, places, wanted.to_ms)
    spans = spans_of(
        wanted,
        {place.partition: begins[place] for place in places},
        {place.partition: ends[place] for place in places},
        from_times=from_times,
        to_times=to_times,
        whole=whole,
    )
    return Plan(log, spans)


async def ends_now(source: Source, plan: Plan) -> dict[int, int]:
    """Return the offset after the last that each partition has by now."""
    places = [TopicPartition(source.topic, number) for number in plan.spans]
    async with lone_consumer(source.settings) as consumer:
        found: Any = await consumer.end_offsets(places)
    return {place.partition: found[place] for place in places}


async def _at_time(
    consumer: Any, places: Sequence[TopicPartition], time_ms: int | None
) -> dict[int, int | None]:
    if time_ms is None:
        return {}
    found = await consumer.offsets_for_times(dict.fromkeys(places, time_ms))
    return {
        place.partition: None if at is None else at.offset
        for place, at in found.items()
    }


@asynccontextmanager
async def lone_consumer(
    settings: ClusterSettings, **options: Any
) -> AsyncGenerator[Any]:
    """Give a consumer without a group, which begins where it is told or nowhere.

    Args:
        settings: Where the brokers are.
        options: Of aiokafka's consumer.

    Raises:
        UnavailableError: no broker answers.
    """
    consumer: Any = AIOKafkaConsumer(
        enable_auto_commit=False,
        auto_offset_reset="none",
        fetch_max_wait_ms=WAIT_MS,
        max_partition_fetch_bytes=_FETCH_BYTES,
        **settings.client_options(),
        **options,
    )
    try:
        await started(consumer, settings, "to replay")
        yield consumer
    except (KafkaError, OSError) as error:
        raise unavailable(settings, error, "to replay") from error
    finally:
        await consumer.stop()
