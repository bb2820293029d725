"""What every command of the command line takes, declared once."""

from typing import Annotated

import typer

Data = Annotated[
    str | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help="Folder of the store (default: $TURNSTATE_DATA, else .turnstate).",
        show_default=False,
    ),
]
Profile = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="embedded|cluster",
        help="How it runs (default: $TURNSTATE_PROFILE, else embedded).",
        show_default=False,
    ),
]
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON document instead of text.")
]
Tenant = Annotated[str, typer.Argument(metavar="TENANT", help="Whose session it is.")]
Session = Annotated[str, typer.Argument(metavar="SESSION", help="Its name.")]
Version = Annotated[
    int | None,
    typer.Option(
        "--version",
        metavar="N",
        min=0,
        help="As it was at this version; 0 is the empty session.",
        show_default=False,
    ),
]
Branch = Annotated[
    str, typer.Option("--branch", metavar="B", help="The branch to show.")
]
OneTenant = Annotated[
    str | None,
    typer.Option("--tenant", metavar="T", help="Only this tenant.", show_default=False),
]
