"""Send to a Redis what a tier wants, one round trip for many sessions."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from redis.exceptions import NoScriptError

from turnstate.storage.hot.redis_connection import RedisSettings, connect
from turnstate.storage.hot.redis_failures import Guard, heeding
from turnstate.storage.hot.redis_keys import SessionKeys
from turnstate.storage.hot.redis_script import Script

Answer = TypeVar("Answer")

PAGE_KEYS: Final = 500
"""Keys that one SCAN looks at, about: some tenths of a millisecond."""


class Call(NamedTuple):
    """One call of a script.

    Attributes:
        keys: The keys of one session.
        arguments: What the script is given.
    """

    keys: SessionKeys
    arguments: Sequence[bytes | int]


class Link:
    """Talk to one server, the master behind Sentinels, or a Cluster, alike.

    Args:
        settings: Where it is, and its limits.
    """

    def __init__(self, settings: RedisSettings) -> None:
        self._client = connect(settings)
        self._guard = Guard(
            calls_max=settings.connections_max,
            longest_s=settings.longest_s,
            failures_max=settings.failures_max,
            rest_s=settings.rest_ms / 1000,
        )

    @property
    def rests(self) -> bool:
        """Say whether Redis is left alone, after failures."""
        return self._guard.rests

    async def values(self, names: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of many keys in one round trip (one a node).

        Raises:
            UnavailableError: Redis is away, too slow, or left alone.
        """
        if not names:
            return []
        if self._client.is_cluster:
            # A Cluster refuses an MGET over several slots.
            return await self.send([("GET", name) for name in names])
        commands = self._client.commands
        found: list[bytes | None] = await self._run(lambda: commands.mget(names))
        return found

    async def send(self, orders: Sequence[Sequence[Any]]) -> list[Any]:
        """Send commands in one round trip (one a node); return their answers.

        Raises:
            UnavailableError: as for `values`, or one of them failed.
        """
        return await self._run(lambda: self._send(orders, may_miss=False))

    async def evaluate(self, script: Script, calls: Sequence[Call]) -> list[Any]:
        """Run a script for many sessions in one round trip (one a node).

        A server that does not know the script, since it was restarted or
        became the master, is sent its text in a second one.

        Raises:
            UnavailableError: as for `send`.
        """
        if not calls:
            return []
        return await self._run(lambda: self._evaluate(script, calls))

    async def pages(self, pattern: bytes) -> AsyncIterator[list[bytes]]:
        """Yield the names of keys, by SCAN: each at least once, in no order.

        Raises:
            UnavailableError: as for `send`.
        """
        nodes: Sequence[Any] = (None,)
        if self._client.is_cluster:
            await self._run(self._client.commands.initialize)
            nodes = self._client.commands.get_primaries()
        for node in nodes:
            cursor: int | None = None
            while cursor != 0:
                call = partial(self._scan, node, cursor or 0, pattern)
                cursor, names = await self._run(call)
                yield names

    async def close(self) -> None:
        """Close every connection."""
        await self._client.close()

    async def _run(self, call: Callable[[], Awaitable[Answer]]) -> Answer:
        retry = self._client.retry

        async def retried() -> Answer:
            answer: Answer = await retry.call_with_retry(
                lambda: heeding(call), self._failed
            )
            return answer

        return await self._guard.run(retried)

    async def _scan(
        self, node: Any, cursor: int, pattern: bytes
    ) -> tuple[int, list[bytes]]:
        where: dict[str, Any] = {} if node is None else {"target_nodes": node}
        reached, names = await self._client.commands.scan(
            cursor, match=pattern, count=PAGE_KEYS, **where
        )
        # A Cluster's client gives the cursor of each node that was asked.
        return (reached if node is None else reached[node.name]), names

    async def _failed(self, _error: Exception) -> None:
        """Let a Cluster's client look anew which node has which slot."""
        if self._client.is_cluster:
            await self._client.commands.aclose()

    async def _evaluate(self, script: Script, calls: Sequence[Call]) -> list[Any]:
        answers = await self._send(
            [_order("EVALSHA", script.digest, call) for call in calls], may_miss=True
        )
        missed = [
            place
            for place, answer in enumerate(answers)
            if isinstance(answer, NoScriptError)
        ]
        if missed:
            again = await self._send(
                [_order("EVAL", script.text, calls[place]) for place in missed],
                may_miss=False,
            )
            for place, answer in zip(missed, again, strict=True):
                answers[place] = answer
        return answers

    async def _send(
        self, orders: Sequence[Sequence[Any]], *, may_miss: bool
    ) -> list[Any]:
        pipeline = self._client.commands.pipeline(transaction=False)
        for order in orders:
            pipeline.execute_command(*order)
        answers: list[Any] = await pipeline.execute(raise_on_error=False)
        for answer in answers:
            if isinstance(answer, Exception) and not (
                may_miss and isinstance(answer, NoScriptError)
            ):
                raise answer
        return answers


def _order(command: str, script: str, call: Call) -> tuple[Any, ...]:
    return (command, script, len(call.keys), *call.keys, *call.arguments)
