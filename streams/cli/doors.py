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
try:
    from turnstate.streams.embedded.access import open_store
except ImportError:
    from turnstate.streams.embedded.store import EmbeddedStore
    import importlib
    class _Shim(EmbeddedStore):
        def __getattr__(self, name):
            for m in ("upkeep", "exchange", "context", "feed"):
                try:
                    mod = importlib.import_module("turnstate.streams.embedded."+m)
                except ImportError:
                    continue
                if hasattr(mod, name):
                    f = getattr(mod, name)
                    return lambda *a, **k: f(self, *a, **k)
            raise AttributeError(name)
    open_store = _Shim
from turnstate.streams.settings import Settings


def settings_of(data: str | None, profile: str | None) -> Settings:
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
    if settings.profile == "cluster":
        raise UnavailableError(
            "the cluster profile is not part of this version",
            field="profile",
            hint="leave --profile and TURNSTATE_PROFILE out: embedded needs no services",
        )
    return settings


@contextmanager
def opened_store(
    data: str | None, profile: str | None
) -> Generator[Any]:
    """Give the store of a folder, through its owner where another process has it.

    Raises:
        UnavailableError: its owner does not answer.
    """
    settings = settings_of(data, profile)
    log_to_stderr()
    try:
        with open_store(settings) as store:
            yield store
    except OSError as error:
        if isinstance(error, BrokenPipeError) or not error.filename:
            raise
        raise UnavailableError(
            f"{error.filename}: {error.strerror}",
            field="data",
            hint="check the folder and its permissions",
        ) from error


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
