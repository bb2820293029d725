"""Find in a changelog what it has of some sessions, buried or not."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from aiokafka import TopicPartition

from turnstate.storage.warm.changelog_records import RecordOf, record_of
from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.topic_reader import topic_reader
from turnstate.streams.kafka.topics import Topics


class ChangelogRecords(NamedTuple):
    """What a changelog has of some sessions.

    Attributes:
        seen: Records looked at.
        unburied: Partition → keys of records of theirs without a tombstone.
    """

    seen: int
    unburied: dict[int, list[bytes]]


class Unburied:
    r"""Follow a changelog; remember what of some sessions no tombstone has buried.

    What an owner sent that crashed before its tombstones, or that had been
    replaced, is in no store's rows: only the topic tells of it.

    Args:
        lives: session key → its last life that is over.
        rewritten: Sessions that go on; any record of theirs may be an old one.

    Example:
        >>> frame = b"F" + b"\x00\x01" + b"k" + bytes(6) + b"\x01" + bytes(13)
        >>> found = Unburied({b"k": 1}, [])
        >>> found.note(0, frame, b"text")
        >>> found.keys()
        {0: [b'F\x00\x01k\x00\x00\x00\x00\x00\x00\x01...']}
        >>> found.note(0, frame, None)
        >>> found.keys()
        {}
    """

    def __init__(self, lives: Mapping[bytes, int], rewritten: Iterable[bytes]) -> None:
        self._lives = lives
        self._rewritten = frozenset(rewritten)
        self._found: dict[int, dict[bytes, None]] = {}
        self.seen = 0

    def note(self, partition: int, key: bytes, value: bytes | None) -> None:
        """Take the next record of a partition."""
        self.seen += 1
        about = record_of(key)
        if about is None or not self._is_wanted(about):
            return
        found = self._found.setdefault(partition, {})
        if value is None:
            found.pop(key, None)
        else:
            found[key] = None

    def keys(self) -> dict[int, list[bytes]]:
        """Return the keys of records that are not buried, by partition."""
        return {number: list(keys) for number, keys in self._found.items() if keys}

    def _is_wanted(self, about: RecordOf) -> bool:
        if about.session in self._rewritten:
            return True
        return about.incarnation <= self._lives.get(about.session, 0)


async def unburied_records(
    cluster: ClusterSettings,
    numbers: Iterable[int],
    lives: Mapping[bytes, int],
    rewritten: Iterable[bytes],
) -> ChangelogRecords:
    """Read the changelog of some partitions, whole, as it is now.

    Args:
        cluster: Where the brokers are, and the names.
        numbers: The partitions.
        lives: session key → its last life that is over.
        rewritten: Sessions that go on.

    Raises:
        UnavailableError: no broker answers.
    """
    topic = Topics.of(cluster).changelog
    places = [TopicPartition(topic, number) for number in sorted(set(numbers))]
    found = Unburied(lives, rewritten)
    if places:
        async with topic_reader(cluster) as reader:
            reader.assign(places)
            ends = await reader.ends(places)
            reader.seek(await reader.begins(places))
            async for record in reader.until(ends):
                _note(found, record)
    return ChangelogRecords(found.seen, found.keys())


def _note(found: Unburied, record: Any) -> None:
    found.note(record.partition, record.key or b"", record.value)
