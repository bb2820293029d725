"""The commands backup and restore: a store copied to a folder or S3, and back."""

import os
from typing import Annotated, Any

import typer

from turnstate.schemas.errors import (
    CorruptDataError,
    InvalidInputError,
    UnavailableError,
)
from turnstate.streams.cli.options import Data, Json, Profile
from turnstate.streams.cli.render import Block, Pairs, Table, answer

Place = Annotated[
    str | None,
    typer.Argument(
        metavar="DIR|s3://BUCKET/PREFIX",
        help="The place of the backups. A server that is not AWS is named by"
        " TURNSTATE_S3_ENDPOINT, keys by AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
        " On a cluster: where the setting `backups` says, unless it is given.",
        show_default=False,
    ),
]
To = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="DIR|s3://BUCKET/PREFIX",
        help="The place, likewise.",
        show_default=False,
    ),
]
Partitions = Annotated[
    list[int] | None,
    typer.Option(
        "--partition",
        metavar="N",
        min=0,
        help="On a cluster: only this one; may be given again. Default: all.",
        show_default=False,
    ),
]
SavepointName = Annotated[
    str | None,
    typer.Option(
        "--savepoint",
        metavar="NAME",
        help="A named export instead: it stays until it is deleted by name.",
        show_default=False,
    ),
]
Keep = Annotated[
    int | None,
    typer.Option(
        "--keep",
        metavar="N",
        min=1,
        help="Remove older backups than the last N, and files that only they need.",
        show_default=False,
    ),
]
Listed = Annotated[bool, typer.Option("--list", help="List what is there instead.")]
DeleteSavepoint = Annotated[
    str | None,
    typer.Option(
        "--delete-savepoint",
        metavar="NAME",
        help="Delete this savepoint instead.",
        show_default=False,
    ),
]


