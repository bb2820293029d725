"""Where the cold sessions of a cluster are: one place for all partitions of a group."""

import os
from collections.abc import Mapping
from functools import partial
from typing import Final

from turnstate.agents.ports import Clock
from turnstate.schemas.errors import UnavailableError
from turnstate.storage.cold.store import PACK_BYTES, PackStore
from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.places import S3_SCHEME, access_of, full_place, open_place
from turnstate.streams.tiers.fenced_packs import FencedPacks

_ENDPOINT: Final = "TURNSTATE_S3_ENDPOINT"
_ACCESS_KEY: Final = "AWS_ACCESS_KEY_ID"
_SECRET_KEY: Final = "AWS_SECRET_ACCESS_KEY"  # noqa: S105 - the variable's name


def cold_place(cluster: ClusterSettings) -> str:
    """Return where cold sessions go; empty where there is no cold tier.

    Each group has a folder of its own there: what no pointer of a group names
    is garbage to its jobs.

    Example:
        >>> cold_place(ClusterSettings(cold="s3://bucket/cold"))
        's3://bucket/cold/turnstate'
        >>> cold_place(ClusterSettings(s3="http://127.0.0.1:9", s3_bucket="b"))
        's3://b/turnstate'
        >>> cold_place(ClusterSettings())
        ''
    """
    where = cluster.cold or (f"{S3_SCHEME}{cluster.s3_bucket}" if cluster.s3 else "")
    return f"{full_place(where).rstrip('/')}/{cluster.group}" if where else ""


def s3_access(
    cluster: ClusterSettings, environment: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return how S3 is reached: what the cluster says comes before the environment."""
    access = access_of(environment)
    if cluster.s3:
        access[_ENDPOINT] = cluster.s3
    if cluster.s3_access_key:
        access[_ACCESS_KEY] = cluster.s3_access_key
        access[_SECRET_KEY] = cluster.s3_secret_key
    return access


def open_cold(
    cluster: ClusterSettings,
    clock: Clock,
    *,
    pack_bytes: int = PACK_BYTES,
    environment: Mapping[str, str] = os.environ,
) -> PackStore:
    """Return the packs of the cluster's cold tier.

    Raises:
        UnavailableError: there is none, or it cannot be opened.
        InvalidInputError: the name of the place makes no sense.
    """
    where = cold_place(cluster)
    if not where:
        raise UnavailableError(
            "the cluster has no cold tier",
            field="cold",
            hint="set `cold`, or [s3] in cluster.toml, to where packs go",
            code="cold_away",
        )
    return PackStore(
        open_place(where, s3_access(cluster, environment)),
        clock=clock.now_ms,
        chance=os.urandom,
        pack_bytes=pack_bytes,
    )


class ClusterPacks(FencedPacks):
    """The packs of a cluster's cold tier.

    Args:
        cluster: Says where they are.
        clock: Tells the time.
    """

    def __init__(self, cluster: ClusterSettings, clock: Clock) -> None:
        super().__init__(partial(open_cold, cluster, clock))
