"""Which event loop a worker runs on: uvloop where it is installed."""

import asyncio
from collections.abc import Coroutine
from typing import Any


def new_loop() -> asyncio.AbstractEventLoop:
    """Return a new loop; uvloop's takes a third less time for the same sockets."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()

    class Loop(uvloop.Loop):
        """Make connections that break as the callers of asyncio's expect."""

        async def create_connection(self, *args: Any, **kwargs: Any) -> Any:
            """Connect; return (transport, protocol)."""
            transport, protocol = await super().create_connection(*args, **kwargs)
            return BrokenAsAsyncio(transport), protocol

    return Loop()


class BrokenAsAsyncio:
    """Say of a connection that is gone what asyncio says, not what uvloop does.

    A write to one whose handle is closed raises RuntimeError in uvloop.
    aiokafka looks for OSError, so one lost connection to a broker ended the
    tasks that fetch, send and beat (seen with a broker that was killed).

    Args:
        transport: Of uvloop.
    """

    def __init__(self, transport: Any) -> None:
        self._transport = transport

    def write(self, data: bytes) -> None:
        """Write.

        Raises:
            ConnectionResetError: the connection is gone.
        """
        try:
            self._transport.write(data)
        except RuntimeError as error:
            if not self._transport.is_closing():
                raise
            raise ConnectionResetError(str(error)) from error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end on such a loop."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main)
