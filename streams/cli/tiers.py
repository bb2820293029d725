"""The commands that cron calls: tiers status, run, move, sweep, compact, gc."""

from collections.abc import Generator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from turnstate.agents.tiering.facts import TIERS, TierName
from turnstate.schemas.errors import FencedError, InvalidInputError
from turnstate.schemas.ids import SessionName, checked_id
from turnstate.streams.cli.options import Data, Json, Profile
from turnstate.streams.cli.render import Block, Pairs, Table, answer, note

if TYPE_CHECKING:
    from turnstate.streams.tiers.opening import OpenedTiers

_BY_NAME: Final[dict[str, TierName]] = {tier: tier for tier in TIERS}

Once = Annotated[
    bool, typer.Option("--once", help="Run once and end, as cron wants it (it does).")
]
DryRun = Annotated[bool, typer.Option(help="Say what would be done; change nothing.")]
Now = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Take TIME (ISO 8601) as the present, and move."),
]
BudgetBytes = Annotated[
    int | None, typer.Option(metavar="N", min=0, help="Copy at most so many bytes.")
]
BudgetSeconds = Annotated[
    float | None, typer.Option(metavar="N", min=0, help="Work for about so long.")
]
Metrics = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write counts for Prometheus' node exporter."),
]


def status(data: Data = None, profile: Profile = None, as_json: Json = False) -> None:
    """Show what lies in each tier, who holds the lease, and what is unfinished."""
    with _tiers(data, profile, "tiers status") as opened:
        stats = opened.store.call("stats")
        manifest = opened.packs.manifests.latest()
        lease = opened.leases.latest()
        left = opened.store.call("tier_unfinished", before_ms=opened.now_ms())
    holder = (
        lease.holder if lease is not None and lease.is_held(opened.now_ms()) else None
    )
    document = {
        "tiers": stats["tiers"],
        "packs": len(manifest.packs),
        "pack_bytes": sum(each.bytes for each in manifest.packs.values()),
        "manifest": manifest.number,
        "lease": holder,
        "unfinished": len(left),
    }
    rows = [
        [name, each["sessions"], each["bytes"]] for name, each in stats["tiers"].items()
    ]
    rest = [(name, value) for name, value in document.items() if name != "tiers"]
    answer(
        document,
        as_json,
        [Table("tiers", ("tier", "sessions", "bytes"), rows), Pairs("cold", rest)],
    )


