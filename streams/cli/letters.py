"""The commands on what was refused: dead-letters list, show, redrive, discard."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from turnstate.schemas.errors import InvalidInputError
from turnstate.streams.cli.options import Data, Json, Profile
from turnstate.streams.cli.render import Pairs, Table, answer, write

Id = Annotated[str, typer.Argument(metavar="ID", help="As `list` shows it.")]
Ids = Annotated[
    list[str] | None, typer.Argument(metavar="ID…", help="As `list` shows them.")
]
All = Annotated[bool, typer.Option("--all", help="All that there are.")]
Raw = Annotated[
    bool, typer.Option("--raw", help="Write the original bytes, and nothing else.")
]


def list_(data: Data = None, profile: Profile = None, as_json: Json = False) -> None:
    """List what was refused, oldest first, with the reason and the field."""
    with _letters(data, profile) as store:
        document = store.dead_letters()
    columns = ("id", "reason", "field", "offset", "time", "message")
    rows = [[row.get(name) for name in columns] for row in document["dead_letters"]]
    answer(document, as_json, [Table("dead letters", columns, rows)])


def show(
    letter_id: Id,
    raw: Raw = False,
    data: Data = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Show one dead letter, or with --raw its original bytes."""
    from turnstate.streams.embedded.letters import letter_document

    if raw and as_json:
        raise InvalidInputError(
            "--raw and --json exclude each other", field="raw", hint="give one"
        )
    with _letters(data, profile) as store:
        letter = store.dead_letter(letter_id)
    if raw:
        write(letter.raw)
        return
    document = letter_document(letter_id, letter)
    document["raw"] = letter.raw.decode("utf-8", "backslashreplace")
    answer(document, as_json, [Pairs("dead letter", document.items())])


def redrive(
    ids: Ids = None,
    everything: All = False,
    data: Data = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Send dead letters again as they came, once what was wrong is mended."""
    chosen = _chosen(ids, everything)
    with _letters(data, profile) as store:
        document = store.redrive(chosen)
    answer(document, as_json, [Pairs("redriven", document.items())])


def discard(
    ids: Ids = None,
    everything: All = False,
    data: Data = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Remove dead letters for good."""
    chosen = _chosen(ids, everything)
    with _letters(data, profile) as store:
        if chosen is None:
            chosen = [row["id"] for row in store.dead_letters()["dead_letters"]]
        document = store.discard(chosen)
    answer(document, as_json, [Pairs("discarded", document.items())])


@contextmanager
def _letters(data: str | None, profile: str | None) -> Generator[Any]:
    """Give what has the letters: the store of a folder, or the topic of a cluster."""
    from turnstate.streams.cli import doors

    settings = doors.settings_of(data, profile, may_cluster=True)
    if settings.profile == "cluster":
        cluster = doors.cluster_of(data, profile)
        from turnstate.streams.kafka.dead_letters import ClusterLetters

        yield ClusterLetters(cluster)
        return
    with doors.store_of(settings) as store:
        yield store


def _chosen(ids: list[str] | None, everything: bool) -> list[str] | None:
    """Return the ids that were named, None for all."""
    if bool(ids) == everything:
        raise InvalidInputError(
            "which dead letters?", field="id", hint="give their ids, or --all"
        )
    return None if everything else ids
