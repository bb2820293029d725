"""Three layers of a cache over sessions (B10): what lives how long, where, how."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, Literal, NamedTuple, Protocol

from turnstate.agents.ports import Clock
from turnstate.schemas.errors import InvalidInputError, TurnstateError

LayerName = Literal["session", "context", "entity"]
"""From the shortest-lived to the longest."""


@dataclass(frozen=True, kw_only=True)
class LayerRule:
    """How one layer behaves.

    Attributes:
        name: The layer.
        ttl_ms_min: How long an entry lives that was never used; None = until a
            newer version replaces it.
        ttl_ms_max: How long one lives at most that is used often.
        write: `through`: the source has it before the cache does. `behind`:
            the cache at once, the source at the next flush.
        read: `aside`: a miss is loaded by the reader and put in. `through`:
            the layer loads it, once for all who wait.
        placed: Whether a key has one node among several.
    """

    name: LayerName
    ttl_ms_min: int | None
    ttl_ms_max: int | None
    write: Literal["through", "behind"]
    read: Literal["aside", "through"]
    placed: bool

    def ttl_ms(self, uses: int) -> int | None:
        """Return how long an entry lives after it was put in.

        Each use recently doubles it, up to the most that the layer allows.

        Example:
            >>> [CONTEXT_LAYER.ttl_ms(uses) // 60_000 for uses in (0, 1, 2, 9)]
            [30, 60, 120, 120]
        """
        if self.ttl_ms_min is None or self.ttl_ms_max is None:
            return None
        return min(self.ttl_ms_max, self.ttl_ms_min << min(max(uses, 0), 30))


SESSION_LAYER: Final = LayerRule(
    name="session",
    ttl_ms_min=5 * 60_000,
    ttl_ms_max=5 * 60_000,
    write="through",
    read="aside",
    placed=False,
)
CONTEXT_LAYER: Final = LayerRule(
    name="context",
    ttl_ms_min=30 * 60_000,
    ttl_ms_max=120 * 60_000,
    write="behind",
    read="aside",
    placed=True,
)
ENTITY_LAYER: Final = LayerRule(
    name="entity",
    ttl_ms_min=None,
    ttl_ms_max=None,
    write="through",
    read="through",
    placed=False,
)
LAYERS: Final[Mapping[LayerName, LayerRule]] = {
    rule.name: rule for rule in (SESSION_LAYER, CONTEXT_LAYER, ENTITY_LAYER)
}


def placed_on(key: bytes, nodes: Sequence[str]) -> str:
    """Return the node of a key by rendezvous hashing.

    Every node's score of the key is hashed, the highest has it: a node that
    goes takes only its own keys with it, and they spread over all others.

    Raises:
        InvalidInputError: there is no node.

    Example:
        >>> nodes = ["a", "b", "c"]
        >>> moved = [
        ...     number for number in range(1_000)
        ...     if placed_on(b"%d" % number, nodes)
        ...     != placed_on(b"%d" % number, nodes[:2])
        ... ]
        >>> all(placed_on(b"%d" % number, nodes) == "c" for number in moved)
        True
    """
    if not nodes:
        raise InvalidInputError(
            "there is no node to place a session on",
            field="nodes",
            hint="name at least one",
        )
    return max(nodes, key=lambda node: (_score(key, node), node))


def _score(key: bytes, node: str) -> bytes:
    name = node.encode()
    return blake2b(len(name).to_bytes(4, "big") + name + key, digest_size=8).digest()


class Entry(NamedTuple):
    """What a layer holds under a key.

    Attributes:
        version: The session's version that it shows; newer replaces older.
        value: The bytes.
        expires_ms: From then on it is not served; None = never.
    """

    version: int
    value: bytes
    expires_ms: int | None = None

    def is_served(self, now_ms: int, at_least: int = 0) -> bool:
        """Say whether it may be shown to who wants a version or a later one."""
        late = self.expires_ms is not None and now_ms >= self.expires_ms
        return not late and self.version >= at_least


class LayerStore(Protocol):
    """One place of a layer: a part of Redis, of memory, one node."""

    async def get(self, key: bytes) -> Entry | None:
        """Return what is there."""
        ...

    async def put(self, key: bytes, entry: Entry) -> None:
        """Put an entry in, unless a newer version is there."""
        ...

    async def delete(self, key: bytes) -> None:
        """Remove what is there, if anything."""
        ...


class Source(Protocol):
    """What lies below a layer and is never wrong: the tiers, the entity topic."""

    async def load(self, key: bytes) -> tuple[int, bytes] | None:
        """Return (version, value), None for what is not known."""
        ...

    async def save(self, key: bytes, version: int, value: bytes) -> None:
        """Take a value durably, unless a newer version is there."""
        ...


class MemoryLayer:
    """Hold the entries of a layer in memory, the ones used last.

    Args:
        entries_max: How many.
    """

    def __init__(self, entries_max: int) -> None:
        self.entries_max = entries_max
        self._entries: OrderedDict[bytes, Entry] = OrderedDict()

    async def get(self, key: bytes) -> Entry | None:
        """Return what is there."""
        found = self._entries.get(key)
        if found is not None:
            self._entries.move_to_end(key)
        return found

    async def put(self, key: bytes, entry: Entry) -> None:
        """Put an entry in, unless a newer version is there."""
        there = self._entries.get(key)
        if there is not None and there.version > entry.version:
            return
        self._entries[key] = entry
        self._entries.move_to_end(key)
        while len(self._entries) > self.entries_max:
            self._entries.popitem(last=False)

    async def delete(self, key: bytes) -> None:
        """Remove what is there, if anything."""
        self._entries.pop(key, None)


class LayeredCache:
    """Read and write one layer by its rule, over given stores.

    Used on one event loop. An entry that has expired, or is older than what is
    asked for, counts as a miss; a store that fails does too, since it is never
    the only copy: what a source says is what holds.

    Args:
        rule: The layer.
        stores: Node → store; one node where the layer is not placed.
        source: What lies below.
        clock: For expiry.
        behind_max: How many writes may wait for a flush; the next one flushes
            first, so that memory is bounded and a slow source is felt.
        uses: How often a key was used lately; longer-lived then.
    """

    def __init__(
        self,
        rule: LayerRule,
        stores: Mapping[str, LayerStore],
        source: Source,
        clock: Clock,
        *,
        behind_max: int = 1024,
        uses: Callable[[bytes], int] = lambda _key: 0,
    ) -> None:
        assert rule.placed or len(stores) == 1, "only a placed layer has nodes"
        self.rule = rule
        self.behind_max = behind_max
        self.store_failures = 0
        self._stores = stores
        self._nodes = sorted(stores)
        self._source = source
        self._clock = clock
        self._uses = uses
        self._behind: OrderedDict[bytes, tuple[int, bytes]] = OrderedDict()
        self._loading: dict[bytes, asyncio.Future[tuple[int, bytes] | None]] = {}

    @property
    def waiting(self) -> int:
        """Return how many writes wait for a flush."""
        return len(self._behind)

    async def read(self, key: bytes, *, at_least: int = 0) -> tuple[int, bytes] | None:
        """Return (version, value); from below where the layer has none to show.

        Raises:
            TurnstateError: the source has failed.
        """
        behind = self._behind.get(key)
        if behind is not None and behind[0] >= at_least:
            return behind
        now_ms = self._clock.now_ms()
        entry = await self._guarded(self._store(key).get(key))
        if entry is not None and entry.is_served(now_ms, at_least):
            return entry.version, entry.value
        if self.rule.read == "through":
            return await self._loaded_once(key)
        return await self._loaded(key)

    async def write(self, key: bytes, version: int, value: bytes) -> None:
        """Put a newer version in, through to the source or behind.

        Raises:
            TurnstateError: the source has failed; write-through has then
                changed nothing.
        """
        if self.rule.write == "through":
            await self._source.save(key, version, value)
        else:
            there = self._behind.get(key)
            if there is not None and there[0] >= version:
                return
            if there is None and len(self._behind) >= self.behind_max:
                await self.flush()
            self._behind[key] = (version, value)
            self._behind.move_to_end(key)
        await self._put(key, version, value)

    async def flush(self) -> int:
        """Write to the source what waits, oldest first; return how many.

        A version that came while its older one was being written waits on.

        Raises:
            TurnstateError: the source has failed; what is not written waits on.
        """
        written = 0
        for key, (version, value) in list(self._behind.items()):
            await self._source.save(key, version, value)
            written += 1
            there = self._behind.get(key)
            if there is not None and there[0] <= version:
                del self._behind[key]
        return written

    async def forget(self, key: bytes) -> None:
        """Remove a key from the layer, and what waits of it: it was erased.

        Raises:
            TurnstateError: a store has failed; it may still hold it.
        """
        self._behind.pop(key, None)
        for store in self._stores.values():
            await store.delete(key)

    def _store(self, key: bytes) -> LayerStore:
        return self._stores[placed_on(key, self._nodes)]

    async def _loaded_once(self, key: bytes) -> tuple[int, bytes] | None:
        """Load a key; whoever comes meanwhile waits for the same answer."""
        under_way = self._loading.get(key)
        if under_way is None:
            under_way = asyncio.ensure_future(self._loaded(key))
            self._loading[key] = under_way
            under_way.add_done_callback(lambda _done: self._loading.pop(key, None))
        return await asyncio.shield(under_way)

    async def _loaded(self, key: bytes) -> tuple[int, bytes] | None:
        found = await self._source.load(key)
        if found is not None:
            await self._put(key, *found)
        return found

    async def _put(self, key: bytes, version: int, value: bytes) -> None:
        ttl_ms = self.rule.ttl_ms(self._uses(key))
        expires_ms = None if ttl_ms is None else self._clock.now_ms() + ttl_ms
        entry = Entry(version, value, expires_ms)
        await self._guarded(self._store(key).put(key, entry))

    async def _guarded(self, call: Awaitable[Entry | None]) -> Entry | None:
        try:
            return await call
        except TurnstateError:
            self.store_failures += 1
            return None
