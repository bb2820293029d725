"""The command `bench`: one measurement, with the machine that it was taken on."""

from typing import Annotated, Any

import typer

from turnstate.schemas.errors import InvalidInputError
from turnstate.streams.cli.options import Data, Json, Profile
from turnstate.streams.cli.render import Pairs, Table, answer

Name = Annotated[
    str | None,
    typer.Argument(metavar="NAME", help="Which one; without a name, all are listed."),
]


def bench(
    name: Name = None,
    data: Data = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Measure one thing, in a folder of its own; the figures are medians."""
    from turnstate.replay.bench import BENCHES
    from turnstate.streams.cli.doors import log_to_stderr, settings_of
    from turnstate.streams.cli.progress import bar

    settings_of(data, profile)
    if name is None:
        names = sorted(BENCHES)
        answer({"benches": names}, as_json, [Table("benches", ("name",), zip(names))])
        return
    if name not in BENCHES:
        raise InvalidInputError(
            f"there is no bench {name!r}",
            field="name",
            hint=f"one of {', '.join(sorted(BENCHES))}",
        )
    log_to_stderr()
    with bar(name) as step:
        document: dict[str, Any] = BENCHES[name](step)
    document = {"name": name} | document
    document.setdefault("machine", _machine())
    answer(document, as_json, [Pairs("bench", document.items())])


def _machine() -> str:
    """Return what the figures depend on: cores, architecture, Python."""
    import os
    import platform

    return (
        f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()} "
        f"{platform.release()}, {platform.python_implementation()} "
        f"{platform.python_version()}"
    )
