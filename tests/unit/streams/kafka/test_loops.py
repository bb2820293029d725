"""The loop of a worker: a connection that is gone is an OSError, as in asyncio."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from turnstate.streams.kafka.loops import new_loop


def _run(main: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main)


def test_a_write_to_a_connection_that_is_gone_is_an_os_error() -> None:
    async def write_after_the_end() -> None:
        async def hang_up(_: Any, writer: asyncio.StreamWriter) -> None:
            writer.transport.abort()

        server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(asyncio.Protocol, host, port)
        while not transport.is_closing():
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.05)  # uvloop closes the handle a little later
        with pytest.raises(ConnectionResetError):
            transport.write(b"too late")
        server.close()
        await server.wait_closed()

    pytest.importorskip("uvloop")
    _run(write_after_the_end())


def test_a_connection_that_stands_carries_what_is_written() -> None:
    async def echo_once() -> None:
        async def echo(reader: asyncio.StreamReader, writer: Any) -> None:
            writer.write(await reader.readexactly(5))
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        writer.close()
        await writer.wait_closed()
        server.close()
        await server.wait_closed()

    _run(echo_once())
