"""The commands that change a session: rollback, fork, end, erase."""

from typing import Annotated

import typer

from turnstate.schemas.errors import InvalidInputError
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


def erase(
    tenant: Tenant,
    session: OneSession = None,
    user: OneUser = None,
    dry_run: DryRun = False,
    data: Data = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Erase a session, or all that a user said; report what was searched.

    The bytes are gone before the report is given. There is no way back.
    """
    from turnstate.schemas.ids import checked_id
    from turnstate.streams.cli.doors import opened_store

    checked_id(tenant, "tenant")
    if (session is None) == (user is None):
        raise InvalidInputError(
            "erase takes a session or a user",
            field="session",
            hint="give --session S or --user U",
        )
    checked_id(session if user is None else user, "session" if user is None else "user")
    with opened_store(data, profile, what="erase") as store:
        document = store.erase(tenant, session=session, user=user, dry_run=dry_run)
    answer(document, as_json, [Pairs("erased", document.items())])
