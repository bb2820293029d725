"""What packs say of their sessions: filters of all, indexes of those used last."""

import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from turnstate.storage.cold.bloom import Bloom
from turnstate.storage.cold.objects import ObjectStore
from turnstate.storage.cold.pack import (
    Entry,
    Tail,
    decode_bloom,
    decode_index,
    decode_tail,
)

_END_BYTES: Final = 64 << 10
"""Read first of a pack's end: tail and filter of 50 000 sessions, or all of a
small footer."""

_INDEX_ENTRIES_KEPT: Final = 100_000
"""Of decoded indexes, about 300 bytes each."""


class Looks(NamedTuple):
    """What looking for sessions by key has cost so far.

    Attributes:
        packs: Packs that were in question.
        spared: Of them those whose filter said no: their index was not read.
        misled: Of them those whose filter said yes, and it was not there.
    """

    packs: int = 0
    spared: int = 0
    misled: int = 0


class _Known(NamedTuple):
    tail: Tail
    bloom: Bloom


class Footers:
    """Read footers of packs, each part once; safe from several threads.

    A filter is ten bits a session and is kept; indexes are kept as far as
    there is room.

    Args:
        objects: Where the packs are.
    """

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._lock = threading.Lock()
        self._known: dict[str, _Known] = {}
        self._indexes: OrderedDict[str, dict[bytes, Entry]] = OrderedDict()
        self._kept = 0
        self.looks = Looks()

    def entry(self, pack: str, key: bytes) -> Entry | None:
        """Return what a pack has of a session: at first two requests, then none.

        Raises:
            NotFoundError: the pack is gone.
            CorruptDataError: its footer is damaged.
        """
        known = self._footer(pack)
        is_spared = not known.bloom.may_hold(key)
        entry = None if is_spared else self._index(pack, known.tail).get(key)
        is_misled = entry is None and not is_spared
        with self._lock:
            packs, spared, misled = self.looks
            self.looks = Looks(packs + 1, spared + is_spared, misled + is_misled)
        return entry

    def index(self, pack: str) -> dict[bytes, Entry]:
        """Return the index of a pack by key, in the order of its images.

        Raises:
            NotFoundError: the pack is gone.
            CorruptDataError: its footer is damaged.
        """
        return self._index(pack, self._footer(pack).tail)

    def learn(self, pack: str, tail: Tail, bloom: Bloom) -> None:
        """Remember the footer of a pack that was just written."""
        with self._lock:
            self._known[pack] = _Known(tail, bloom)

    def forget(self, packs: Iterable[str]) -> None:
        """Drop what is remembered of packs that are gone."""
        with self._lock:
            for name in packs:
                self._known.pop(name, None)
                self._kept -= len(self._indexes.pop(name, ()))

    def forget_all_but(self, packs: Collection[str]) -> None:
        """Drop what is remembered of other packs, once they are the more."""
        with self._lock:
            gone = [name for name in self._known if name not in packs]
        if len(gone) > len(packs):
            self.forget(gone)

    def _footer(self, pack: str) -> _Known:
        known = self._known.get(pack)
        return self._opened(pack) if known is None else known

    def _opened(self, pack: str) -> _Known:
        """Read a pack's last bytes: tail and filter, with luck the index too."""
        data = self._objects.read_end(pack, _END_BYTES)
        tail = decode_tail(data)
        behind_index = tail.footer_bytes - tail.index_bytes
        if len(data) < behind_index:
            data = self._objects.read_end(pack, behind_index)
        at = max(len(data) - behind_index, 0)
        known = _Known(tail, decode_bloom(tail, data[at : at + tail.bloom_bytes]))
        if at >= tail.index_bytes:
            self._keep(pack, decode_index(tail, data[at - tail.index_bytes : at]))
        with self._lock:
            self._known[pack] = known
        return known

    def _index(self, pack: str, tail: Tail) -> dict[bytes, Entry]:
        with self._lock:
            kept = self._indexes.get(pack)
            if kept is not None:
                self._indexes.move_to_end(pack)
                return kept
        data = self._objects.read(pack, tail.body_bytes, tail.index_bytes)
        return self._keep(pack, decode_index(tail, data))

    def _keep(self, pack: str, entries: list[Entry]) -> dict[bytes, Entry]:
        index = {entry.key: entry for entry in entries}
        with self._lock:
            self._kept += len(index) - len(self._indexes.pop(pack, ()))
            self._indexes[pack] = index
            while self._kept > _INDEX_ENTRIES_KEPT and len(self._indexes) > 1:
                _, gone = self._indexes.popitem(last=False)
                self._kept -= len(gone)
        return index
