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
    with opened_store(data, profile, what="export") as store:
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
    with opened_store(data, profile, what="import") as store:
        document = import_from(file, store)
    answer(document, as_json, [Pairs("imported", document.items())])


Recording = Annotated[
    str,
    typer.Argument(
        metavar="RECORDING",
        help="A recording, or JSON lines of turns, stamped or not; - is stdin."
        " kafka: is the topic of turns of the cluster,"
        " kafka://HOST:PORT/TOPIC?from=TIME&to=TIME any.",
    ),
]
Against = Annotated[
    str | None,
    typer.Option(
        "--against",
        metavar="DIR|cluster",
        help="Compare with the store in this folder, which is only read;"
        " of Kafka also with stopped workers' stores, or with the live cluster.",
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


FromTime = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="TIME",
        help="Of Kafka: turns that were there at this time or later;"
        " ISO 8601 with an offset, or milliseconds since 1970.",
        show_default=False,
    ),
]
ToTime = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="TIME",
        help="Of Kafka: turns that were there before this time (default: now).",
        show_default=False,
    ),
]
FromOffset = Annotated[
    str | None,
    typer.Option(
        "--from-offset",
        metavar="P:N,…",
        help="Of Kafka: first offset of partitions; others begin at the beginning.",
        show_default=False,
    ),
]
ToOffset = Annotated[
    str | None,
    typer.Option(
        "--to-offset",
        metavar="P:N,…",
        help="Of Kafka: offset after the last; others end where they end now.",
        show_default=False,
    ),
]
ReplayRate = Annotated[
    float | None,
    typer.Option(
        "--rate",
        metavar="N",
        help="Of Kafka: turns folded a second at most.",
        show_default=False,
    ),
]
Record = Annotated[
    str | None,
    typer.Option(
        "--record",
        metavar="FILE",
        help="Of Kafka: write what was folded, stamps included, into a recording.",
        show_default=False,
    ),
]
Group = Annotated[
    str | None,
    typer.Option(
        "--group",
        metavar="NAME",
        help="Of Kafka: fold into the state of this new group, beside the live one.",
        show_default=False,
    ),
]


def replay(
    recording: Recording,
    against: Against = None,
    shuffle: Shuffle = None,
    processes: Processes = None,
    format_name: LineFormat = "turns",
    from_time: FromTime = None,
    to_time: ToTime = None,
    from_offset: FromOffset = None,
    to_offset: ToOffset = None,
    rate: ReplayRate = None,
    record: Record = None,
    force: Force = False,
    group: Group = None,
    data: Data = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Fold a recording, or the log of Kafka, again and compare the digests.

    Exits with 1 if any differs. With --shuffle and without --against, the
    shuffled order is compared with the recorded one. Without either, it folds
    and says how fast. A range of Kafka is a log of its own; with --against
    its states are made on all turns before it, and compared as of its end.

    --group makes topics of its own for a new group (deltas, dead letters,
    state), folds all turns that there are now into them, and leaves the live
    group alone; turnstate worker --group goes on from there.
    """
    from turnstate.streams.cli.replaying import ReplayOptions, report_for

    _checked_file(recording)
    of_kafka = {
        "from": from_time,
        "to": to_time,
        "from-offset": from_offset,
        "to-offset": to_offset,
        "rate": rate,
        "record": record,
        "group": group,
    }
    options = ReplayOptions(of_kafka, against, shuffle, processes, format_name, force)
    report = report_for(recording, options, data=data, profile=profile)
    if as_json:
        print_json(report.as_json())
    else:
        write(report.as_text() + "\n")
    if not report.holds:
        raise typer.Exit(1)


def _checked_file(name: str) -> None:
    if not name:
        raise InvalidInputError("the FILE is empty", field="file", hint="name a file")
