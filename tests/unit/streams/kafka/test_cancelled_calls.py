"""A call that was cancelled is an error; a caller that was cancelled ends."""

import asyncio

import pytest

from turnstate.streams.kafka.cancelled_calls import (
    CallCancelledError,
    calls_may_be_cancelled,
)


def test_a_call_that_others_cancel_is_an_error_of_its_caller() -> None:
    async def main() -> None:
        answer = asyncio.get_running_loop().create_future()
        answer.cancel()
        with pytest.raises(CallCancelledError), calls_may_be_cancelled():
            await answer

    asyncio.run(main())


def test_a_caller_that_is_cancelled_ends() -> None:
    async def waits() -> None:
        with calls_may_be_cancelled():
            await asyncio.Event().wait()

    async def main() -> None:
        task = asyncio.create_task(waits())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
