"""Run a program to its end, with a time limit, and hear what it says."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


def ran(
    argv: Sequence[str | Path],
    *,
    within_s: float,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> "subprocess.CompletedProcess[str]":
    """Return how a program ended, whatever its exit code.

    Args:
        argv: The program and its words, all of our own; no shell reads them.
        within_s: After that it is ended.
        folder: Where it runs; here where None.
        environment: All that it is given; ours where None.

    Raises:
        OSError: it cannot be started.
        TimeoutError: it did not end in time.
    """
    try:
        return subprocess.run(  # noqa: S603 - words of our own, see above
            list(map(str, argv)),
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=within_s,
        )
    except subprocess.TimeoutExpired as error:
        raise TimeoutError(f"{argv[0]} did not end in {within_s:.0f} s") from error
