"""Where a store was backed up to: an erase has to look there, too."""

from typing import TYPE_CHECKING, Final

import msgspec

from turnstate.storage.warm.tables import META

if TYPE_CHECKING:
    from turnstate.streams.embedded.store import EmbeddedStore

PLACES_KEY: Final = b"backup_places"
"""Row of the store: every place that it was ever backed up to."""


def places(store: "EmbeddedStore") -> list[str]:
    """Return the places that a store was backed up to."""
    row = store.warm.meta(PLACES_KEY)
    return [] if row is None else msgspec.msgpack.decode(row, type=list[str])


def remember_place(store: "EmbeddedStore", where: str) -> None:
    """Note a place, so that an erase looks there; before anything is sent."""
    if where in places(store):
        return

    def note() -> None:
        batch = store.warm.batch()
        rows = msgspec.msgpack.encode(sorted({*places(store), where}))
        batch.put_local(META, PLACES_KEY, rows)
        store.warm.write(batch, sync=True)

    store.engine.call(note).result()
