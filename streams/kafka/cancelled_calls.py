"""Tell a call that was cancelled from a caller that was."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager


class CallCancelledError(Exception):
    """What was awaited was cancelled by others, as clients do in a rebalance."""


@contextmanager
def calls_may_be_cancelled() -> Generator[None]:
    """Raise `CallCancelledError` where only what is awaited was cancelled.

    A task that lets such a CancelledError through ends without a word: Faust
    takes it for a task that was told to end, and the worker lives on without
    its fetcher, its commits or its recovery.

    Raises:
        CallCancelledError: the running task itself was not cancelled.
    """
    try:
        yield
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise CallCancelledError(repr(error)) from error
