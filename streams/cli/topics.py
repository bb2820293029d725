"""The commands on topics: create what is missing, check what is there."""

import asyncio

from turnstate.streams.cli.options import Data, Json, Profile
from turnstate.streams.cli.render import Table, answer
from turnstate.streams.documents import Document

_COLUMNS = ("name", "partitions", "status")


def create(data: Data = None, profile: Profile = None, as_json: Json = False) -> None:
    """Create the topics that are missing; those that are there are left alone.

    A topic that is not as planned is named, and nothing is created.
    """
    from turnstate.streams.cli.doors import cluster_of
    from turnstate.streams.kafka.topics import create_topics

    _show(asyncio.run(create_topics(cluster_of(data, profile))), as_json)


def check(data: Data = None, profile: Profile = None, as_json: Json = False) -> None:
    """Compare the topics with what they should be; name what differs."""
    from turnstate.streams.cli.doors import cluster_of
    from turnstate.streams.kafka.topics import check_topics

    _show(asyncio.run(check_topics(cluster_of(data, profile))), as_json)


def _show(document: Document, as_json: bool) -> None:
    rows = [[row[name] for name in _COLUMNS] for row in document["topics"]]
    answer(document, as_json, [Table("topics", _COLUMNS, rows)])
