"""Delete from topics what is folded, for those who want erased bytes gone now."""

from collections.abc import Iterable, Mapping

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete

from turnstate.streams.documents import Document
from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.connections import admin_client
from turnstate.streams.kafka.erase_letters import copied_before
from turnstate.streams.kafka.letter_records import LetterId
from turnstate.streams.kafka.topic_reader import topic_reader
from turnstate.streams.kafka.topics import Topics


async def trim(
    cluster: ClusterSettings, numbers: Iterable[int], letters: Iterable[LetterId]
) -> Document:
    """Delete turns that are folded and committed, their frames, and letters.

    All of the partitions, whosever they are: a topic has no other deletion. The
    states stay; what cannot be done any more is to fold them again from the log.

    Args:
        cluster: Where the brokers are, and the names.
        numbers: The partitions in which something of it lies.
        letters: Dead letters that have to go; others that are open are kept.

    Returns:
        Of each topic, how many records went.

    Raises:
        UnavailableError: no broker answers, or it refuses.
    """
    topics = Topics.of(cluster)
    numbers = sorted(set(numbers))
    turns = [TopicPartition(topics.turns, number) for number in numbers]
    deltas = [TopicPartition(topics.deltas, number) for number in numbers]
    # Frames of what is folded later come behind these ends.
    async with topic_reader(cluster) as reader:
        ends = await reader.ends(deltas)
    before: dict[TopicPartition, int] = {place: ends[place] for place in deltas}
    before |= await copied_before(cluster, letters)
    async with admin_client(cluster) as admin:
        before |= await _committed(admin, cluster.group, turns)
    async with topic_reader(cluster) as reader:
        begins = await reader.begins(list(before))
    doomed = {place: at for place, at in before.items() if at > begins[place]}
    async with admin_client(cluster) as admin:
        if doomed:
            await admin.delete_records(
                {place: RecordsToDelete(at) for place, at in doomed.items()}
            )
    return counted(doomed, begins)


def counted(
    before: Mapping[TopicPartition, int], begins: Mapping[TopicPartition, int]
) -> Document:
    """Return how many records go of each topic.

    Example:
        >>> place = TopicPartition("turns", 0)
        >>> counted({place: 7}, {place: 2})
        {'turns': 5}
    """
    found: Document = {}
    for place, at in before.items():
        found[place.topic] = found.get(place.topic, 0) + at - begins[place]
    return found


async def _committed(
    admin: AIOKafkaAdminClient, group: str, places: list[TopicPartition]
) -> dict[TopicPartition, int]:
    if not places:
        return {}
    found = await admin.list_consumer_group_offsets(group, partitions=places)
    return {
        place: found[place].offset
        for place in places
        if place in found and found[place].offset > 0
    }
