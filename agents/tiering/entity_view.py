"""Know which entity upserts are news, in whatever order, however often they come."""

from collections import OrderedDict
from typing import Final

from turnstate.agents.tiering.entities import EntityUpsert

SESSIONS_KNOWN_MAX: Final = 1 << 20
"""Sessions whose newest upsert is remembered, those that were told of last."""


class EntityView:
    """Tell the upserts that are newer than all before them from those that are not.

    A worker that crashed sends upserts again, and one that was replaced may
    send an old one late. What is news is told by incarnation, boundary and
    version alone, so whoever has taken the same upserts ends with the same
    entities (tests/property/test_entity_laws.py). About 150 bytes a session.

    Args:
        keys_max: How many sessions are remembered. Of one that was forgotten
            anything is news.

    Example:
        >>> view = EntityView()
        >>> first = EntityUpsert(b"k", 1, 10, b"{}", 10)
        >>> gone = EntityUpsert(b"k", 1, 0, None)
        >>> [view.is_news(each) for each in (first, first, gone, first)]
        [True, False, True, False]
    """

    def __init__(self, keys_max: int = SESSIONS_KNOWN_MAX) -> None:
        self.keys_max = keys_max
        self._known: OrderedDict[bytes, tuple[int, int, int]] = OrderedDict()

    def is_news(self, upsert: EntityUpsert) -> bool:
        """Take an upsert; say whether it is newer than all that came before."""
        known = self._known.get(upsert.key)
        if known is not None and upsert.rank <= known:
            return False
        self._known[upsert.key] = upsert.rank
        self._known.move_to_end(upsert.key)
        if len(self._known) > self.keys_max:
            self._known.popitem(last=False)
        return True
