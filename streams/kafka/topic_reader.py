"""Read topics without a group: from known offsets, to the end or on and on."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from turnstate.schemas.errors import NotFoundError
from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.connections import CONNECT_S, started, unavailable

WAIT_MS: Final = 200
"""How long one look for records waits."""

_FETCH_BYTES: Final = 8 << 20


class TopicReader:
    """Read all partitions, or some, of some topics; nothing is committed.

    Args:
        settings: Where the brokers are.
        consumer: A started consumer without a group.
    """

    def __init__(self, settings: ClusterSettings, consumer: Any) -> None:
        self._settings = settings
        self._consumer = consumer

    async def topics(self) -> set[str]:
        """Return the names of the topics that there are."""
        return set(await self._asked(self._consumer.topics()))

    def assign(self, places: Sequence[TopicPartition]) -> None:
        """Choose what is read; begins nowhere until `seek`."""
        self._consumer.assign(list(places))

    def seek(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Go on from these offsets."""
        for place, offset in offsets.items():
            self._consumer.seek(place, offset)

    async def begins(self, places: Sequence[TopicPartition]) -> dict[Any, int]:
        """Return the first offset of each partition that is still kept."""
        return dict(await self._asked(self._consumer.beginning_offsets(places)))

    async def ends(self, places: Sequence[TopicPartition]) -> dict[Any, int]:
        """Return the offset after the last of each partition."""
        return dict(await self._asked(self._consumer.end_offsets(places)))

    async def records(self, *, wait_ms: int = WAIT_MS) -> list[Any]:
        """Return what came; partition by partition, in order."""
        found = await self._asked(self._consumer.getmany(timeout_ms=wait_ms))
        return [record for records in found.values() for record in records]

    async def until(self, ends: Mapping[TopicPartition, int]) -> AsyncGenerator[Any]:
        """Yield records until every partition has reached its end."""
        while not await self.reached(ends):
            for record in await self.records():
                yield record

    async def reached(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Say whether every partition was read up to its end."""
        for place, end in ends.items():
            if await self._asked(self._consumer.position(place)) < end:
                return False
        return True

    async def _asked(self, answer: Any) -> Any:
        try:
            return await answer
        except (KafkaError, OSError) as error:
            raise unavailable(self._settings, error, "to read") from error


@asynccontextmanager
async def topic_reader(
    settings: ClusterSettings,
    *,
    timeout_s: float = CONNECT_S,
    fetch_max_wait_ms: int = 100,
) -> AsyncGenerator[TopicReader]:
    """Give a reader that is connected; assign it something.

    Args:
        settings: Where the brokers are.
        timeout_s: How long to try to connect.
        fetch_max_wait_ms: How long a broker may hold a fetch that finds
            nothing; a record that comes for another fetch waits as long.

    Raises:
        UnavailableError: no broker answers in time.
    """
    consumer: Any = AIOKafkaConsumer(
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=fetch_max_wait_ms,
        max_partition_fetch_bytes=_FETCH_BYTES,
        **settings.client_options(),
    )
    try:
        await started(consumer, settings, "to read", timeout_s=timeout_s)
        yield TopicReader(settings, consumer)
    finally:
        await consumer.stop()


def places_of(settings: ClusterSettings, *topics: str) -> list[TopicPartition]:
    """Return every partition of some topics."""
    return [
        TopicPartition(topic, partition)
        for topic in topics
        for partition in range(settings.partitions)
    ]


async def read_whole(settings: ClusterSettings, topic: str) -> AsyncGenerator[Any]:
    """Yield every record of a topic that is there now.

    Raises:
        NotFoundError: there is no such topic.
        UnavailableError: no broker answers.
    """
    async with topic_reader(settings) as reader:
        places = places_of(settings, topic)
        if topic not in await reader.topics():
            raise NotFoundError(
                f"there is no topic {topic!r}",
                field="topic",
                hint="turnstate topics create",
            )
        reader.assign(places)
        ends = await reader.ends(places)
        reader.seek(await reader.begins(places))
        async for record in reader.until(ends):
            yield record
