"""The topics as code, made and checked: names, partitions, policies."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import TopicAlreadyExistsError, for_code

from turnstate.agents.registry import Stream
from turnstate.schemas.errors import ConflictError, UnavailableError
from turnstate.streams.documents import Document
from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.connections import admin_client

MESSAGE_BYTES_MAX: Final = 16 << 20
"""`max.message.bytes` of what carries turns or what is made of them, and
`max_request_size` of who writes there (design §7)."""

FOREVER: Final = "-1"
_DAY_MS: Final = 86_400_000

COMPARED: Final = ("cleanup.policy", "max.message.bytes")
"""What a topic must agree about; the rest is the operator's to tune."""

_LOOKS: Final = 200
_PAUSE_S: Final = 0.05
"""Ten seconds for all brokers to hear of a topic."""


@dataclass(frozen=True, slots=True)
class Topics:
    """The names of the topics of one cluster.

    Args:
        prefix: Put before every name but the changelog's, which is Faust's to
            choose: application id, table, `changelog`. One group has one state,
            so the group keeps two changelogs apart.
        group: The consumer group, which is the application id.
        output_prefix: Put, behind the prefix, before what workers write, all
            but turns: two groups of one topic of turns keep out of each
            other's way.

    Example:
        >>> Topics("eu.", "turnstate").turns
        'eu.turns'
        >>> Topics("eu.", "turnstate").changelog
        'turnstate-state-changelog'
        >>> Topics("eu.", "next", "next.").deltas
        'eu.next.deltas'
    """

    prefix: str = ""
    group: str = "turnstate"
    output_prefix: str = ""

    @classmethod
    def of(cls, settings: ClusterSettings) -> "Topics":
        """Return the names that settings give."""
        return cls(settings.prefix, settings.group, settings.output_prefix)

    def named(self, stream: Stream) -> str:
        """Return the topic that carries a stream of the agents' registry.

        Example:
            >>> Topics().named("dead_letters")
            'dead-letters'
        """
        name: str = getattr(self, stream)
        return name

    @property
    def turns(self) -> str:
        """Turns as producers send them."""
        return f"{self.prefix}turns"

    @property
    def deltas(self) -> str:
        """One frame a session and applied batch: the feed."""
        return f"{self.prefix}{self.output_prefix}deltas"

    @property
    def changelog(self) -> str:
        """What a state is rebuilt from; Faust's name for it."""
        return f"{self.group}-state-changelog"

    @property
    def anchors(self) -> str:
        """Where in a session its meaning turns."""
        return f"{self.prefix}{self.output_prefix}anchors"

    @property
    def entities(self) -> str:
        """What sessions speak of."""
        return f"{self.prefix}{self.output_prefix}entities"

    @property
    def residency(self) -> str:
        """In which tier a session should be."""
        return f"{self.prefix}{self.output_prefix}residency"

    @property
    def dead_letters(self) -> str:
        """What was refused."""
        return f"{self.prefix}{self.output_prefix}dead-letters"


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """A topic as it should be."""

    name: str
    partitions: int
    replication: int
    configs: Mapping[str, str]


def plans(settings: ClusterSettings) -> list[TopicPlan]:
    """Return every topic as it should be; all have as many partitions.

    So that a session's turns, frames, state and letters have one partition
    number, and one worker owns them all.

    Example:
        >>> {plan.partitions for plan in plans(ClusterSettings(partitions=4))}
        {4}
    """
    topics = Topics.of(settings)
    large = {"max.message.bytes": str(MESSAGE_BYTES_MAX)}
    delete = {"cleanup.policy": "delete"}
    compact = {"cleanup.policy": "compact"}
    # A producer's clock may be wrong; what is kept by age goes by the broker's.
    arrival = {"message.timestamp.type": "LogAppendTime"}
    rows: Sequence[tuple[str, Mapping[str, str]]] = (
        (topics.turns, {**delete, **large, **arrival, "retention.ms": FOREVER}),
        (topics.deltas, {**delete, **large, "retention.ms": str(7 * _DAY_MS)}),
        (
            topics.changelog,
            # So old may a backup be from which a partition is restored.
            {**compact, **large, "delete.retention.ms": str(7 * _DAY_MS)},
        ),
        (topics.anchors, {**delete, "retention.ms": str(30 * _DAY_MS)}),
        (topics.entities, compact),
        (topics.residency, {**delete, "retention.ms": str(_DAY_MS)}),
        (
            topics.dead_letters,
            {**delete, **large, **arrival, "retention.ms": str(365 * _DAY_MS)},
        ),
    )
    # With three copies one broker may be away and a write is still on two.
    in_sync = "2" if settings.replication >= 3 else "1"
    return [
        TopicPlan(
            name,
            settings.partitions,
            settings.replication,
            {**configs, "min.insync.replicas": in_sync},
        )
        for name, configs in rows
    ]


