"""An async tier for callers that block: it runs on a loop in a thread of its own."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from turnstate.schemas.errors import UnavailableError
from turnstate.storage.stored_head import StoredHead
from turnstate.storage.tier import SessionChange

Answer = TypeVar("Answer")


class AsyncTier(Protocol):
    """The contract of `storage/tier.py`, for callers on an event loop."""

    @property
    def name(self) -> str:
        """Return hot, warm or cold, as answers show it."""
        ...

    @property
    def capabilities(self) -> frozenset[str]:
        """Return which optional parts of the contract it keeps."""
        ...

    async def heads(self, keys: Sequence[bytes]) -> list[StoredHead | None]:
        """Return the heads of many sessions at once, None for each unknown."""
        ...

    async def frames(
        self, key: bytes, incarnation: int, after_version: int
    ) -> list[bytes]:
        """Return frames that lead above a version, in order."""
        ...

    async def commit(self, changes: Sequence[SessionChange]) -> None:
        """Take all of the changes or none."""
        ...

    async def drop(self, key: bytes) -> None:
        """Forget a session."""
        ...

    async def keys(self, prefix: bytes = b"", after: bytes = b"") -> list[bytes]:
        """Return session keys in byte order, from above `after`."""
        ...

    async def close(self) -> None:
        """Let go of what it holds open."""
        ...


class BlockingTier:
    """Keep the contract of `Tier` by an async tier; safe from any thread.

    Each call costs two changes of thread (some tens of microseconds), so what
    runs on a loop uses the async tier itself.

    Args:
        tier: It is used on the loop of this object only, from here on.
    """

    def __init__(self, tier: AsyncTier) -> None:
        self._tier = tier
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name=f"{tier.name}-tier", daemon=True
        )
        self._thread.start()

    @property
    def name(self) -> str:
        """Return the name of the tier."""
        return self._tier.name

    @property
    def capabilities(self) -> frozenset[str]:
        """Return what the tier keeps of the optional parts."""
        return self._tier.capabilities

    def heads(self, keys: Sequence[bytes]) -> list[StoredHead | None]:
        """Return the heads of many sessions at once, None for each unknown."""
        return self.wait(self._tier.heads(keys))

    def frames(
        self, key: bytes, incarnation: int, after_version: int
    ) -> Iterator[bytes]:
        """Yield frames that lead above a version, in order."""
        yield from self.wait(self._tier.frames(key, incarnation, after_version))

    def commit(self, changes: Sequence[SessionChange]) -> None:
        """Take all of the changes or none.

        Raises:
            FencedError: a head is not the one that a change was decided from.
        """
        self.wait(self._tier.commit(changes))

    def drop(self, key: bytes) -> None:
        """Forget a session."""
        self.wait(self._tier.drop(key))

    def keys(self, prefix: bytes = b"", after: bytes = b"") -> Iterator[bytes]:
        """Yield session keys in byte order, from above `after`."""
        yield from self.wait(self._tier.keys(prefix, after))

    def wait(self, call: Coroutine[Any, Any, Answer]) -> Answer:
        """Return the answer of any call of the tier, or raise its error.

        Raises:
            UnavailableError: it was closed.
        """
        if self._loop.is_closed():
            call.close()
            raise UnavailableError(f"the {self.name} tier is closed", hint="open it")
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()

    def close(self) -> None:
        """Close the tier and end the thread; may be repeated."""
        if self._loop.is_closed():
            return
        try:
            self.wait(self._tier.close())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
