"""The commands backup and restore: a store copied to a folder or S3, and back."""

import os
from typing import Annotated, Any

import typer

from turnstate.schemas.errors import InvalidInputError
from turnstate.streams.cli.options import Data, Json, Profile
from turnstate.streams.cli.render import Block, Pairs, Table, answer

Place = Annotated[
    str,
    typer.Argument(
        metavar="DIR|s3://BUCKET/PREFIX",
        help="The place of the backups. A server that is not AWS is named by"
        " TURNSTATE_S3_ENDPOINT, keys by AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
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
    place: Place,
    savepoint: SavepointName = None,
    keep: Keep = None,
    list_: Listed = False,
    delete_savepoint: DeleteSavepoint = None,
    data: Data = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Back the store up while it is in use; only what is new is uploaded.

    Everything that is uploaded is read back and compared.
    """
    from turnstate.streams.places import access_of, full_place

    where, access = full_place(place), access_of(os.environ)
    _one_of(savepoint=savepoint, list=list_, delete_savepoint=delete_savepoint)
    if keep is not None and (savepoint or list_ or delete_savepoint):
        raise InvalidInputError(
            "--keep is about numbered backups", field="keep", hint="leave it out"
        )
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


def restore(
    place: Place,
    number: Number = None,
    savepoint: RestoredSavepoint = None,
    continues: Continues = False,
    data: Data = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Restore a whole store into --data, which must hold none.

    Every file is verified. The store goes on under a new log name, so that no
    turn gets a stamp that was given to another one after the backup.
    """
    from turnstate.streams.cli.doors import log_to_stderr, settings_of
    from turnstate.streams.cli.progress import bar
    from turnstate.streams.embedded.restoring import restore as restored
    from turnstate.streams.embedded.restoring import restore_savepoint
    from turnstate.streams.places import access_of, full_place

    _one_of(savepoint=savepoint, number=number)
    settings = settings_of(data, profile, what="restore")
    where, access = full_place(place), access_of(os.environ)
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
