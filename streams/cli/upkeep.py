"""The commands that look after a store: stats, verify, seal, settings, doctor."""

from typing import Annotated, Any

import typer

from turnstate.schemas.errors import CorruptDataError, InvalidInputError
from turnstate.streams.cli.options import Data, Json, OneTenant, Profile
from turnstate.streams.cli.render import Block, Pairs, Table, answer


def stats(data: Data = None, profile: Profile = None, as_json: Json = False) -> None:
    """Show totals: sessions, turns, bytes of text, log and state, tiers."""
    from turnstate.streams.cli.doors import opened_reader

    with opened_reader(data, profile) as store:
        document = store.stats()
    answer(document, as_json, [Pairs("stats", document.items())])


def verify(
    tenant: OneTenant = None,
    repair: Annotated[
        bool, typer.Option(help="Rebuild what is wrong from the log.")
    ] = False,
    rebuild: Annotated[
        bool,
        typer.Option(help="Make the whole store anew from its log; nobody may own it."),
    ] = False,
    data: Data = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Check every checksum and chain link, fold again, compare; exit 5 if one fails."""
    from turnstate.streams.cli.doors import opened_reader
    from turnstate.streams.cli.progress import bar

    _named(tenant)
    if repair and rebuild:
        raise InvalidInputError(
            "--repair and --rebuild are two ways", field="repair", hint="take one"
        )
    if repair:
        _repair(tenant, data, profile, as_json)
        return
    if rebuild:
        _rebuild(data, profile, as_json)
        return
    with opened_reader(data, profile) as store, bar("verify") as step:
        document = store.verify(tenant=tenant, progress=step)
    _show_checked("verified", document, as_json)


def _repair(
    tenant: str | None, data: str | None, profile: str | None, as_json: bool
) -> None:
    from turnstate.streams.cli.doors import opened_store

    with opened_store(data, profile, what="verify --repair") as store:
        document = store.repair(tenant=tenant)
    _show_checked("repaired", document, as_json)


def _rebuild(data: str | None, profile: str | None, as_json: bool) -> None:
    from turnstate.streams.cli.doors import settings_of
    from turnstate.streams.clock import SystemClock
    from turnstate.streams.embedded.rebuild_store import rebuild_store
    from turnstate.streams.embedded.store import STORE_FOLDER, graph_of

    chosen = settings_of(data, profile, what="verify --rebuild")
    document = rebuild_store(
        chosen, graph_of(chosen), SystemClock(), chosen.data / STORE_FOLDER
    )
    answer(document, as_json, [Pairs("rebuilt", document.items())])


def _show_checked(title: str, document: dict[str, Any], as_json: bool) -> None:
    """Show a verification or repair; exit 5 where something is still wrong."""
    lists: dict[str, list[dict[str, Any]]] = {
        name: rows for name, rows in document.items() if isinstance(rows, list)
    }
    counts = [
        (name, len(value) if name in lists else value)
        for name, value in document.items()
    ]
    blocks: list[Block] = [Pairs(title, counts)]
    for name, rows in lists.items():
        if rows:
            columns = tuple(rows[0])
            table = [[row.get(column) for column in columns] for row in rows]
            blocks.append(Table(name, columns, table))
    answer(document, as_json, blocks)
    if document["bad"]:
        raise typer.Exit(CorruptDataError.exit_code)


def seal(
    tenant: OneTenant = None,
    data: Data = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Seal sessions now: their frames become segments, about half the size."""
    from turnstate.streams.cli.doors import opened_store

    _named(tenant)
    with opened_store(data, profile, what="seal") as store:
        document = store.seal(tenant=tenant)
    answer(document, as_json, [Pairs("sealed", document.items())])


def settings(data: Data = None, profile: Profile = None, as_json: Json = False) -> None:
    """Show each setting, its value and where the value comes from."""
    from turnstate.streams.cli.doors import settings_of

    rows = settings_of(data, profile, what="settings").rows()
    columns = ("name", "value", "source")
    table = [[row[name] for name in columns] for row in rows]
    answer({"settings": rows}, as_json, [Table("settings", columns, table)])


def doctor(data: Data = None, profile: Profile = None, as_json: Json = False) -> None:
    """Check what turnstate needs here; say what is missing and how to get it."""
    from turnstate.streams.cli.checks import all_checks, holds
    from turnstate.streams.cli.doors import settings_of

    rows = all_checks(settings_of(data, profile, may_cluster=True))
    columns = ("ok", "check", "found", "hint")
    table = [
        [
            "optional" if row["optional"] and not row["ok"] else row["ok"],
            *(row[name] for name in columns[1:]),
        ]
        for row in rows
    ]
    document = {"ok": holds(rows), "checks": rows}
    answer(document, as_json, [Table("doctor", columns, table)])
    if not document["ok"]:
        raise typer.Exit(1)


def _named(tenant: str | None) -> None:
    if tenant == "":
        raise InvalidInputError(
            "--tenant is empty", field="tenant", hint="leave it out for all"
        )