def run(
    once: Once = False,
    dry_run: DryRun = False,
    now: Now = None,
    budget_bytes: BudgetBytes = None,
    budget_seconds: BudgetSeconds = None,
    metrics: Metrics = None,
    data: Data = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Move sessions as the policy says: what nobody uses cools, what is used comes up.

    Safe beside another run, and while the store is in use. Exit 4 where another
    job took over in the middle, 6 where one holds the lease: nothing is lost,
    the next run goes on.
    """
    from turnstate.agents.tiering.budget import RunBudget

    del once
    at_ms = None if now is None else _time_ms(now)
    budget = RunBudget(bytes_max=budget_bytes, seconds_max=budget_seconds)
    with _tiers(data, profile, "tiers run") as opened:
        report = opened.job.run(budget, at_ms=at_ms, dry_run=dry_run)
    document = report.document()
    _tell(metrics, "run", document)
    _show(document, as_json)


def move(
    tenant: Annotated[str, typer.Argument(metavar="TENANT")],
    session: Annotated[str, typer.Argument(metavar="SESSION")],
    to: Annotated[str, typer.Argument(metavar="TIER", help="hot, warm or cold.")],
    dry_run: DryRun = False,
    data: Data = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Move one session to a tier, whatever the policy says of it."""
    target = _BY_NAME.get(to)
    if target is None:
        raise InvalidInputError(
            f"there is no tier {to!r}", field="tier", hint="hot, warm or cold"
        )
    name = SessionName(checked_id(tenant, "tenant"), checked_id(session, "session"))
    with _tiers(data, profile, "tiers move") as opened:
        report = opened.job.move(name.key(), target, dry_run=dry_run)
    _show(report.document(), as_json)


def sweep(
    once: Once = False,
    dry_run: DryRun = False,
    now: Now = None,
    data: Data = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Finish, or give up, the moves that a job left behind when it died.

    Those that were planned an hour ago, or earlier: younger ones may be under
    way. Exit codes as of `tiers run`.
    """
    del once
    at_ms = None if now is None else _time_ms(now)
    with _tiers(data, profile, "tiers sweep") as opened:
        report = opened.job.sweep(at_ms=at_ms, dry_run=dry_run)
    _show(report.document(), as_json)


def compact(
    once: Once = False,
    dry_run: DryRun = False,
    metrics: Metrics = None,
    data: Data = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Rewrite packs of which less than half is alive, and put small ones together."""
    from turnstate.streams.tiers.packs import compact_packs

    del once
    with _tiers(data, profile, "tiers compact") as opened:
        document = opened.on_packs(compact_packs, dry_run=dry_run)
    _tell(metrics, "compact", document)
    answer(document, as_json, [Pairs("compacted", document.items())])


def gc(
    once: Once = False,
    dry_run: DryRun = False,
    metrics: Metrics = None,
    data: Data = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Delete packs that nobody needs any more, and old manifests and leases."""
    from turnstate.streams.tiers.packs import collect_garbage

    del once
    with _tiers(data, profile, "tiers gc") as opened:
        document = opened.on_packs(collect_garbage, dry_run=dry_run)
        if not dry_run:
            document |= opened.store.call("tier_forget_archived")
    _tell(metrics, "gc", document)
    answer(document, as_json, [Pairs("collected", document.items())])


def cost(
    sessions_a_day: Annotated[
        float, typer.Option(metavar="N", help="Sessions that begin in a day.")
    ],
    turns_a_session: Annotated[float, typer.Option(metavar="N")] = 20.0,
    bytes_a_turn: Annotated[
        float, typer.Option(metavar="N", help="UTF-8 of text and tool arguments.")
    ] = 200.0,
    kept_days: Annotated[
        float, typer.Option(metavar="N", help="How long a session is kept.")
    ] = 365.0,
    cold_reads_a_day: Annotated[
        float, typer.Option(metavar="N", help="Cold sessions read in a day.")
    ] = 0.0,
    data: Data = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Say what a load takes and costs a month in each tier; opens no store."""
    from turnstate.agents.tiering.cost import Load
    from turnstate.agents.tiering.cost import cost as cost_of
    from turnstate.streams.cli.doors import settings_of
    from turnstate.streams.tiers.opening import policy_of

    settings = settings_of(data, profile, may_cluster=True)
    load = Load(
        sessions_a_day=sessions_a_day,
        turns_a_session=turns_a_session,
        bytes_a_turn=bytes_a_turn,
        kept_days=kept_days,
        cold_reads_a_day=cold_reads_a_day,
    )
    tiers = cost_of(load, table=policy_of(settings))
    rows = [
        {
            "tier": each.tier,
            "sessions": round(each.sessions),
            "bytes": round(each.bytes),
            "objects": each.objects,
            "requests_a_month": round(each.requests_a_month),
            "usd_a_month": round(each.usd_a_month, 2),
        }
        for each in tiers
    ]
    total = round(sum(each.usd_a_month for each in tiers), 2)
    columns = tuple(rows[0])
    answer(
        {"tiers": rows, "usd_a_month": total},
        as_json,
        [
            Table("a month", columns, [list(row.values()) for row in rows]),
            Pairs("in all", [("usd_a_month", total)]),
        ],
    )


@contextmanager
def _tiers(
    data: str | None, profile: str | None, what: str
) -> "Generator[OpenedTiers]":
    from turnstate.streams.cli.doors import cluster_of, settings_of, store_of
    from turnstate.streams.cli.progress import bar
    from turnstate.streams.clock import SystemClock
    from turnstate.streams.tiers.opening import OpenedTiers

    settings = settings_of(data, profile, what=what, may_cluster=True)
    if settings.profile != "cluster":
        with store_of(settings) as store, bar(what) as step:
            yield OpenedTiers(settings, store, SystemClock(), progress=step)
        return
    cluster = cluster_of(data, profile)
    from turnstate.streams.kafka.cluster_tiers import opened_tiers

    with bar(what) as step, opened_tiers(settings, cluster, progress=step) as opened:
        yield opened


def _time_ms(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInputError(
            f"{text!r} is no time", field="now", hint="2026-05-01T00:00:00Z"
        ) from None
    if moment.tzinfo is None:
        raise InvalidInputError(
            f"{text!r} has no offset", field="now", hint="2026-05-01T00:00:00Z"
        )
    return int(moment.timestamp() * 1000)


def _tell(metrics: Path | None, job: str, document: dict[str, Any]) -> None:
    """Write what a job did where it is looked for."""
    from turnstate.streams.clock import SystemClock
    from turnstate.streams.tiers.textfile import write_metrics

    if metrics is not None:
        write_metrics(metrics, job, document, SystemClock().now_ms() // 1000)


def _show(document: dict[str, Any], as_json: bool) -> None:
    shown = ("bytes", "skipped", "swept", "seconds", "fenced", "dry_run")
    pairs = [*document["moved"].items(), *((name, document[name]) for name in shown)]
    blocks: list[Block] = [Pairs("tiers", pairs)]
    for title, name in (("why", "moved_why"), ("skipped", "skipped_why")):
        if document[name]:
            rows = [[why, count] for why, count in document[name].items()]
            blocks.append(Table(title, ("why", "sessions"), rows))
    if document["moves"]:
        columns = ("tenant", "session", "version", "path", "bytes", "why")
        rows = [[row[column] for column in columns] for row in document["moves"][:20]]
        blocks.append(Table("the first moves", columns, rows))
    answer(document, as_json, blocks)
    if document["fenced"]:
        note("another job took over; nothing is lost: run it again")
        raise typer.Exit(FencedError.exit_code)
