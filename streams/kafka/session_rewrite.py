"""Make a session anew without what was redacted or a user said, beside the store."""

from typing import NamedTuple

from turnstate.agents.ports import Clock
from turnstate.agents.session.rebuild import refold
from turnstate.schemas.dialogue.phases import DialogueGraph
from turnstate.schemas.ids import SessionName, turn_id_hash
from turnstate.storage.repair import OneSession
from turnstate.storage.rewrite import without_redacted
from turnstate.storage.seal import sealed
from turnstate.storage.session_image import IndexRow, SessionImage
from turnstate.storage.session_reader import FrameStore, fold_all, operations
from turnstate.storage.stored_head import (
    StoredHead,
    encode_entry,
    encode_stored_head,
)
from turnstate.storage.warm.tables import VERSION_BYTES


class Rewritten(NamedTuple):
    """A session as it is to be.

    Attributes:
        image: All its rows; None where nothing in it has to go.
        stubs: What stands in the place of the operations that went, encoded.
    """

    image: SessionImage | None
    stubs: list[bytes]


def rewritten(
    store: FrameStore,
    key: bytes,
    stored: StoredHead,
    user: str | None,
    *,
    graph: DialogueGraph,
    log_name: str,
    clock: Clock,
) -> Rewritten:
    """Return a session, sealed, with stubs where text has to go.

    It folds to the same state under the same digest; only bytes differ.

    Args:
        store: Where it is read.
        key: The session key.
        stored: Its head.
        user: Whose operations go, beside what is redacted.
        graph: The dialogue graph.
        log_name: The name under which the log stamps.
        clock: For the times in the new segments.

    Raises:
        CorruptDataError: it is damaged, or changed meanwhile.
    """
    fold = fold_all(store, key, stored, graph)
    before = [op for _, op in operations(store, key, stored)]
    after = without_redacted(before, stored.head.redacted, fold.ids_changed, user)
    stubs = [op.record for op in after if op.body.hidden is not None]
    if after == before:
        return Rewritten(None, stubs)
    name = SessionName.from_key(key)
    session = refold(name, stored, after, graph=graph, log_name=log_name, clock=clock)
    return Rewritten(_image(session, graph, log_name, clock.now_ms()), stubs)


def _image(
    session: OneSession, graph: DialogueGraph, log_name: str, now_ms: int
) -> SessionImage:
    """Return all rows of a session that was folded in memory."""
    stored = session.stored
    assert stored is not None, "it was folded"
    seal = sealed(session, session.key, stored, graph, now_ms)
    assert seal is not None, "nothing of it is sealed yet"
    index: dict[bytes, bytes] = {}
    for change in session.changes:
        for turn_id, entry in change.ids.items():
            index[b"i" + turn_id_hash(turn_id)] = encode_entry(entry, log_name)
        for version in change.asides:
            index[b"e" + version.to_bytes(VERSION_BYTES, "big")] = b""
    return SessionImage(
        session.key,
        stored.head.incarnation,
        stored.head.version,
        encode_stored_head(seal.after),
        None,
        [segment for _, segment in seal.segments],
        [IndexRow(suffix, row) for suffix, row in sorted(index.items())],
    )
