"""Dead letters of what is erased: settled so that nobody redrives them, or deleted."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

from aiokafka import TopicPartition

from turnstate.schemas.errors import NotFoundError
from turnstate.streams.embedded.scrub import Gone, draft_of
from turnstate.streams.kafka import dead_letters
from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.letter_records import LetterId
from turnstate.streams.kafka.producer import TurnProducer
from turnstate.streams.kafka.topic_reader import read_whole, topic_reader
from turnstate.streams.kafka.topics import Topics


class Letters(NamedTuple):
    """Dead letters that hold something of what is erased.

    Attributes:
        seen: Letters looked at.
        about: They, settled or not.
    """

    seen: int
    about: list[LetterId]


async def letters_about(cluster: ClusterSettings, gone: Gone) -> Letters:
    """Look through the whole topic.

    Raises:
        NotFoundError: there is no topic of dead letters.
        UnavailableError: no broker answers.
    """
    seen = 0
    about: list[LetterId] = []
    async for record in read_whole(cluster, Topics.of(cluster).dead_letters):
        if record.value is None:
            continue
        seen += 1
        if is_about(record.key, record.value, gone):
            about.append(LetterId(record.partition, record.offset))
    return Letters(seen, about)


def is_about(key: bytes | None, raw: bytes, gone: Gone) -> bool:
    r"""Say whether a letter has to go; what is no turn is its session's by its key.

    Args:
        key: Of the record that was refused.
        raw: What was refused.
        gone: What has to go.

    Example:
        >>> gone = Gone("t", {b"\x00\x01ts": 1})
        >>> is_about(b"\x00\x01ts", b"cut off", gone), is_about(None, b"", gone)
        (True, False)
    """
    if gone.is_about(raw):
        return True
    return key in gone.lives and draft_of(raw) is None


async def settle(cluster: ClusterSettings, about: Iterable[LetterId]) -> int:
    """Settle letters, so that they are neither shown nor sent again.

    Returns:
        How many were open.

    Raises:
        UnavailableError: no broker answers.
    """
    wanted = {letter_id.name() for letter_id in about}
    if not wanted:
        return 0
    count = 0
    while True:
        rows = (await dead_letters.dead_letters(cluster))["dead_letters"]
        names = [row["id"] for row in rows if row["id"] in wanted]
        if not names:
            return count
        try:
            count += (await dead_letters.discard(cluster, names))["discarded"]
        except NotFoundError:
            continue  # somebody else has settled one of them meanwhile


async def copied_before(
    cluster: ClusterSettings, about: Iterable[LetterId]
) -> dict[TopicPartition, int]:
    """Copy the open letters of others to the end; return what may be deleted.

    A copy counts as the letter itself, so a crash in between changes nothing.

    Returns:
        Partition of the topic → the offset before which nothing is needed.

    Raises:
        UnavailableError: no broker answers.
    """
    topic = Topics.of(cluster).dead_letters
    cuts: dict[int, int] = defaultdict(int)
    for letter_id in about:
        cuts[letter_id.partition] = max(cuts[letter_id.partition], letter_id.offset + 1)
    if not cuts:
        return {}
    rows = (await dead_letters.dead_letters(cluster))["dead_letters"]
    open_ones = {LetterId.read(row["id"]) for row in rows}
    ends = {TopicPartition(topic, number): cut for number, cut in cuts.items()}
    async with topic_reader(cluster) as reader, TurnProducer(cluster) as producer:
        reader.assign(list(ends))
        reader.seek(await reader.begins(list(ends)))
        async for record in reader.until(ends):
            place = LetterId(record.partition, record.offset)
            if place in open_ones and record.offset < cuts[record.partition]:
                await _copy(producer, topic, record)
    return ends


async def _copy(producer: TurnProducer, topic: str, record: Any) -> None:
    receipt = await producer.publish_raw(
        record.value,
        record.key,
        partition=record.partition,
        headers=list(record.headers),
        topic=topic,
    )
    await receipt
