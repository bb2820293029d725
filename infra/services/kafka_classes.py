"""Keep Kafka's classes in an archive that Java maps: a start in half the time."""

import hashlib
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from turnstate.infra.services import process as processes
from turnstate.infra.services.failures import ServiceError
from turnstate.infra.services.folder import Folder, held
from turnstate.infra.services.programs import Java
from turnstate.infra.services.ran import ran

_TRAIN_S: Final = 150.0
_CHECK_S: Final = 30.0
_QUIET: Final = ("-Xlog:disable", "-Xlog:all=error:stderr")
"""What an archive leaves out is no news."""

Train = Callable[[Path, Path], bool]
"""Run Kafka in a folder so that it writes an archive; say whether it ended well."""


def java_command(java: Java, jars: Sequence[Path]) -> list[str]:
    """Return how Java is started with Kafka's classes, before flags and class."""
    return [
        str(java.program),
        "-cp",
        ":".join(map(str, jars)),
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        "-Dorg.slf4j.simpleLogger.showDateTime=true",
        "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSX",
    ]


def flags(java: Java, jars: Sequence[Path], *, train: Train) -> list[str]:
    """Return what makes Java read the archive, which is made at the first call.

    Java itself checks that an archive fits it and the jars, and goes on
    without one that does not; so the worst that can happen is a slow start.
    The archive's name changes with both, and it is renamed into its place
    only when a Java that insists on it has started.

    Args:
        java: The Java that will run Kafka.
        jars: Its class path; the archive lies beside their folder.
        train: Runs Kafka once, for the archive.
    """
    cache = jars[0].parents[1]
    archive = cache / f"classes-{_key(java, jars)}.jsa"
    try:
        if not archive.exists():
            with held(cache / "lock", within_s=_TRAIN_S) as taken:
                if taken and not archive.exists():
                    _make(java, jars, archive, train)
        usable = archive.stat().st_size > 0
    except OSError:  # a cache that cannot be written, a full disk
        return []
    return [f"-XX:SharedArchiveFile={archive}", *_QUIET] if usable else []


def writing_flags(archive: Path) -> list[str]:
    """Return what makes Java write an archive when it ends in order."""
    return [f"-XX:ArchiveClassesAtExit={archive}", *_QUIET]


def _make(java: Java, jars: Sequence[Path], archive: Path, train: Train) -> None:
    cache = archive.parent
    for left in cache.glob(".train-*"):  # by a launcher that was killed
        process = Folder("kafka", left / "kafka").record().process
        if process is not None:
            processes.kill(process)
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=".train-", dir=cache) as scratch:
        made = Path(scratch) / "classes.jsa"
        try:
            good = train(Path(scratch) / "kafka", made)
        except ServiceError:
            good = False
        if not (good and made.exists() and _holds(java, jars, made)):
            # An empty one says that this Java cannot: it is not tried again.
            made.unlink(missing_ok=True)
            made.touch()
        made.rename(archive)


def _holds(java: Java, jars: Sequence[Path], archive: Path) -> bool:
    """Say whether a Java that may not go on without the archive starts with it."""
    insist = ["-Xshare:on", f"-XX:SharedArchiveFile={archive}"]
    insist += ["-XX:+UnlockDiagnosticVMOptions", "-XX:+VerifySharedSpaces"]
    tool = ["kafka.tools.StorageTool", "random-uuid"]
    try:
        done = ran([*java_command(java, jars), *insist, *tool], within_s=_CHECK_S)
    except OSError:
        return False
    return done.returncode == 0


def _key(java: Java, jars: Sequence[Path]) -> str:
    """Return a name that another Java, or jars put there anew, do not share."""
    found = hashlib.sha256(f"{java.home} {java.version}".encode())
    for path in (java.home / "lib" / "modules", *jars):
        about = path.stat()
        found.update(f" {path.name} {about.st_size} {about.st_mtime_ns}".encode())
    return found.hexdigest()[:16]
