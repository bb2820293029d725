"""What `doctor` checks: interpreter, libraries, folder, disk; what a cluster needs."""

import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from turnstate.infra.services import kafka_jars, programs
from turnstate.infra.services.failures import MissingProgramError
from turnstate.schemas.errors import TurnstateError
from turnstate.streams.embedded.store import STORE_FOLDER, graph_of
from turnstate.streams.settings import Settings

LIBRARIES: Final = {
    "cryptography": "cryptography",
    "google-crc32c": "google_crc32c",
    "lz4": "lz4.block",
    "msgspec": "msgspec",
    "rich": "rich",
    "rocksdict": "rocksdict",
    "structlog": "structlog",
    "typer": "typer",
}
"""Distribution → module, as pyproject.toml asks for."""

CLUSTER_LIBRARIES: Final = (
    "aiokafka",
    "cramjam",
    "faust-streaming",
    "prometheus-client",
    "uvloop",
)
"""What the extra `cluster` of pyproject.toml brings, LZ4 for aiokafka (cramjam)
among it. They are only looked up: to import Faust takes a second."""

FREE_BYTES_MIN: Final = 1 << 30
FILES_MIN: Final = 1024
"""RocksDB holds a few hundred files open; sockets come on top."""

SLOW_SYNC_MS: Final = 50.0

Row = dict[str, Any]


def all_checks(settings: Settings) -> list[Row]:
    """Return a row for each check: what was found, and what to do if it is bad."""
    return [
        _python(),
        *(_library(name, module) for name, module in LIBRARIES.items()),
        _checksums(),
        _graph(settings),
        _folder(settings.data),
        _disk(settings.data),
        _sync(settings.data),
        _files(),
        *_cluster(counts=settings.profile == "cluster"),
    ]


def holds(rows: list[Row]) -> bool:
    """Say whether nothing that is needed is missing."""
    return all(row["ok"] or row["optional"] for row in rows)


def _row(
    check: str, ok: bool, found: object, hint: str, *, optional: bool = False
) -> Row:
    return {
        "check": check,
        "ok": ok,
        "found": str(found),
        "hint": None if ok else hint,
        "optional": optional,
    }


def _cluster(*, counts: bool) -> list[Row]:
    """Return what starts services here, and what a worker imports.

    Args:
        counts: Whether doctor is asked about the cluster; else all is optional.
    """
    docker = programs.docker_answers()
    # With Docker, images bring the programs.
    native = counts and not docker
    fetched = kafka_jars.are_fetched()
    return [
        _program("java", lambda: programs.java().version, optional=not native),
        _program("maven", programs.maven, optional=not native or fetched),
        _program("redis", programs.redis, optional=not native),
        _program("s3", programs.s3, optional=not native),
        _row(
            "docker",
            docker,
            "answers" if docker else "no daemon answers",
            programs.HINTS["docker"],
            optional=True,
        ),
        *(_extra(name, optional=not counts) for name in CLUSTER_LIBRARIES),
    ]


def _program(name: str, find: Callable[[], object], *, optional: bool) -> Row:
    try:
        return _row(name, True, find(), "", optional=optional)
    except MissingProgramError as error:
        hint = error.hint or programs.HINTS[name]
        return _row(name, False, error.message, hint, optional=optional)


def _extra(name: str, *, optional: bool) -> Row:
    hint = "pip install 'turnstate[cluster]'"
    try:
        return _row(name, True, version(name), hint, optional=optional)
    except PackageNotFoundError:
        return _row(name, False, "not installed", hint, optional=optional)


def _python() -> Row:
    found = ".".join(map(str, sys.version_info[:3]))
    return _row("python", sys.version_info >= (3, 11), found, "install Python 3.11")


def _library(name: str, module: str) -> Row:
    hint = f"pip install {name}"
    try:
        import_module(module)
        return _row(name, True, version(name), hint)
    except PackageNotFoundError:
        return _row(name, True, "there, of unknown version", hint)
    except ImportError as error:
        return _row(name, False, error, hint)


def _checksums() -> Row:
    try:
        found = getattr(import_module("google_crc32c"), "implementation", "unknown")
    except ImportError:
        found = "missing"
    hint = "pip install --force-reinstall google-crc32c (in pure Python it is slow)"
    return _row("crc32c in hardware", found == "c", found, hint)


def _graph(settings: Settings) -> Row:
    try:
        found = graph_of(settings).name
    except TurnstateError as error:
        return _row("dialogue graph", False, error, "mend the file, or unset graph")
    return _row("dialogue graph", True, found, "")


def _standing(folder: Path) -> Path:
    """Return the folder, or the nearest one above it that is there."""
    here = folder.absolute()
    while not here.exists() and here != here.parent:
        here = here.parent
    return here


def _folder(folder: Path) -> Row:
    here = _standing(folder)
    if not here.is_dir():
        return _row("data folder", False, f"{here} is a file", "name a folder")
    may = os.access(here, os.W_OK | os.X_OK)
    state = "holds a store" if (folder / STORE_FOLDER).is_dir() else "empty so far"
    return _row("data folder", may, f"{folder}: {state}", "name one you may write to")


def _disk(folder: Path) -> Row:
    free = shutil.disk_usage(_standing(folder)).free
    enough = free >= FREE_BYTES_MIN
    return _row("free disk", enough, f"{free >> 20} MiB", "make room: 1 GiB at least")


def _sync(folder: Path) -> Row:
    try:
        with tempfile.TemporaryFile(dir=_standing(folder)) as file:
            start = time.perf_counter()
            file.write(b"x" * 4096)
            file.flush()
            os.fsync(file.fileno())
            took = (time.perf_counter() - start) * 1000
    except OSError as error:
        return _row("fsync", False, error, "name a folder you may write to")
    hint = "each group commit waits for it: take a faster disk, or fsync=never"
    return _row("fsync", took < SLOW_SYNC_MS, f"{took:.2f} ms", hint)


def _files() -> Row:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = soft == resource.RLIM_INFINITY or soft >= FILES_MIN
    return _row("open files", enough, soft, f"ulimit -n {FILES_MIN}")
