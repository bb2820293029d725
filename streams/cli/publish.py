"""The command `publish`: turns of files into the store."""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from turnstate.schemas.errors import InvalidInputError
from turnstate.streams.cli.options import Data, Json, Profile
from turnstate.streams.cli.render import Pairs, answer

Files = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE…", help="JSON lines, packed with gzip or not; - is stdin."
    ),
]
FormatName = Annotated[
    str,
    typer.Option(
        "--format", metavar="turns|openai|corpus", help="What the lines hold."
    ),
]
Rate = Annotated[
    float | None,
    typer.Option(
        "--rate",
        metavar="N",
        help="Read at most so many lines a second.",
        show_default=False,
    ),
]
NoWait = Annotated[
    bool,
    typer.Option("--no-wait", help="Hand over; do not ask what became of each turn."),
]
Strict = Annotated[
    bool,
    typer.Option(
        "--strict", help="Exit 1 if a turn was refused, in conflict or there already."
    ),
]


def publish(
    files: Files,
    format_name: FormatName = "turns",
    rate: Rate = None,
    no_wait: NoWait = False,
    strict: Strict = False,
    data: Data = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Publish turns from files, and wait until they are folded and durable.

    A line that is no turn is counted and kept as a dead letter; the rest goes
    on. Publishing a file twice changes nothing: turns with an id are known.
    """
    from turnstate.replay.readers import FORMATS
    from turnstate.streams.cli.publishing import publish_files

    if format_name not in FORMATS:
        raise InvalidInputError(
            f"the format {format_name!r} is not known",
            field="format",
            hint=f"one of {', '.join(FORMATS)}",
        )
    if not all(files):
        raise InvalidInputError(
            "a FILE is empty", field="files", hint="name a file, or - for stdin"
        )
    with _door(data, profile, wait=not no_wait) as store, _progress() as watch:
        counts = publish_files(
            store, files, format_name, rate=rate, wait=not no_wait, watch=watch
        )
    document = counts.document(waited=not no_wait)
    answer(document, as_json, [Pairs("published", document.items())])
    if strict and not counts.is_clean:
        raise typer.Exit(1)


@contextmanager
def _door(data: str | None, profile: str | None, *, wait: bool) -> Generator[Any]:
    """Give where the turns go: the store of a folder, or the topic of a cluster."""
    from turnstate.streams.cli import doors

    settings = doors.settings_of(data, profile, may_cluster=True)
    if settings.profile != "cluster":
        with doors.store_of(settings) as store:
            yield store
        return
    from turnstate.streams.cli.progress import bar

    cluster = doors.cluster_of(data, profile)
    from turnstate.streams.kafka.publishing import ClusterDoor

    with (
        bar("folded") as folded,
        ClusterDoor(cluster, wait=wait, progress=folded) as door,
    ):
        yield door


def _progress() -> Any:
    """Return a context that gives what shows progress on a terminal, else None."""
    from contextlib import nullcontext

    if not sys.stderr.isatty():
        return nullcontext(None)
    from turnstate.streams.cli.progress import publish_progress

    return publish_progress()
