"""Compare a store with the turns that went into it: nothing lost, nothing twice."""

from collections.abc import Iterable, Mapping, Sequence

from turnstate.schemas.draft import Draft
from turnstate.schemas.wire.json import draft_from_json
from turnstate.storage.session_reader import operations
from turnstate.storage.verify import verify_session
from turnstate.streams.embedded.store import EmbeddedStore


class Sent:
    """Know every turn that was ever to be sent, by session and in order.

    Attributes:
        drafts: All of them, in the order of the input.
        by_session: session key → indices into `drafts`.
    """

    def __init__(self) -> None:
        self.drafts: list[Draft] = []
        self.by_session: dict[bytes, list[int]] = {}

    def add(self, line: bytes) -> None:
        """Take the next turn of the input."""
        draft = draft_from_json(line)
        self.by_session.setdefault(draft.key, []).append(len(self.drafts))
        self.drafts.append(draft)


def check_kept(
    store: EmbeddedStore,
    sent: Sent,
    acknowledged: Mapping[int, int],
    keys: Iterable[bytes],
    *,
    upto: int,
) -> int:
    """Check sessions against what was sent; return how many turns are there.

    A session holds exactly the first turns that were sent to it, each once,
    at least those that were acknowledged, each at the version it was told.

    Args:
        store: The store, opened again.
        sent: All turns.
        acknowledged: index of a turn → the version that its sender was told.
        keys: The sessions to look at.
        upto: No turn from this index on can be there.
    """
    count = 0
    for key in keys:
        indices = sent.by_session[key]
        stored = store.engine.head(key)
        found = [] if stored is None else list(operations(store.warm, key, stored))
        wanted = [sent.drafts[index] for index in indices[: len(found)]]
        assert [op.turn_id for _, op in found] == [draft.turn_id for draft in wanted]
        assert [op.content_hash for _, op in found] == [
            draft.content_hash for draft in wanted
        ]
        for at, index in enumerate(indices):
            version = acknowledged.get(index)
            if version is not None:
                assert at < len(found), f"turn {index} was acknowledged and is lost"
                assert version == at + 1, f"turn {index} is at another version"
        assert len(found) <= sum(index < upto for index in indices)
        if stored is not None:
            assert stored.head.version == len(found)
            assert not verify_session(store.warm, key, stored, store.graph).faults
        count += len(found)
    return count


def digests(store: EmbeddedStore) -> dict[tuple[str, str], str]:
    """Return the digest of every session."""
    return {(row["tenant"], row["session"]): row["digest"] for row in store.sessions()}


def log_records(store: EmbeddedStore) -> Sequence[bytes]:
    """Return the whole log."""
    return [record for _, record in store.engine.log.read()]
