"""Open what a command works on: the settings, the store, its log lines."""

import logging
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import structlog

from turnstate.schemas.errors import InvalidInputError, UnavailableError
from turnstate.streams.embedded.access import open_store
from turnstate.streams.settings import Settings


def settings_of(
    data: str | None,
    profile: str | None,
    *,
    may_cluster: bool = False,
    what: str = "this command",
) -> Settings:
    """Return the settings of the environment and of a command's options.

    Args:
        data: The folder that was named.
        profile: The profile that was named.
        may_cluster: Whether the command can work on a cluster.
        what: The command, as its error names it.

    Raises:
        InvalidInputError: a value is out of range, or a name is empty.
        UnavailableError: the cluster is asked for, and the command cannot.
    """
    for name, value in (("data", data), ("profile", profile)):
        if value == "":
            raise InvalidInputError(
                f"--{name} is empty", field=name, hint="give a name, or leave it out"
            )
    settings = Settings.from_env(
        os.environ, data=None if data is None else Path(data), profile=profile
    )
    if settings.profile == "cluster" and not may_cluster:
        raise UnavailableError(
            f"{what} does not work on a cluster",
            field="profile",
            hint="leave --profile and TURNSTATE_PROFILE out to run embedded",
        )
    return settings


def cluster_of(data: str | None, profile: str | None) -> Any:
    """Return the settings of the cluster that a command is to work on.

    Raises:
        InvalidInputError: a setting is wrong; it is named.
        UnavailableError: the libraries of the cluster are not installed.
    """
    if find_spec("aiokafka") is None:
        raise UnavailableError(
            "aiokafka is not installed",
            field="profile",
            hint="pip install 'turnstate[cluster]'",
        )
    from turnstate.streams.kafka.cluster_settings import ClusterSettings

    log_to_stderr()
    # It logs every try of what our errors sum up.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    settings = settings_of(data, profile, may_cluster=True)
    return ClusterSettings.load(settings.data)


def refuse_plain_copies(settings: Settings, what: str) -> None:
    """Refuse to write a cluster's state in plain where encryption was asked for.

    Raises:
        UnavailableError: it was; `what` would write copies that it does not encrypt.
    """
    if settings.encryption:
        raise UnavailableError(
            f"{what} would keep copies of what it reads, which are not encrypted",
            field="encryption",
            hint="leave the setting empty for this command, on a disk that may hold"
            " the text in plain; `worker --group` folds a log anew, encrypted",
        )


@contextmanager
def opened_store(
    data: str | None, profile: str | None, *, what: str = "this command"
) -> Generator[Any]:
    """Give the store of a folder, through its owner where another process has it.

    Raises:
        UnavailableError: its owner does not answer; or a cluster is asked for,
            on which the command, `what`, does not work.
    """
    with store_of(settings_of(data, profile, what=what)) as store:
        yield store


@contextmanager
def opened_cluster_keys(data: str | None, profile: str | None) -> Generator[Any]:
    """Give the keys of a cluster's partitions; None where no cluster is asked for.

    Raises:
        UnavailableError: the setting is empty, or names a key file that is missing.
    """
    if settings_of(data, profile, may_cluster=True).profile != "cluster":
        yield None
        return
    cluster = cluster_of(data, profile)
    from turnstate.streams.kafka.partition_keys import cluster_keys

    keys = cluster_keys(cluster)
    if keys is None:
        raise UnavailableError(
            "this cluster is not encrypted",
            field="encryption",
            hint="set TURNSTATE_ENCRYPTION=keyfile:PATH and start its workers",
            code="not_encrypted",
        )
    with keys:
        yield keys


@contextmanager
def opened_reader(data: str | None, profile: str | None) -> Generator[Any]:
    """Give what answers reads: the store of a folder, or a cluster's workers.

    Raises:
        UnavailableError: the owner, or the cluster, does not answer.
    """
    settings = settings_of(data, profile, may_cluster=True)
    if settings.profile != "cluster":
        with store_of(settings) as store:
            yield store
        return
    cluster = cluster_of(data, profile)
    from turnstate.streams.kafka.cluster_reader import ClusterReader

    with ClusterReader(cluster) as reader:
        yield reader


@contextmanager
def store_of(settings: Settings) -> Generator[Any]:
    """Give the store that settings name, as `opened_store` does.

    Raises:
        UnavailableError: its owner does not answer, or the folder is no good.
    """
    log_to_stderr()
    try:
        settings.data.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnavailableError(
            f"the folder {settings.data} cannot be used: {error.strerror}",
            field="data",
            hint="name a folder that may be written",
        ) from error
    with open_store(settings) as store:
        yield store


def log_to_stderr() -> None:
    """Send warnings to stderr, as JSON where nobody watches; stdout is data."""
    on_terminal = sys.stderr.isatty()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.dev.ConsoleRenderer()
            if on_terminal
            else structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        # The stderr of when a line is written: one that was taken may be closed.
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
    )
