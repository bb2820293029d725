"""Open what a command works on: the settings, the store, its log lines."""

import logging
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import structlog

from turnstate.schemas.errors import InvalidInputError, UnavailableError
from turnstate.streams.embedded.access import open_store
from turnstate.streams.settings import Settings


def settings_of(
    data: str | None, profile: str | None, *, may_cluster: bool = False
) -> Settings:
    """Return the settings of the environment and of a command's options.

    Raises:
        InvalidInputError: a value is out of range, or a name is empty.
        UnavailableError: the cluster is asked for, which this build lacks.
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
            "the cluster profile is not part of this version",
            field="profile",
            hint="leave --profile and TURNSTATE_PROFILE out to run embedded",
        )
    return settings


@contextmanager
def opened_store(data: str | None, profile: str | None) -> Generator[Any]:
    """Give the store of a folder, through its owner where another process has it.

    Raises:
        UnavailableError: its owner does not answer.
    """
    with store_of(settings_of(data, profile)) as store:
        yield store


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
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
