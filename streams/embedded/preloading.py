"""When an embedded store asks ahead for rows: a session comes back, or is read."""

from collections.abc import Sequence
from typing import Final

from turnstate.storage.hot.memory import MemoryTier
from turnstate.storage.tier import SessionChange
from turnstate.storage.warm.preload import Preloader
from turnstate.storage.warm.rocksdb import WarmStore

PRELOADED_MAX: Final = 16
"""Sessions that come back with one group, and that wait to be read: a group that
brings back more is no conversation but catching up, and nobody reads along."""


class Preloading:
    """Ask for the rows of sessions that hot does not hold and that come into use.

    Reading ahead takes 0.4 to 1.2 ms a session in a thread of its own, which is
    ten times what it takes to fold a turn: hence the bound. Safe to use from
    several threads, but for `folded`.

    Args:
        store: The store; closed after this.
        hot: What is held here needs nothing.
        on: Whether anything is asked for at all.
    """

    def __init__(self, store: WarmStore, hot: MemoryTier, *, on: bool) -> None:
        self._hot = hot
        self.preloader = Preloader(store, waiting_max=PRELOADED_MAX) if on else None

    def folded(self, changes: Sequence[SessionChange]) -> None:
        """Be told of a committed group before hot is: a read is soon to follow."""
        if self.preloader is None or len(changes) > PRELOADED_MAX:
            return
        peek = self._hot.peek
        back = [
            each.key
            for each in changes
            if each.before.head.version and peek(each.key) is None
        ]
        if back:
            self.preloader.ask(back)

    def first_read(self, key: bytes) -> None:
        """Be told that a reader asked for a warm session that none asked for before."""
        if self.preloader is not None:
            self.preloader.ask([key])

    def close(self) -> None:
        """Read no more; return once nothing is being read. Twice is once."""
        if self.preloader is not None:
            self.preloader.close()
