"""The commands that look after a store: stats, verify, seal, settings, doctor."""

import typer

from turnstate.schemas.errors import CorruptDataError, InvalidInputError
from turnstate.streams.cli.options import Data, Json, OneTenant, Profile
from turnstate.streams.cli.render import Block, Pairs, Table, answer


def stats(data: Data = None, profile: Profile = None, as_json: Json = False) -> None:
    """Show totals: sessions, turns, bytes of text, log and state, tiers."""
    from turnstate.streams.cli.doors import opened_store

    with opened_store(data, profile) as store:
        document = store.stats()
    answer(document, as_json, [Pairs("stats", document.items())])


def verify(
    tenant: OneTenant = None,
    data: Data = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Check every checksum and chain link, fold again, compare; exit 5 if one fails."""
    from turnstate.streams.cli.doors import opened_store
    from turnstate.streams.cli.progress import bar

    _named(tenant)
    with opened_store(data, profile) as store, bar("verify") as step:
        document = store.verify(tenant=tenant, progress=step)
    bad = document["bad"]
    counts = [(name, value) for name, value in document.items() if name != "bad"]
    blocks: list[Block] = [Pairs("verified", [*counts, ("bad", len(bad))])]
    if bad:
        columns = ("tenant", "session", "tier", "version", "why")
        rows = [[row.get(name) for name in columns] for row in bad]
        blocks.append(Table("bad", columns, rows))
    answer(document, as_json, blocks)
    if bad:
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
    with opened_store(data, profile) as store:
        document = store.seal(tenant=tenant)
    answer(document, as_json, [Pairs("sealed", document.items())])


def settings(data: Data = None, profile: Profile = None, as_json: Json = False) -> None:
    """Show each setting, its value and where the value comes from."""
    from turnstate.streams.cli.doors import settings_of

    rows = settings_of(data, profile).rows()
    columns = ("name", "value", "source")
    table = [[row[name] for name in columns] for row in rows]
    answer({"settings": rows}, as_json, [Table("settings", columns, table)])


def doctor(data: Data = None, profile: Profile = None, as_json: Json = False) -> None:
    """Check what turnstate needs here; say what is missing and how to get it."""
    from turnstate.streams.cli.checks import all_checks
    from turnstate.streams.cli.doors import settings_of

    rows = all_checks(settings_of(data, profile))
    holds = all(row["ok"] for row in rows)
    columns = ("ok", "check", "found", "hint")
    table = [[row[name] for name in columns] for row in rows]
    document = {"ok": holds, "checks": rows}
    answer(document, as_json, [Table("doctor", columns, table)])
    if not holds:
        raise typer.Exit(1)


def _named(tenant: str | None) -> None:
    if tenant == "":
        raise InvalidInputError(
            "--tenant is empty", field="tenant", hint="leave it out for all"
        )
