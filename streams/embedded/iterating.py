"""Iterate in a thread of its own, for asyncio."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_T = TypeVar("_T")


async def in_thread(
    begin: Callable[[Callable[[], bool]], Iterator[_T]],
) -> AsyncGenerator[_T]:
    """Yield what an iterator yields in a thread of its own.

    One item is asked for at a time, so a slow reader holds the iterator back.
    """
    loop = asyncio.get_running_loop()
    stop = threading.Event()
    thread = ThreadPoolExecutor(1, "turnstate-subscription")
    rows = begin(stop.is_set)
    try:
        while True:
            found = await loop.run_in_executor(thread, _next, rows)
            if found is None:
                return
            yield found[0]
    finally:
        stop.set()
        # After the `next` that may still be under way: it looks at `stop`.
        close = getattr(rows, "close", None)
        if close is not None:
            thread.submit(close)
        thread.shutdown(wait=False)


def _next(rows: Iterator[_T]) -> tuple[_T] | None:
    """Return the next row; None behind the last, which no future can raise."""
    for row in rows:
        return (row,)
    return None
