"""The commands that change a session: rollback, fork, end, erase."""

from typing import TYPE_CHECKING, Annotated

import typer

from turnstate.schemas.errors import InvalidInputError, UnavailableError
from turnstate.streams.cli.options import (
    Branch,
    Data,
    Json,
    Profile,
    Session,
    Tenant,
    Version,
)
from turnstate.streams.cli.render import Pairs, answer

if TYPE_CHECKING:
    from turnstate.streams.documents import Document

ToVersion = Annotated[
    int, typer.Argument(metavar="VERSION", min=0, help="The version to go back to.")
]


def rollback(
    tenant: Tenant,
    session: Session,
    version: ToVersion,
    branch: Branch = "main",
    data: Data = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Go back to what a branch was at a version; nothing is dropped.

    The turns after it stay readable by id, and count in usage.
    """
    from turnstate.streams.cli.doors import opened_store
    from turnstate.streams.documents import answer_document

    with opened_store(data, profile, what="rollback") as store:
        done = store.rollback(tenant, session, version, branch)
    document = answer_document(done)
    answer(document, as_json, [Pairs("rolled back", document.items())])


NewBranch = Annotated[
    str, typer.Argument(metavar="BRANCH", help="The new branch's name.")
]
AtTurn = Annotated[
    str | None,
    typer.Option(
        "--turn", metavar="ID", help="Begin after this turn.", show_default=False
    ),
]


def fork(
    tenant: Tenant,
    session: Session,
    branch: NewBranch,
    version: Version = None,
    turn: AtTurn = None,
    data: Data = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Begin a branch: where main stands, at a version, or after a turn."""
    from turnstate.schemas.ids import checked_id
    from turnstate.streams.cli.doors import opened_store
    from turnstate.streams.documents import answer_document

    checked_id(branch, "branch")
    if version is not None and turn is not None:
        raise InvalidInputError(
            "--version and --turn say two places", field="turn", hint="give one"
        )
    with opened_store(data, profile, what="fork") as store:
        done = store.fork(tenant, session, branch, version=version, turn=turn)
    document = answer_document(done)
    answer(document, as_json, [Pairs("forked", document.items())])


GoesOn = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="SESSION",
        help="The session that goes on.",
        show_default=False,
    ),
]


def end(
    tenant: Tenant,
    session: Session,
    branch: Branch = "main",
    to: GoesOn = None,
    data: Data = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Mark a branch as ended; later turns are kept and answered with it."""
    from turnstate.schemas.ids import checked_id
    from turnstate.streams.cli.doors import opened_store
    from turnstate.streams.documents import answer_document

    if to is not None:
        checked_id(to, "to")
    with opened_store(data, profile, what="end") as store:
        done = store.end(tenant, session, branch=branch, to=to)
    document = answer_document(done)
    answer(document, as_json, [Pairs("ended", document.items())])


OneSession = Annotated[
    str | None,
    typer.Option(
        "--session", metavar="S", help="Erase this session.", show_default=False
    ),
]
OneUser = Annotated[
    str | None,
    typer.Option(
        "--user",
        metavar="U",
        help="Erase this user's sessions and turns.",
        show_default=False,
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Say what would go; change nothing.")
]


TrimLog = Annotated[
    bool,
    typer.Option(
        "--trim-log",
        help="On a cluster: delete what is folded from the topics, everybody's, too.",
    ),
]


def erase(
    tenant: Tenant,
    session: OneSession = None,
    user: OneUser = None,
    dry_run: DryRun = False,
    trim_log: TrimLog = False,
    data: Data = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Erase a session, or all that a user said; report what was searched.

    The bytes are gone before the report is given. There is no way back. On a
    cluster topics keep theirs until retention ends it, as the report says; exit 6
    where something could not be reached: erase again.
    """
    from turnstate.schemas.ids import checked_id
    from turnstate.streams.cli.doors import settings_of, store_of

    checked_id(tenant, "tenant")
    if (session is None) == (user is None):
        raise InvalidInputError(
            "erase takes a session or a user",
            field="session",
            hint="give --session S or --user U",
        )
    checked_id(session if user is None else user, "session" if user is None else "user")
    settings = settings_of(data, profile, may_cluster=True)
    if settings.profile == "cluster":
        document = _erase_on_cluster(
            data, profile, tenant, session, user, dry_run, trim_log
        )
    elif trim_log:
        raise InvalidInputError(
            "--trim-log is of a cluster; embedded, the log is always cleaned",
            field="trim_log",
            hint="leave it out",
        )
    else:
        with store_of(settings) as store:
            document = store.erase(tenant, session=session, user=user, dry_run=dry_run)
    answer(document, as_json, [Pairs("erased", document.items())])
    if document.get("unreached"):
        raise typer.Exit(UnavailableError.exit_code)


def _erase_on_cluster(
    data: str | None,
    profile: str | None,
    tenant: str,
    session: str | None,
    user: str | None,
    dry_run: bool,
    trim_log: bool,
) -> "Document":
    from turnstate.streams.cli.doors import cluster_of, settings_of
    from turnstate.streams.clock import SystemClock

    cluster = cluster_of(data, profile)
    from turnstate.streams.kafka.cluster_erase import erase_on_cluster

    return erase_on_cluster(
        settings_of(data, profile, may_cluster=True),
        cluster,
        SystemClock(),
        tenant,
        session=session,
        user=user,
        dry_run=dry_run,
        trim_log=trim_log,
    )