def backup(
    place: Place = None,
    to: To = None,
    savepoint: SavepointName = None,
    keep: Keep = None,
    list_: Listed = False,
    delete_savepoint: DeleteSavepoint = None,
    partition: Partitions = None,
    data: Data = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Back the store up while it is in use; only what is new is uploaded.

    Everything that is uploaded is read back and compared. On a cluster each
    worker backs up the partitions that it owns.
    """
    from turnstate.streams.cli.cluster_backups import place_of
    from turnstate.streams.places import access_of

    where, access = place_of(place, to), access_of(os.environ)
    _one_of(savepoint=savepoint, list=list_, delete_savepoint=delete_savepoint)
    if keep is not None and (savepoint or list_ or delete_savepoint):
        raise InvalidInputError(
            "--keep is about numbered backups", field="keep", hint="leave it out"
        )
    if _is_cluster(data, profile):
        from turnstate.streams.cli.cluster_backups import back_up_cluster, list_cluster
        from turnstate.streams.cli.doors import cluster_of

        _refuse_savepoints(savepoint, delete_savepoint)
        cluster = cluster_of(data, profile)
        if list_:
            list_cluster(cluster, where, partition or None, as_json=as_json)
        else:
            back_up_cluster(cluster, where, partition or None, keep, as_json=as_json)
        return
    _check_embedded(where, partition=partition)
    if list_:
        _show_list(where, access, as_json)
        return
    if delete_savepoint is not None:
        from turnstate.streams.embedded.backups import forget_savepoint

        document = forget_savepoint(where, delete_savepoint, access)
        answer(document, as_json, [Pairs("deleted", document.items())])
        return
    from turnstate.streams.cli.doors import opened_store
    from turnstate.streams.cli.progress import bar

    with opened_store(data, profile, what="backup") as store, bar("backup") as step:
        if savepoint is not None:
            document = store.savepoint(where, savepoint, access=access, progress=step)
        else:
            document = store.backup(where, access=access, keep=keep, progress=step)
    answer(document, as_json, [Pairs("backed up", document.items())])


Number = Annotated[
    int | None,
    typer.Option(
        "--number",
        metavar="N",
        min=1,
        help="The backup to restore (default: the latest).",
        show_default=False,
    ),
]
RestoredSavepoint = Annotated[
    str | None,
    typer.Option(
        "--savepoint",
        metavar="NAME",
        help="Restore this savepoint instead.",
        show_default=False,
    ),
]
Continues = Annotated[
    bool,
    typer.Option(
        "--continues",
        help="Stamp under the same name as before. Only if the original is gone and"
        " acknowledged nothing after this backup.",
    ),
]


Verify = Annotated[
    bool,
    typer.Option("--verify", help="Only read the backup whole, and say what is bad."),
]
Instance = Annotated[
    str | None,
    typer.Option(
        "--instance",
        metavar="NAME",
        help="On a cluster: the worker, which is down, to whose folder it goes.",
        show_default=False,
    ),
]


def restore(
    place: Place = None,
    number: Number = None,
    savepoint: RestoredSavepoint = None,
    continues: Continues = False,
    verify: Verify = False,
    partition: Partitions = None,
    instance: Instance = None,
    data: Data = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Restore a whole store into --data, which must hold none.

    Every file is verified. The store goes on under a new log name, so that no
    turn gets a stamp that was given to another one after the backup. On a
    cluster one partition of a worker that is down is restored; it reads the
    rest from the changelog when it starts, under the name that it had.
    """
    from turnstate.streams.cli.cluster_backups import place_of
    from turnstate.streams.cli.doors import log_to_stderr, settings_of
    from turnstate.streams.cli.progress import bar
    from turnstate.streams.embedded.restoring import restore as restored
    from turnstate.streams.embedded.restoring import restore_savepoint
    from turnstate.streams.places import access_of

    _one_of(savepoint=savepoint, number=number)
    _one_of(savepoint=savepoint, verify=verify)
    where, access = place_of(place), access_of(os.environ)
    if _is_cluster(data, profile):
        _refuse_savepoints(savepoint, None)
        _restore_cluster(
            data, profile, where, partition, instance, number, verify, as_json
        )
        return
    _check_embedded(where, partition=partition, instance=instance)
    if verify:
        _verify(where, access, number, as_json)
        return
    settings = settings_of(data, profile, what="restore")
    log_to_stderr()
    with bar("restore") as step:
        if savepoint is not None:
            document = restore_savepoint(
                settings,
                where,
                savepoint,
                access=access,
                continues=continues,
                progress=step,
            )
        else:
            document = restored(
                settings,
                where,
                access=access,
                number=number,
                continues=continues,
                progress=step,
            )
    answer(document, as_json, [Pairs("restored", document.items())])


def _is_cluster(data: str | None, profile: str | None) -> bool:
    from turnstate.streams.cli.doors import settings_of

    return settings_of(data, profile, may_cluster=True).profile == "cluster"


def _check_embedded(where: str, **cluster_options: Any) -> None:
    for name, value in cluster_options.items():
        if value:
            raise InvalidInputError(
                f"--{name} is about a cluster", field=name, hint="leave it out"
            )
    if not where:
        raise InvalidInputError(
            "the place of the backups is missing",
            field="place",
            hint="name a folder, or s3://BUCKET/PREFIX",
        )


def _refuse_savepoints(*names: str | None) -> None:
    if any(names):
        raise UnavailableError(
            "savepoints are of an embedded store",
            field="savepoint",
            hint="turnstate replay kafka: --record FILE keeps a cluster's turns",
            code="embedded_only",
        )


def _restore_cluster(
    data: str | None,
    profile: str | None,
    where: str,
    partitions: list[int] | None,
    instance: str | None,
    number: int | None,
    verify: bool,
    as_json: bool,
) -> None:
    from turnstate.streams.cli.cluster_backups import restore_cluster, verify_cluster
    from turnstate.streams.cli.doors import cluster_of, settings_of

    cluster = cluster_of(data, profile)
    if verify:
        verify_cluster(cluster, where, partitions or None, number, as_json=as_json)
        return
    settings = settings_of(data, profile, may_cluster=True)
    restore_cluster(
        settings, cluster, where, partitions, instance, number, as_json=as_json
    )


def _verify(
    where: str, access: dict[str, str], number: int | None, as_json: bool
) -> None:
    from turnstate.streams.cli.progress import bar
    from turnstate.streams.embedded.backups import verified

    with bar("verify") as step:
        document = verified(where, access, number=number, progress=step)
    pairs = [(name, value) for name, value in document.items() if name != "bad"]
    rows = [[fault] for fault in document["bad"]]
    answer(
        document, as_json, [Pairs("verified", pairs), Table("bad", ("object",), rows)]
    )
    if document["bad"]:
        raise typer.Exit(CorruptDataError.exit_code)


def _one_of(**options: Any) -> None:
    given = [name for name, value in options.items() if value not in (None, False)]
    if len(given) > 1:
        names = " and ".join("--" + name.replace("_", "-") for name in given)
        raise InvalidInputError(
            f"{names} do not go together", field=given[-1], hint="take one"
        )


def _show_list(where: str, access: dict[str, str], as_json: bool) -> None:
    from turnstate.streams.embedded.backups import listing

    document = listing(where, access)
    blocks: list[Block] = []
    for name in ("backups", "savepoints"):
        rows = document[name]
        columns = tuple(rows[0]) if rows else ("number",)
        blocks.append(Table(name, columns, [list(row.values()) for row in rows]))
    answer(document, as_json, blocks)
