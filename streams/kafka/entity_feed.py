"""Follow the topic of entities: the newest of each session, then what comes."""

from collections.abc import AsyncGenerator
from typing import Any, Final

import structlog

from turnstate.agents.tiering.entity_view import EntityView
from turnstate.schemas.errors import InvalidInputError, TurnstateError
from turnstate.streams.documents import Document, from_json, to_json
from turnstate.streams.entity_documents import entity_document
from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.delta_tokens import Reached, log_token, read_log_token
from turnstate.streams.kafka.entity_records import entity_of
from turnstate.streams.kafka.topic_ids import topic_id
from turnstate.streams.kafka.topic_reader import (
    TopicReader,
    places_of,
    topic_reader,
)
from turnstate.streams.kafka.topics import Topics

_log: Final[Any] = structlog.get_logger(__name__)


async def entity_feed(
    cluster: ClusterSettings,
    tenant: str | None = None,
    *,
    token: str | None = None,
    follow: bool = True,
) -> AsyncGenerator[Document]:
    """Yield entity upserts after a token; those of one session in order.

    The topic is compacted: from the beginning it has the newest upsert of each
    session, and removals for a day or so. What workers send again, or late, is
    known and left out.

    Args:
        cluster: Where the brokers are, and the names.
        tenant: Only this tenant's.
        token: Of the last upsert that was seen, 0 for the beginning; None =
            what comes from now on.
        follow: Whether to wait for what comes, or to end at the newest.

    Raises:
        InvalidInputError: the token is none, or of another topic.
        NotFoundError: there is no such topic.
        UnavailableError: no broker answers.
    """
    topic = Topics.of(cluster).entities
    identity = await topic_id(cluster, topic)
    view = EntityView()
    wait_ms = cluster.fetch_max_wait_ms
    async with topic_reader(cluster, fetch_max_wait_ms=wait_ms) as reader:
        reached = await _begun(reader, cluster, topic, token, identity)
        async for record in _records(reader, cluster, topic, follow=follow):
            reached[record.partition] = Reached(record.offset + 1)
            try:
                upsert = entity_of(record)
                told = entity_document(upsert, log_token(reached, identity))
                document = from_json(to_json(told))
            except (TurnstateError, ValueError) as error:
                at = {"partition": record.partition, "offset": record.offset}
                _log.warning("entities.unreadable", why=str(error), **at)
                continue
            if tenant in (None, document["tenant"]) and view.is_news(upsert):
                yield document


async def _begun(
    reader: TopicReader,
    cluster: ClusterSettings,
    topic: str,
    token: str | None,
    identity: bytes,
) -> dict[int, Reached]:
    """Have a reader begin after a token; return from where."""
    places = places_of(cluster, topic)
    reader.assign(places)
    begins, ends = await reader.begins(places), await reader.ends(places)
    if token is None:
        reached = {at.partition: Reached(ends[at]) for at in places}
    else:
        reached = read_log_token(token, identity, cluster.partitions)
    for at in places:
        offset = max(reached[at.partition].offset, begins[at])
        if offset > ends[at]:
            raise InvalidInputError(
                f"the token {token!r} is ahead of partition {at.partition}",
                field="token",
                hint="the topic lost records: begin at 0",
                code="token_ahead",
            )
        reached[at.partition] = Reached(offset)
        reader.seek({at: offset})
    return reached


async def _records(
    reader: TopicReader, cluster: ClusterSettings, topic: str, *, follow: bool
) -> AsyncGenerator[Any]:
    """Yield records on and on, or up to what is there now."""
    if not follow:
        ends = await reader.ends(places_of(cluster, topic))
        async for record in reader.until(ends):
            yield record
        return
    while True:
        for record in await reader.records():
            yield record
