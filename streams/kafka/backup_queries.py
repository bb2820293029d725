"""What a job asks of a worker to back partitions up: arguments with types, bounds."""

from typing import Annotated

from msgspec import Meta, Struct

_Partition = Annotated[int, Meta(ge=0)]
_Job = Annotated[str, Meta(min_length=1, max_length=64)]


class BackupQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    """To begin a backup of a partition.

    Attributes:
        partition: Which one.
        job: Names who asks: the same one may ask again, another one is refused.
        where: The place of all backups; as the worker's settings say where empty.
        keep: Backups that stay; None = all.
        replaces: Whether the older ones go at once, with all files that only they
            have: they hold what was erased. Where there are none, none is made.
    """

    partition: _Partition
    job: _Job
    where: str = ""
    keep: Annotated[int, Meta(ge=1)] | None = None
    replaces: bool = False


class BackupStateQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    """For how far a backup is.

    Attributes:
        partition: Which one.
        job: Who began it.
    """

    partition: _Partition
    job: _Job
