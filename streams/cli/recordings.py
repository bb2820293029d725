"""The commands on recordings: export, import, replay."""

from typing import Annotated

import typer

from turnstate.schemas.errors import InvalidInputError
from turnstate.streams.cli.options import Data, Json, OneTenant, Profile
from turnstate.streams.cli.render import Pairs, answer, note, print_json, write

Target = Annotated[
    str,
    typer.Argument(
        metavar="FILE", help="Where to; .jsonl and .jsonl.gz hold JSON lines; - stdout."
    ),
]
Force = Annotated[
    bool, typer.Option("--force", help="Write over a file that is there.")
]


def export(
    file: Target,
    tenant: OneTenant = None,
    force: Force = False,
    data: Data = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Write every stored operation, stamps included, into a recording.

    The file appears whole or not at all, and proves itself whole when read.
    """
    from turnstate.schemas.ids import checked_id
    from turnstate.streams.cli.doors import opened_store
    from turnstate.streams.cli.exporting import export_to

    _checked_file(file)
    if tenant is not None:
        checked_id(tenant, "tenant")
    if file == "-" and as_json:
        raise InvalidInputError(
            "stdout cannot hold the recording and --json",
            field="file",
            hint="name a file, or leave --json out",
        )
    with opened_store(data, profile) as store:
        document = export_to(file, store.export_items(tenant), force=force)
    if file == "-":
        note(", ".join(f"{name} {value}" for name, value in document.items()))
    else:
        answer(document, as_json, [Pairs("exported", document.items())])


Source = Annotated[
    str,
    typer.Argument(
        metavar="FILE", help="A recording, or JSON lines of stamped turns; - is stdin."
    ),
]


def import_(
    file: Source,
    data: Data = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Fold a recording into the store; importing it again adds nothing.

    A recording that is damaged or cut short is refused before anything is folded.
    """
    from turnstate.streams.cli.doors import opened_store
    from turnstate.streams.cli.exporting import import_from

    _checked_file(file)
    with opened_store(data, profile) as store:
        document = import_from(file, store)
    answer(document, as_json, [Pairs("imported", document.items())])


Recording = Annotated[
    str,
    typer.Argument(
        metavar="RECORDING",
        help="A recording, or JSON lines of turns, stamped or not; - is stdin.",
    ),
]
Against = Annotated[
    str | None,
    typer.Option(
        "--against",
        metavar="DIR",
        help="Compare with the store in this folder, which is only read.",
        show_default=False,
    ),
]
Shuffle = Annotated[
    int | None,
    typer.Option(
        "--shuffle",
        metavar="SEED",
        help="Fold in an order that this seed decides.",
        show_default=False,
    ),
]
Processes = Annotated[
    int | None,
    typer.Option(
        "--processes",
        metavar="N",
        min=1,
        max=64,
        help="Divide the sessions over N processes (default: cores, at most 4).",
        show_default=False,
    ),
]
LineFormat = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="turns|openai|corpus",
        help="What the lines hold, where it is no binary recording.",
    ),
]


def replay(
    recording: Recording,
    against: Against = None,
    shuffle: Shuffle = None,
    processes: Processes = None,
    format_name: LineFormat = "turns",
    data: Data = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Fold a recording again and compare the digests; exit 1 if any differs.

    With --shuffle and without --against, the shuffled order is compared with
    the recorded one. Without either, it folds and says how fast.
    """
    from turnstate.replay.readers import FORMATS
    from turnstate.streams.cli.doors import settings_of
    from turnstate.streams.cli.replaying import replay_report

    _checked_file(recording)
    if format_name not in FORMATS:
        raise InvalidInputError(
            f"the format {format_name!r} is not known",
            field="format",
            hint=f"one of {', '.join(FORMATS)}",
        )
    if against == "":
        raise InvalidInputError(
            "--against is empty", field="against", hint="name the folder of a store"
        )
    settings = settings_of(data, profile)
    report = replay_report(
        recording,
        settings,
        against=against,
        shuffle=shuffle,
        processes=processes,
        format_name=format_name,
    )
    if as_json:
        print_json(report.as_json())
    else:
        write(report.as_text() + "\n")
    if not report.holds:
        raise typer.Exit(1)


def _checked_file(name: str) -> None:
    if not name:
        raise InvalidInputError("the FILE is empty", field="file", hint="name a file")
