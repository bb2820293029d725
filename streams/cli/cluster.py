"""The commands on services: start Kafka, Redis and S3 here, end them, look."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from turnstate.infra.services.failures import MissingProgramError, ServiceError
from turnstate.infra.services.reports import SERVICES, Report
from turnstate.schemas.errors import (
    InvalidInputError,
    TurnstateError,
    UnavailableError,
)
from turnstate.streams.cli.options import Data, Json, Profile
from turnstate.streams.cli.render import Table, answer, error_lines, note

FOLDER_NAME: Final = "cluster"
"""In the data folder: what the services keep."""

_COLUMNS: Final = ("service", "state", "address", "pid", "log")
_ADDRESSES: Final = ("bootstrap", "url", "endpoint")
_ELSEWHERE: Final = "TURNSTATE_KAFKA"

Without = Annotated[
    str,
    typer.Option(
        "--without",
        metavar="NAMES",
        help="Services to leave out, commas between: kafka,redis,s3.",
        show_default=False,
    ),
]
Docker = Annotated[
    bool,
    typer.Option("--docker", help="Use Docker, even where processes would do."),
]


def up(
    without: Without = "",
    docker: Docker = False,
    data: Data = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Start Kafka, Redis and S3 on loopback, and create the topics.

    What runs is left alone; what crashed is started on its data again. Where
    they are is written to cluster.toml in the data folder.
    """
    from turnstate.infra.services.kafka_jars import are_fetched
    from turnstate.infra.services.launcher import cluster_in
    from turnstate.streams.cli.cluster_file import check_ours, write_connections

    names = _wanted(without)
    folder = _data_folder(data, profile)
    check_ours(folder)
    if "kafka" in names and not are_fetched():
        note("the first start fetches Kafka: 43 MB, about half a minute")
    try:
        cluster = cluster_in(folder / FOLDER_NAME, names, docker=docker)
        reports = cluster.up(names)
    except ServiceError as error:
        raise _told(error) from error
    except OSError as error:
        raise UnavailableError(
            f"the folder {folder} cannot be used: {error.strerror}",
            field="data",
            hint="name a folder that may be written",
        ) from error
    running = {
        report.service: report.connection
        for report in reports
        if report.state == "running"
    }
    write_connections(folder, running)
    topics, failure = _topics(folder) if "kafka" in running else ([], None)
    failures = [_told(report.error) for report in reports if report.error]
    _show(reports, as_json, [*failures, *([failure] if failure else [])], topics)


def down(data: Data = None, profile: Profile = None, as_json: Json = False) -> None:
    """End the services; what they hold stays for the next start."""
    from turnstate.infra.services.launcher import cluster_in

    folder = _data_folder(data, profile) / FOLDER_NAME
    try:
        _show(cluster_in(folder).down(), as_json)
    except ServiceError as error:
        raise _told(error) from error


def status(data: Data = None, profile: Profile = None, as_json: Json = False) -> None:
    """Show what each service does, and where it is."""
    from turnstate.infra.services.launcher import cluster_in

    folder = _data_folder(data, profile) / FOLDER_NAME
    _show(cluster_in(folder).status(), as_json)


def _data_folder(data: str | None, profile: str | None) -> Path:
    from turnstate.streams.cli.doors import settings_of

    # The services are for the cluster, whatever the profile says.
    return settings_of(data, profile, may_cluster=True).data


def _wanted(without: str) -> list[str]:
    left_out = [name.strip() for name in without.split(",") if name.strip()]
    for name in left_out:
        if name not in SERVICES:
            raise InvalidInputError(
                f"--without names {name!r}, which is no service",
                field="without",
                hint=f"one of {', '.join(SERVICES)}",
            )
    wanted = [name for name in SERVICES if name not in left_out]
    if not wanted:
        raise InvalidInputError(
            "--without leaves nothing to start", field="without", hint="name fewer"
        )
    return wanted


def _topics(folder: Path) -> tuple[list[dict[str, Any]], TurnstateError | None]:
    """Create the topics on the Kafka that was started here, wherever others are."""
    import asyncio

    try:
        from turnstate.streams.kafka.cluster_settings import ClusterSettings
        from turnstate.streams.kafka.topics import create_topics
    except ImportError as error:
        return [], UnavailableError(
            f"the topics were not created: {error}",
            field="topics",
            hint="pip install 'turnstate[cluster]', then turnstate topics create",
            code="missing",
        )
    if os.environ.get(_ELSEWHERE):
        note(f"{_ELSEWHERE} is set: other commands go there, not to this Kafka")
    environment = {
        name: value for name, value in os.environ.items() if name != _ELSEWHERE
    }
    try:
        settings = ClusterSettings.load(folder, environment)
        document = asyncio.run(create_topics(settings))
    except TurnstateError as error:
        return [], error
    return document["topics"], None


def _told(error: ServiceError) -> UnavailableError:
    missing = isinstance(error, MissingProgramError)
    return UnavailableError(
        error.message,
        field=error.service,
        hint=error.hint,
        code="missing" if missing else None,
    )


def _show(
    reports: Sequence[Report],
    as_json: bool,
    failures: Sequence[TurnstateError] = (),
    topics: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Show the services; end with the code of the first failure."""
    from turnstate.streams.documents import error_document

    rows = [_row(report) for report in reports]
    document: dict[str, Any] = {"services": rows}
    if topics:
        document["topics"] = list(topics)
    if failures:
        document |= error_document(failures[0])
    table = [[row[name] for name in _COLUMNS] for row in rows]
    answer(document, as_json, [Table("services", _COLUMNS, table)])
    if not as_json:
        for failure in failures:
            note(error_lines(failure))
    if failures:
        raise typer.Exit(failures[0].exit_code)


def _row(report: Report) -> dict[str, Any]:
    addresses = [report.connection.get(name) for name in _ADDRESSES]
    error = report.error
    return {
        "service": report.service,
        "state": report.state,
        "address": next((each for each in addresses if each), None),
        "pid": report.pid,
        "log": report.log,
        "error": None
        if error is None
        else {"message": error.message, "hint": error.hint},
    }
