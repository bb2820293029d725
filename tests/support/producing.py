"""Publish dialogues to Kafka at a rate until told to end: `producing.py BROKERS TOPIC`.

Further arguments: seed, turns a second, how many of 100 are sent twice. Says on
standard output, one line each, what the brokers have: `[partition, offset,
tenant, session, turn id]`.
"""

import asyncio
import os
import signal
import sys
from itertools import islice
from random import Random
from typing import Any, Final

import msgspec
from aiokafka import AIOKafkaProducer

from support.dialogues import endless_turns
from turnstate.schemas.wire.json import draft_from_json

TICK_S: Final = 0.01
DELIVERY_S: Final = 120
"""A broker that is killed comes back long before."""


class Source:
    """Send turns as any producer would, each keyed by its session."""

    def __init__(self, producer: Any, topic: str) -> None:
        self.producer = producer
        self.topic = topic
        self.waiting: set[asyncio.Future[Any]] = set()

    async def send(self, line: bytes) -> None:
        """Hand over a turn; what becomes of it is said once it is known."""
        draft = draft_from_json(line)
        told = (*draft.name, draft.turn_id)
        sent: asyncio.Future[Any] = await self.producer.send(
            self.topic, line, key=draft.key
        )
        self.waiting.add(sent)

        def said(done: "asyncio.Future[Any]") -> None:
            self.waiting.discard(done)
            # A failure ends this process: the test must not go on without turns.
            kept = done.result()
            row = msgspec.json.encode((kept.partition, kept.offset, *told))
            os.write(1, row + b"\n")

        sent.add_done_callback(said)


async def publish(brokers: str, topic: str, seed: int, rate: int, again: int) -> None:
    """Publish until SIGTERM, then wait for what is on its way."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    failed: list[Any] = []

    def failing(_: Any, context: Any) -> None:
        failed.append(context)
        stop.set()

    loop.set_exception_handler(failing)
    chance = Random(seed)
    lines = endless_turns(seed)
    async with AIOKafkaProducer(
        bootstrap_servers=brokers,
        enable_idempotence=True,
        linger_ms=2,
        request_timeout_ms=1000 * DELIVERY_S,
    ) as producer:
        source = Source(producer, topic)
        began, count = loop.time(), 0
        while not stop.is_set():
            due = int((loop.time() - began) * rate) - count
            for line in islice(lines, max(due, 0)):
                await source.send(line)
                count += 1
                if chance.randrange(100) < again:
                    await source.send(line)
            await asyncio.sleep(TICK_S)
        await producer.flush()
        while source.waiting and not failed:
            await asyncio.sleep(TICK_S)
    if failed:
        raise RuntimeError(failed[0])


if __name__ == "__main__":
    at, name, *numbers = sys.argv[1:]
    asyncio.run(publish(at, name, *map(int, numbers)))
