"""End every service whose folder is somewhere below a folder, as after a crash.

Example:
    ```
    python -m turnstate.infra.services.sweep /tmp/tests
    ```
"""

import sys
from pathlib import Path

from turnstate.infra.services import process as processes
from turnstate.infra.services.folder import RECORD_FILE, Folder


def sweep(root: Path) -> int:
    """Kill what runs; return how many.

    A process counts only with the start time of its record, so that one that
    got the same number later is left alone.
    """
    ended = 0
    for record in root.rglob(RECORD_FILE):
        process = Folder(record.parent.name, record.parent).record().process
        if process is not None and processes.is_running(process):
            processes.kill(process)
            ended += 1
    return ended


if __name__ == "__main__":
    for each in sys.argv[1:]:
        sweep(Path(each))