async def create_topics(settings: ClusterSettings) -> Document:
    """Create the topics that are missing; leave those that are there alone.

    Returns:
        `{"topics": [{"name", "partitions", "status", "differences"}]}`, the
        status `created` or `there`.

    Raises:
        ConflictError: topics that are there differ from their plan. Nothing
            was created: half a set of topics would hide the fault.
        UnavailableError: no broker answers, or it refuses.
    """
    wanted = plans(settings)
    async with admin_client(settings) as admin:
        found = await _described(admin, wanted)
        rows = _rows(wanted, found)
        _refuse_differences(rows)
        missing = [plan for plan in wanted if plan.name not in found]
        if missing:
            await _create(admin, missing)
            await _known(admin, wanted)
        for row in rows:
            if row["status"] == "missing":
                row["status"] = "created"
    return {"topics": rows}


async def check_topics(settings: ClusterSettings) -> Document:
    """Compare the topics that are there with their plan.

    Returns:
        As `create_topics`, every status `there`.

    Raises:
        ConflictError: topics are missing or differ; they are named, with what
            differs.
        UnavailableError: no broker answers.
    """
    wanted = plans(settings)
    async with admin_client(settings) as admin:
        rows = _rows(wanted, await _described(admin, wanted))
    _refuse_differences(rows)
    missing = [row["name"] for row in rows if row["status"] == "missing"]
    if missing:
        raise ConflictError(
            f"topics are missing: {', '.join(missing)}",
            field="topics",
            hint="turnstate topics create",
            code="topics_missing",
        )
    return {"topics": rows}


def _rows(
    wanted: Sequence[TopicPlan], found: Mapping[str, Mapping[str, str]]
) -> list[Document]:
    return [
        {
            "name": plan.name,
            "partitions": plan.partitions,
            "status": "there" if plan.name in found else "missing",
            "differences": _differences(plan, found.get(plan.name)),
        }
        for plan in wanted
    ]


def _differences(plan: TopicPlan, found: Mapping[str, str] | None) -> list[str]:
    """Return what is other than planned, in words.

    Example:
        >>> plan = TopicPlan("turns", 8, 1, {"cleanup.policy": "delete"})
        >>> _differences(plan, {"partitions": "4", "cleanup.policy": "delete"})
        ['partitions is 4, not 8']
    """
    if found is None:
        return []
    wanted = {"partitions": str(plan.partitions)} | {
        name: plan.configs[name] for name in COMPARED if name in plan.configs
    }
    return [
        f"{name} is {found.get(name)}, not {value}"
        for name, value in wanted.items()
        if found.get(name) != value
    ]


def _refuse_differences(rows: Sequence[Document]) -> None:
    told = [
        f"{row['name']} ({', '.join(row['differences'])})"
        for row in rows
        if row["differences"]
    ]
    if told:
        raise ConflictError(
            f"topics are not as planned: {'; '.join(told)}",
            field="topics",
            hint="change the settings, or the topic by Kafka's own tools",
            code="topic_differs",
        )


async def _described(
    admin: AIOKafkaAdminClient, wanted: Sequence[TopicPlan]
) -> dict[str, dict[str, str]]:
    """Return partitions and configs of those that are there, by name."""
    names = {plan.name for plan in wanted}
    found: dict[str, dict[str, str]] = {}
    # All are asked for: a question by name might make the topic.
    for topic in await admin.describe_topics():
        if topic["topic"] in names:
            found[topic["topic"]] = {"partitions": str(len(topic["partitions"]))}
    if found:
        resources = [
            ConfigResource(ConfigResourceType.TOPIC, name) for name in sorted(found)
        ]
        for response in await admin.describe_configs(resources):
            _take_configs(response, found)
    return found


def _take_configs(response: Any, found: dict[str, dict[str, str]]) -> None:
    for error_code, message, _, name, entries in response.resources:
        if error_code:
            raise UnavailableError(
                f"the broker does not tell the configs of {name}: {message}",
                field="kafka",
            )
        found[name] |= {entry[0]: entry[1] for entry in entries}


async def _known(admin: AIOKafkaAdminClient, wanted: Sequence[TopicPlan]) -> None:
    """Wait until brokers know what was just created: they learn it by and by."""
    for _ in range(_LOOKS):
        if len(await _described(admin, wanted)) == len(wanted):
            return
        await asyncio.sleep(_PAUSE_S)
    raise UnavailableError(
        "the topics are created, but a broker does not know them yet",
        field="kafka",
        hint="turnstate topics check",
    )


async def _create(admin: AIOKafkaAdminClient, missing: Sequence[TopicPlan]) -> None:
    response: Any = await admin.create_topics(
        [
            NewTopic(
                plan.name,
                plan.partitions,
                plan.replication,
                topic_configs=dict(plan.configs),
            )
            for plan in missing
        ]
    )
    for name, error_code, *message in response.topic_errors:
        # Another one who creates them at the same time has the same plan.
        if error_code and for_code(error_code) is not TopicAlreadyExistsError:
            said = next((each for each in message if each), None)
            raise UnavailableError(
                f"the broker did not create {name}:"
                f" {said or for_code(error_code).__name__}",
                field="topics",
                hint="replication above the number of brokers, or no right to create",
            )
