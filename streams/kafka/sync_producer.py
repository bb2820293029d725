"""The producer for programs without a loop: the same methods, a thread of its own."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar

from turnstate.schemas.draft import Draft
from turnstate.schemas.errors import TurnstateError
from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.producer import AnyTurn, TurnProducer
from turnstate.streams.kafka.receipts import Ack, Headers, Receipt

T = TypeVar("T")


class LoopThread:
    """A loop in a thread of its own, for callers that have none."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Start some work there."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do some work there and wait for it; Ctrl-C ends both."""
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    @property
    def closed(self) -> bool:
        """Say whether it was ended."""
        return self._loop.is_closed()

    def close(self) -> None:
        """End the loop; work that is not done is cancelled."""
        if self.closed:
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self._loop.run_until_complete(
                asyncio.gather(*tasks, return_exceptions=True)
            )
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())


class SyncReceipt:
    """Stand for one turn that was taken; `result` waits for where it lies."""

    __slots__ = ("_receipt", "_thread")

    def __init__(self, receipt: Receipt, thread: LoopThread) -> None:
        self._receipt = receipt
        self._thread = thread

    @property
    def partition(self) -> int:
        """Return the partition, which is known before the acknowledgement."""
        return self._receipt.partition

    @property
    def done(self) -> bool:
        """Say whether it is acknowledged or failed."""
        return self._receipt.done

    def result(self, timeout_s: float | None = None) -> Ack:
        """Wait for the acknowledgement.

        Raises:
            TurnstateError: the turn was not delivered.
            TimeoutError: there is no answer yet.
        """
        if self._receipt.done:
            return self._receipt.result()
        return self._thread.submit(_awaited(self._receipt)).result(timeout_s)


class SyncTurnProducer:
    """`TurnProducer` for programs without a loop; of any number of threads.

    Turns are checked in the thread of the caller. `publish_many` is much
    faster than as many `publish`: it changes threads once.

    Args:
        settings: As of `TurnProducer`.
        options: As of `TurnProducer`.

    Example:
        ::

            with SyncTurnProducer(ClusterSettings.load(data)) as producer:
                receipt = producer.publish(turn)
                producer.flush()
                print(receipt.result())
    """

    def __init__(self, settings: ClusterSettings, **options: Any) -> None:
        self.producer = TurnProducer(settings, **options)
        self.thread = LoopThread("turnstate-producer")
        try:
            self.thread.run(self.producer.start())
        except BaseException:
            self.thread.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close; after an error of the block its own is the one that is raised."""
        try:
            self.close()
        except TurnstateError:
            if error is None:
                raise

    def publish(
        self,
        turn: AnyTurn,
        *,
        traceparent: str | None = None,
        request_id: str | None = None,
    ) -> SyncReceipt:
        """Take a turn; see `TurnProducer.publish`."""
        return self._taken(
            lambda: self.producer.publish(
                turn, traceparent=traceparent, request_id=request_id
            )
        )

    def publish_many(self, turns: Iterable[AnyTurn]) -> list[SyncReceipt]:
        """Take turns in order; see `TurnProducer.publish_many`."""
        checked = [self.producer.checked(turn) for turn in turns]
        return self.publish_checked(checked)

    def publish_checked(
        self, turns: Iterable[tuple[bytes, Draft]]
    ) -> list[SyncReceipt]:
        """Take turns that went through `producer.checked`."""
        receipts = self.thread.run(self.producer.publish_checked(turns))
        return [SyncReceipt(receipt, self.thread) for receipt in receipts]

    def publish_raw(
        self,
        raw: bytes | None,
        key: bytes | None,
        *,
        partition: int | None = None,
        headers: Headers = (),
        topic: str | None = None,
    ) -> SyncReceipt:
        """Take bytes as they are; see `TurnProducer.publish_raw`."""
        return self._taken(
            lambda: self.producer.publish_raw(
                raw, key, partition=partition, headers=headers, topic=topic
            )
        )

    def refuse(
        self,
        raw: bytes,
        error: TurnstateError,
        *,
        key: bytes | None = None,
        trace: str | None = None,
        attempt: int = 0,
    ) -> SyncReceipt:
        """Put what is no turn among the dead letters; see `TurnProducer.refuse`."""
        return self._taken(
            lambda: self.producer.refuse(
                raw, error, key=key, trace=trace, attempt=attempt
            )
        )

    def flush(self) -> None:
        """Wait for every acknowledgement; see `TurnProducer.flush`."""
        self.thread.run(self.producer.flush())

    def close(self) -> None:
        """Flush, then end; see `TurnProducer.close`."""
        if self.thread.closed:
            return
        try:
            self.thread.run(self.producer.close())
        finally:
            self.thread.close()

    def _taken(self, take: Callable[[], Coroutine[Any, Any, Receipt]]) -> SyncReceipt:
        return SyncReceipt(self.thread.run(take()), self.thread)


async def _awaited(receipt: Receipt) -> Ack:
    return await receipt
