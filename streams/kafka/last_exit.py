"""End the process for certain where an orderly end takes too long."""

import os
import sys
import threading
from collections.abc import Callable

from turnstate.schemas.errors import UnavailableError


class LastExit:
    """Exit at a deadline, with a last line, unless it is called off.

    A time limit of asyncio is none where the loop itself waits for a thread,
    as Faust's does for that of its consumer; and a thread that does not end
    holds the process after its last statement. A restart repeats what was not
    done: this is a crash at a time of our own choice.

    Args:
        within_s: From now.
        why: Gives the last line.
        leave: Ends the process with an exit code.
    """

    def __init__(
        self,
        within_s: float,
        why: Callable[[], str],
        leave: Callable[[int], object] = os._exit,
    ) -> None:
        self._why = why
        self._leave = leave
        self._timer = threading.Timer(within_s, self._exit)
        self._timer.daemon = True
        self._timer.start()

    def call_off(self) -> None:
        """Let the process go on."""
        self._timer.cancel()

    def _exit(self) -> None:
        sys.stderr.write(f"error: {self._why()}\n")
        sys.stderr.flush()
        self._leave(UnavailableError.exit_code)
