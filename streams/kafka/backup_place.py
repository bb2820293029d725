"""Where the backups of a cluster's partitions are: one prefix a partition."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from turnstate.schemas.errors import UnavailableError
from turnstate.storage.cold.objects import ObjectStore
from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.cold_place import s3_access
from turnstate.streams.places import S3_SCHEME, full_place, opened_place


def backups_root(cluster: ClusterSettings, where: str = "") -> str:
    """Return the place of all backups of a group.

    Each group has a folder of its own there, as with cold sessions.

    Args:
        cluster: Names the place.
        where: Another place.

    Raises:
        UnavailableError: none is named (code `no_backups`).

    Example:
        >>> backups_root(ClusterSettings(backups="s3://bucket/backups"))
        's3://bucket/backups/turnstate'
    """
    named = where or cluster.backups
    if not named:
        raise UnavailableError(
            "the cluster has no place for backups",
            field="backups",
            hint="set TURNSTATE_BACKUPS, [backup] place in cluster.toml, or name one"
            " with --to",
            code="no_backups",
        )
    return f"{full_place(named).rstrip('/')}/{cluster.group}"


def partition_place(cluster: ClusterSettings, number: int, where: str = "") -> str:
    """Return the place of the backups of one partition.

    Example:
        >>> partition_place(ClusterSettings(backups="s3://bucket/backups"), 3)
        's3://bucket/backups/turnstate/partition-3'
    """
    return f"{backups_root(cluster, where)}/partition-{number}"


def is_unused(cluster: ClusterSettings, number: int, where: str = "") -> bool:
    """Say whether a partition was certainly never backed up to a place.

    A folder that is there and has none for the partition; where the folder
    itself is not there, it may be a disk that is not mounted.
    """
    base = full_place(where or cluster.backups) if where or cluster.backups else ""
    if not base or base.startswith(S3_SCHEME) or not Path(base).is_dir():
        return False
    return not Path(partition_place(cluster, number, where)).is_dir()


@contextmanager
def opened_backups(
    cluster: ClusterSettings, number: int, where: str = "", *, may_make: bool = False
) -> Generator[ObjectStore]:
    """Give the objects of a partition's backups for as long as a block lasts.

    Args:
        cluster: Names the place, and how S3 is reached.
        number: Of the partition.
        where: Another place.
        may_make: Make the folder where it is not there; else it is an error.

    Raises:
        NotFoundError: there is no such folder, and it may not be made.
        UnavailableError: none is named, or it cannot be opened.
        InvalidInputError: it is no name of a place.
    """
    place = partition_place(cluster, number, where)
    with opened_place(place, s3_access(cluster), may_make=may_make) as objects:
        yield objects
