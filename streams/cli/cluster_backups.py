"""The commands backup and restore on a cluster: partitions, one or all of them."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import typer

from turnstate.schemas.errors import CorruptDataError, InvalidInputError
from turnstate.streams.cli.render import Block, Pairs, Table, answer, note
from turnstate.streams.settings import Settings

_MADE: Final = (
    "partition",
    "status",
    "number",
    "position",
    "offset",
    "files_new",
    "bytes_new",
    "removed",
    "error",
)
_LISTED: Final = ("partition", "number", "time_ms", "position", "offset", "bytes")


def back_up_cluster(
    cluster: Any,
    where: str,
    partitions: Sequence[int] | None,
    keep: int | None,
    *,
    as_json: bool,
) -> None:
    """Back partitions up, say of each what came of it, end with the first failure."""
    from turnstate.streams.cli.progress import bar
    from turnstate.streams.kafka.cluster_backups import back_up
    from turnstate.streams.kafka.cluster_reader import ClusterReader

    with ClusterReader(cluster) as reader, bar("backup") as step:
        document = back_up(
            reader, partitions, where=where, keep=keep, progress=step
        )
    failed = [row for row in document["partitions"] if row["status"] == "failed"]
    if failed:
        document["error"] = failed[0]["error"]
    rows = [
        [_shown(row, name) for name in _MADE] for row in document["partitions"]
    ]
    pairs = [
        (name, document[name])
        for name in ("where", "made", "failed", "files_new", "bytes_new", "seconds")
    ]
    answer(
        document,
        as_json,
        [Table("partitions", _MADE, rows), Pairs("backed up", pairs)],
    )
    if failed:
        if not as_json:
            note("what was made stays; make the backup again for the others")
        raise typer.Exit(failed[0]["exit_code"])


def list_cluster(
    cluster: Any, where: str, partitions: Sequence[int] | None, *, as_json: bool
) -> None:
    """List the backups of partitions."""
    from turnstate.streams.kafka.cluster_backups import listing

    document = listing(cluster, partitions, where=where)
    rows = [[row[name] for name in _LISTED] for row in document["backups"]]
    answer(document, as_json, [Table(document["where"], _LISTED, rows)])


def verify_cluster(
    cluster: Any,
    where: str,
    partitions: Sequence[int] | None,
    number: int | None,
    *,
    as_json: bool,
) -> None:
    """Read backups whole; end with exit code 5 where something is wrong."""
    from turnstate.streams.cli.progress import bar
    from turnstate.streams.kafka.cluster_backups import check

    with bar("verify") as step:
        document = check(
            cluster, partitions, where=where, number=number, progress=step
        )
    columns = (*_LISTED, "bad")
    rows = [
        [*(row[name] for name in _LISTED), "; ".join(row["bad"])]
        for row in document["backups"]
    ]
    blocks: list[Block] = [Table(document["where"], columns, rows)]
    answer(document, as_json, blocks)
    if document["bad"]:
        raise typer.Exit(CorruptDataError.exit_code)


def restore_cluster(
    settings: Settings,
    cluster: Any,
    where: str,
    partitions: Sequence[int] | None,
    instance: str | None,
    number: int | None,
    *,
    as_json: bool,
) -> None:
    """Put a backup of one partition into the folder of a worker that is down."""
    from turnstate.schemas.ids import checked_id
    from turnstate.streams.cli.progress import bar
    from turnstate.streams.clock import SystemClock
    from turnstate.streams.kafka.partition_restoring import restore_partition

    if instance is None or not partitions or len(partitions) != 1:
        raise InvalidInputError(
            "name a worker that is down, and one partition",
            field="partition" if instance else "instance",
            hint="--instance NAME --partition N; --verify only looks. A worker with"
            " an empty disk takes the latest backup by itself",
        )
    checked_id(instance, "instance")
    with bar("restore") as step:
        document = restore_partition(
            settings,
            cluster,
            instance,
            partitions[0],
            now_ms=SystemClock().now_ms(),
            where=where,
            number=number,
            progress=step,
        )
    answer(document, as_json, [Pairs("restored", document.items())])


def place_of(place: str | None, to: str | None = None) -> str:
    """Return the place that was named, in full; empty where the settings' counts.

    Raises:
        InvalidInputError: two were named.
    """
    from turnstate.streams.places import full_place

    if place is not None and to is not None:
        raise InvalidInputError(
            "the place is named twice", field="to", hint="leave one out"
        )
    named = place if place is not None else to
    return "" if named is None else full_place(named)


def _shown(row: Mapping[str, Any], name: str) -> object:
    value = row.get(name)
    if name == "error" and value is not None:
        return value["message"]
    if name == "removed":
        return " ".join(map(str, value or ()))
    return "" if value is None else value
