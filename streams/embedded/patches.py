"""What changed in a session since a version, as a JSON Patch between two states."""

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw

from turnstate.schemas.errors import UnavailableError
from turnstate.schemas.ids import SessionName
from turnstate.schemas.operation import MAIN
from turnstate.storage.snapshots import Snapshot, patch_between
from turnstate.streams.documents import Document
from turnstate.streams.reading import StoreReader

if TYPE_CHECKING:
    from turnstate.streams.embedded.store import EmbeddedStore

_TRIES: Final = 3

_encoder: Final = msgspec.json.Encoder(order="sorted")
_decoder: Final = msgspec.json.Decoder()
_raws: Final = msgspec.json.Decoder(list[Raw])
_raw_fields: Final = msgspec.json.Decoder(dict[str, Raw])


class _AnotherLifeError(Exception):
    """The session was erased, and goes on, between two reads."""


def patch(
    store: "EmbeddedStore",
    tenant: str,
    session: str,
    *,
    since: int,
    version: int | None = None,
    branch: str = MAIN,
) -> Document:
    """Return what leads from the state at one version to that at another.

    Applied to what `state` answered at `since`, it gives what `state` answers
    at `version`, exactly (RFC 6902). It begins with tests of life and version,
    so that it fits no other state. Where a session lies belongs to no version,
    and a text may have been taken out of all of them since it was read: the
    tier, and turns that are redacted, are told anew each time.

    Args:
        store: The store.
        tenant: The tenant.
        session: The session.
        since: The version that the caller has.
        version: The version that it wants; the newest where None.
        branch: Of which branch.

    Returns:
        `from`, `to` and the operations, `patch`.

    Raises:
        NotFoundError: no such session; or version, or branch at one of them.
        CorruptDataError: what it needs is damaged.
        UnavailableError: the session is erased again and again meanwhile.
    """
    states = store.recent_states
    # By a reader of which nobody is told: the session is used once, not twice.
    quiet = StoreReader(store.warm, store.heads, store.graph)
    for _ in range(_TRIES):
        newer = store.state(tenant, session, version=version, branch=branch)
        life, to = newer["incarnation"], newer["version"]

        def older(life: int = life) -> Document:
            found = quiet.state(tenant, session, version=since, branch=branch)
            if found["incarnation"] != life:
                raise _AnotherLifeError
            return _without_tier(found)

        def wanted(newer: Document = newer) -> Document:
            return _without_tier(newer)

        key = SessionName(tenant, session).key()
        key += life.to_bytes(8, "big") + branch.encode()
        try:
            new = states.take(key, to, wanted)
            old = states.take(key, since, older)
        except _AnotherLifeError:
            continue
        operations = _operations(old, new, life, newer["tier"])
        return {"from": since, "to": to, "patch": operations}
    raise UnavailableError(
        f"the session {session!r} is erased while it is read", hint="ask again"
    )


def _without_tier(document: Document) -> Document:
    return {name: value for name, value in document.items() if name != "tier"}


def _operations(old: Snapshot, new: Snapshot, life: int, tier: str) -> list[Any]:
    """Return the operations; what is not made here is JSON already."""
    tests = [_told("test", "/incarnation", life), _told("test", "/version", old[0])]
    try:
        changes = _raws.decode(patch_between(old, new).operations)
        turns = _decoder.decode(new.document)["turns"]
    except msgspec.DecodeError:
        # A number that only its digits say: then the whole state is the patch.
        whole = _raw_fields.decode(new.document) | _raw_fields.decode(new.static)
        value = Raw(_encoder.encode({**whole, "tier": tier}))
        return [*tests, _told("replace", "", value)]
    hidden = [
        _told("replace", f"/turns/{place}", turn)
        for place, turn in enumerate(turns)
        if _is_hidden(turn)
    ]
    return [*tests, *changes, *hidden, _told("replace", "/tier", tier)]


def _is_hidden(turn: Document) -> bool:
    return "redacted" in turn or any(map(_is_hidden, turn.get("parts", ())))


def _told(operation: str, path: str, value: object) -> Document:
    return {"op": operation, "path": path, "value": value}
