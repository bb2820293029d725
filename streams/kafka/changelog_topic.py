"""What the brokers say of a changelog: how long deletions are known, where it ends."""

from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError

from turnstate.schemas.errors import UnavailableError
from turnstate.streams.kafka.backup_rules import Changelog
from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.connections import admin_client, started, unavailable
from turnstate.streams.kafka.topic_ids import topic_id

_RETENTION: Final = "delete.retention.ms"


async def tombstones_kept_ms(cluster: ClusterSettings, topic: str) -> int:
    """Return for how long a topic keeps tombstones.

    Raises:
        UnavailableError: the brokers do not answer, or do not tell.
    """
    asked = [ConfigResource(ConfigResourceType.TOPIC, topic)]
    async with admin_client(cluster) as admin:
        responses: list[Any] = await admin.describe_configs(asked)
        for response in responses:
            for error_code, _, _, _, entries in response.resources:
                found = {entry[0]: entry[1] for entry in entries}
                if not error_code and _RETENTION in found:
                    return int(found[_RETENTION])
    raise UnavailableError(
        f"the broker does not tell {_RETENTION} of {topic}", field="kafka"
    )


async def changelog_now(
    cluster: ClusterSettings, topic: str, number: int
) -> Changelog:
    """Return what a partition of a changelog is now.

    Raises:
        NotFoundError: there is no such topic.
        UnavailableError: the brokers do not answer.
    """
    identity = await topic_id(cluster, topic)
    kept_ms = await tombstones_kept_ms(cluster, topic)
    place = TopicPartition(topic, number)
    consumer: Any = AIOKafkaConsumer(
        enable_auto_commit=False, **cluster.client_options()
    )
    try:
        await started(consumer, cluster, "the changelog")
        begins = await consumer.beginning_offsets([place])
        ends = await consumer.end_offsets([place])
    except (KafkaError, OSError) as error:
        raise unavailable(cluster, error, "the changelog") from error
    finally:
        await consumer.stop()
    return Changelog(
        identity, cluster.partitions, begins[place], ends[place], kept_ms
    )
