"""Fetch Kafka's jars by Maven once, and keep them where all projects find them."""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

from turnstate.infra.services import programs
from turnstate.infra.services.failures import MissingProgramError, ServiceError
from turnstate.infra.services.folder import held
from turnstate.infra.services.ran import ran

KAFKA_VERSION: Final = "4.4.0"
FILES: Final = Path(__file__).parents[1] / "kafka"
"""The pom and the properties, beside the code."""

_FETCH_S: Final = 600.0
_LINES: Final = 3


def cache_folder() -> Path:
    """Return the folder of this user's cache; XDG_CACHE_HOME moves it."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "turnstate" / f"kafka-{KAFKA_VERSION}"


def are_fetched(cache: Path | None = None) -> bool:
    """Say whether Kafka is here, so that Maven is not needed."""
    return ((cache or cache_folder()) / "lib").is_dir()


def kafka_jars(java: programs.Java, cache: Path | None = None) -> list[Path]:
    """Return Kafka's class path, fetched first where it is not here.

    Two processes do not fetch at once, and a fetch that was cut off counts
    for nothing: it lies in a folder of another name.

    Args:
        java: What Maven runs with.
        cache: Where the jars are kept; the user's cache if not given.

    Raises:
        MissingProgramError: Maven is not here, or could not fetch; its words
            are told.
        ServiceError: another fetch takes too long.
    """
    cache = cache or cache_folder()
    library = cache / "lib"
    if not library.is_dir():
        with held(cache / "lock", within_s=_FETCH_S) as taken:
            if not taken:
                raise ServiceError("kafka", f"another fetch holds {cache}")
            if not library.is_dir():
                _fetch(java, cache, library)
    # In order, since the archive of classes is bound to it.
    return sorted(library.glob("*.jar"))


def _fetch(java: programs.Java, cache: Path, library: Path) -> None:
    maven = programs.maven()
    for left in cache.glob(".fetch-*"):  # by a launcher that was killed
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=cache) as scratch:
        # Maven may write beside the pom, which may be read-only where it is.
        pom = shutil.copy(FILES / "pom.xml", scratch)
        fetched = Path(scratch) / "lib"
        argv = [str(maven), "-q", "-B", "--strict-checksums", "-f", str(pom)]
        argv += ["dependency:copy-dependencies", "-DincludeScope=runtime"]
        try:
            done = ran(
                [*argv, f"-DoutputDirectory={fetched}"],
                within_s=_FETCH_S,
                folder=Path(scratch),
                environment=java.environment(),
            )
        except OSError as error:
            raise _not_fetched(str(error)) from error
        if done.returncode or not any(fetched.glob(f"kafka_*-{KAFKA_VERSION}.jar")):
            said = (done.stdout + done.stderr).strip().splitlines()
            raise _not_fetched(" | ".join(said[:_LINES]))
        fetched.rename(library)


def _not_fetched(why: str) -> MissingProgramError:
    return MissingProgramError(
        "kafka",
        f"Maven could not fetch Kafka: {why}",
        hint="look at the network and at Maven's settings, then try again",
    )
