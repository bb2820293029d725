"""Keep entities near a server: the feed tells of new ones, a miss asks the store."""

import asyncio
from collections import OrderedDict
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

from turnstate.agents.ports import Clock
from turnstate.agents.tiering.entities import entity_value
from turnstate.agents.tiering.layers import ENTITY_LAYER, LayeredCache, MemoryLayer
from turnstate.schemas.errors import NotFoundError
from turnstate.schemas.ids import SessionName
from turnstate.schemas.limits import COUNTER_MAX
from turnstate.streams.clock import SystemClock
from turnstate.streams.documents import Document, from_json, to_json
from turnstate.streams.embedded.events import START

if TYPE_CHECKING:
    from turnstate.streams.client import AsyncClient

ENTITIES_MAX: Final = 10_000
"""Kept near, the ones used last: some kilobytes each."""


class EntityLayer:
    """Answer what a session has become, mostly without asking anybody (B10).

    The entity layer is long-lived and read through: what was loaded stays until
    the feed tells of something newer, and a thousand who ask for one session at
    once cause one load. So it is used only while `follow` runs; without, every
    question goes to the store. An entity is not older than the last ten versions
    of its session that the feed has told of, and says its version.

    Used on one event loop.

    Args:
        client: Of a store or of a cluster; not closed with this.
        clock: For expiry; the machine's where None.
        entities_max: How many are kept.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from turnstate.streams.client import AsyncClient
        >>> async def main(folder: str) -> int:
        ...     async with await AsyncClient.open(folder) as client:
        ...         turn = {"tenant": "t", "session": "s", "role": "user"}
        ...         await client.publish(turn)
        ...         return (await EntityLayer(client).entity("t", "s"))["version"]
        >>> with TemporaryDirectory() as folder:
        ...     asyncio.run(main(folder))
        1
    """

    def __init__(
        self,
        client: "AsyncClient",
        clock: Clock | None = None,
        *,
        entities_max: int = ENTITIES_MAX,
    ) -> None:
        self._client = client
        self._store = _Store(client)
        self._cache = LayeredCache(
            ENTITY_LAYER,
            {"here": MemoryLayer(entities_max)},
            self._store,
            clock or SystemClock(),
        )
        self._following = 0
        self._entities_max = entities_max
        self._floors: OrderedDict[bytes, int] = OrderedDict()

    @property
    def loads(self) -> int:
        """Return how often the store was asked."""
        return self._store.loads

    async def entity(self, tenant: str, session: str) -> Document:
        """Return the state of a session without text, as upserts show it.

        Raises:
            NotFoundError: there is no such session.
        """
        key = SessionName(tenant, session).key()
        if self._following:
            found = await self._cache.read(key, at_least=self._floors.get(key, 0))
        else:
            found = await self._store.load(key)
        if found is None:
            raise NotFoundError(
                f"there is no session {session!r} of tenant {tenant!r}",
                field="session",
            )
        return from_json(found[1])

    async def follow(self, token: str | None = START) -> None:
        """Take what the feed tells, until cancelled.

        Args:
            token: Where to begin; from the beginning, so that nothing that was
                loaded before is missed.

        Raises:
            TurnstateError: the feed has failed; what is near is forgotten.
        """
        self._following += 1
        try:
            async with aclosing(self._client.entities(token=token)) as upserts:
                async for told in upserts:
                    await self._take(told)
        finally:
            self._following -= 1

    async def _take(self, told: Document) -> None:
        key = SessionName(told["tenant"], told["session"]).key()
        if told["entity"] is None:
            # A load that began before may come to its end after this.
            self._floors[key] = _rank(told["incarnation"] + 1, 0)
            if len(self._floors) > self._entities_max:
                self._floors.popitem(last=False)
            await self._cache.forget(key)
        else:
            rank = _rank(told["incarnation"], told["version"])
            await self._cache.write(key, rank, to_json(told["entity"]))


class _Store:
    """What lies below the layer: the store, or the workers, by their heads."""

    def __init__(self, client: "AsyncClient") -> None:
        self.loads = 0
        self._client = client

    async def load(self, key: bytes) -> tuple[int, bytes] | None:
        """Return what a session has become by now, None where there is none."""
        self.loads += 1
        name = SessionName.from_key(key)
        store = self._client.client.store
        try:
            head = await asyncio.to_thread(store.head, *name)
        except NotFoundError:
            return None
        return _rank(head.incarnation, head.version), entity_value(key, head)

    async def save(self, key: bytes, version: int, value: bytes) -> None:
        """Take nothing: what is written to the layer came from here."""


def _rank(incarnation: int, version: int) -> int:
    """Return what is greater for whatever is newer, in a later life too."""
    return incarnation * (COUNTER_MAX + 1) + version
