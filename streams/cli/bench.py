"""The command `bench`: one measurement, with the machine that it was taken on."""

from typing import Annotated, Any, Literal

import typer

from turnstate.schemas.errors import InvalidInputError
from turnstate.streams.cli.options import Data, Json, Profile
from turnstate.streams.cli.render import Pairs, Table, answer

Name = Annotated[
    str | None,
    typer.Argument(metavar="NAME", help="Which one; without a name, all are listed."),
]
SizeName = Annotated[
    str,
    typer.Option(
        "--size",
        metavar="small|large",
        help="Small: a second or two, to see that it runs; large: the figures.",
    ),
]


def bench(
    name: Name = None,
    size: SizeName = "large",
    data: Data = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Measure one thing, in a folder of its own; the figures are medians."""
    from turnstate.streams.bench import BENCHES, run_bench
    from turnstate.streams.cli.doors import log_to_stderr, settings_of
    from turnstate.streams.cli.progress import bar
    from turnstate.streams.process import tune_process

    settings_of(data, profile, what="bench")
    if size not in ("small", "large"):
        raise InvalidInputError(
            f"the size {size!r} is not known", field="size", hint="small or large"
        )
    if name is None:
        names = sorted(BENCHES)
        answer({"benches": names}, as_json, [Table("benches", ("name",), zip(names))])
        return
    log_to_stderr()
    tune_process()
    chosen: Literal["small", "large"] = "small" if size == "small" else "large"
    with bar(name) as step:
        document: dict[str, Any] = run_bench(name, chosen, step)
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
